/* Managed memory between managed.c (residency) and managed_api.c (entry points, advice). */
#ifndef SIM_MANAGED_H
#define SIM_MANAGED_H

#include "mem.h"

struct sim_page {
    struct sim_card *card; /* where it was last resident; NULL: nowhere but in host memory */
    uint32_t block;
};

struct sim_managed {
    struct sim_page *pages;
    size_t count;
    unsigned attach;
    bool owned; /* devices without concurrent access: resident for good from the start */
    bool read_mostly;
    CUmemLocation preferred, prefetched; /* type INVALID: none */
    uint64_t accessed_by;                /* cards; bit 63: the host */
};

/* Managed regions of the process. */
extern struct sim_region *sim_managed_regions;
CUresult sim_managed_alloc(struct sim_context *context, CUdeviceptr *ptr, size_t bytes, unsigned flags);
/* Takes pages off the cards. */
void sim_managed_evict(struct sim_region *region, uint64_t offset, uint64_t bytes);
/* Makes pages resident on a card, as far as it has room. */
void sim_managed_settle(struct sim_region *region, uint64_t offset, uint64_t bytes, struct sim_card *card);

#endif
