/* Virtual memory management between vmm.c (physical allocations), vmm_map.c (addresses), sparse.c and multicast.c. */
#ifndef SIM_VMM_H
#define SIM_VMM_H

#include "mem.h"

struct sim_physical {
    struct sim_physical *next;
    CUmemAllocationProp prop;
    uint64_t bytes;
    struct sim_card *card; /* NULL in host memory */
    uint32_t *blocks;
    size_t count;
    char *host; /* NULL on a card */
    unsigned references; /* of the handle */
    unsigned mappings; /* to addresses, into tiles of sparse arrays, and bindings to multicast objects */
    struct sim_multicast *multicast; /* NULL for memory */
    bool shared;
    struct sim_share share;
};

struct sim_mapping {
    struct sim_physical *physical;
    uint64_t *access; /* a word for each 2 MiB: 2 bits a card, as CUmemAccess_flags */
};

struct sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle);
/* Enters an allocation with one handle reference. */
void sim_physical_enter(struct sim_physical *physical);
void sim_physical_map(struct sim_physical *physical);
void sim_physical_unmap(struct sim_physical *physical);

/* Whether all devices of the team are there. */
bool sim_multicast_complete(const struct sim_multicast *multicast);
/* Unbinds everything. */
void sim_multicast_free(struct sim_multicast *multicast);

#endif
