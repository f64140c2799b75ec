/* Parts of the model that the others call and that are not there yet: nothing of their kind exists. */
#include "sim.h"

#define NOTHING(name)                                                                                                 \
    __attribute__((weak)) void *name(void);                                                                           \
    __attribute__((weak)) void *name(void) { return NULL; }

NOTHING(sim_host_region_at)
NOTHING(sim_imports_context_gone)
NOTHING(sim_managed_context_gone)
NOTHING(sim_host_context_gone)
NOTHING(sim_pools_context_gone)
NOTHING(sim_pools_settle)
NOTHING(sim_mapping_extent)
NOTHING(sim_managed_touch)
NOTHING(sim_pool_give)
NOTHING(sim_pool_take)
NOTHING(sim_pools_trim)
NOTHING(sim_pool_used_changed)
NOTHING(sim_managed_free)
