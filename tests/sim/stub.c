/* What the entry points answer that this driver exports and does not implement. */
#include "sim.h"

int sim_stub(const char *name);

int sim_stub(const char *name)
{
    (void)name;
    SIM_ENTER(any_other_entry_point);
    return CUDA_ERROR_NOT_SUPPORTED;
}
