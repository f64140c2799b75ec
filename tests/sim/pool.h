/* Stream-ordered pools between pool.c (what a pool holds) and pool_api.c (the entry points). */
#ifndef SIM_POOL_H
#define SIM_POOL_H

#include "mem.h"

struct sim_pool {
    struct sim_pool *next;
    struct sim_heap heap;
    bool is_default;
    bool imported; /* from another process: nothing is allocated from it here */
    bool doomed; /* destroyed, waiting for its last allocation */
    CUmemPoolProps props;
    uint32_t *spare; /* blocks reserved and not used */
    size_t spares, room;
    size_t held; /* all blocks: used and spare */
    uint64_t threshold, reserved_high, used_high;
    int reuse[3];
    uint64_t peers; /* cards that may access it: 2 bits each, as CUmemAccess_flags */
};

/* The default pool of a device; NULL for a device that does not exist. */
struct sim_pool *sim_pool_default(CUdevice device);
/* The pool that cuMemAllocAsync takes from. */
struct sim_pool *sim_pool_current(CUdevice device);
bool sim_pool_make_current(CUdevice device, struct sim_pool *pool);
struct sim_pool *sim_pool_new(CUdevice device, const CUmemPoolProps *props);
void sim_pool_destroy(struct sim_pool *pool);
/* Gives spare blocks back until at most `keep` bytes are reserved; true when some went. */
bool sim_pool_trim(struct sim_pool *pool, uint64_t keep);

static inline uint64_t sim_pool_reserved(const struct sim_pool *pool)
{
    return (uint64_t)pool->held << SIM_BLOCK_SHIFT;
}

#endif
