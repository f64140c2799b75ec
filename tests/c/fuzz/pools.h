/* Pools, and the memory of graphs. */
#ifndef FUZZ_POOLS_H
#define FUZZ_POOLS_H

#include "player.h"

static void pools(struct player *me) {
    struct thing *pool = pick(me, POOL);
    CUmemoryPool handle;
    CUresult code;
    uint64_t threshold = below(me, 3) ? 0 : below(me, 2) ? UINT64_MAX : below(me, 512 * MIB);
    switch (below(me, 6)) {
    case 0: {
        CUmemPoolProps where = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
        where.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        if (!pick(me, NONE)) return;
        code = cu.pool_create(&handle, &where);
        note(me, "pool -> %d", code);
        if (!code) keep(me, POOL, (unsigned long long)handle, 0, -1);
        return;
    }
    case 1:
        if (!pool) return;
        code = cu.pool_destroy((CUmemoryPool)pool->value);
        note(me, "destroy pool -> %d", code);
        if (!code) pool->kind = NONE;
        return;
    case 2:
        if (pool) handle = (CUmemoryPool)pool->value;
        else if (cu.pool_default(&handle, 0)) return;
        code = cu.pool_set(handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
        note(me, "threshold %llu -> %d", (unsigned long long)threshold, code);
        return;
    case 3:
        if (pool) handle = (CUmemoryPool)pool->value;
        else if (cu.pool_default(&handle, 0)) return;
        code = cu.pool_trim(handle, below(me, 64 * MIB));
        note(me, "trim -> %d", code);
        return;
    case 4:
        code = cu.stream_sync(NULL);
        note(me, "synchronise stream -> %d", code);
        return;
    default:
        code = cu.ctx_sync();
        note(me, "synchronise context -> %d", code);
        return;
    }
}

/* A graph of a few allocations in a row, launched; what it leaves is kept. */
static void graphs(struct player *me) {
    if (!below(me, 4)) {
        note(me, "trim graphs -> %d", cu.graph_mem_trim(0));
        return;
    }
    CUgraph graph;
    CUgraphExec exec = NULL;
    CUgraphNode last = NULL;
    CUdeviceptr left[3];
    size_t bytes[3];
    int allocated = 0, freed = 0;
    if (cu.graph_create(&graph, 0)) return;
    for (int i = 0; i < 3; i++) {
        CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = bytes[i] = 1 + below(me, 256 * MIB)};
        params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        CUgraphNode before = last;
        size_t chained = last && below(me, 4);
        if (cu.graph_add_alloc(&last, graph, &before, chained, &params)) continue;
        bytes[allocated] = bytes[i];
        left[allocated++] = params.dptr;
        before = last;
        if (below(me, 2) && !cu.graph_add_free(&last, graph, &before, 1, params.dptr)) allocated--, freed++;
    }
    CUresult code = cu.graph_instantiate(&exec, graph, 0);
    CUresult launched = code ? code : cu.graph_launch(exec, NULL);
    note(me, "graph leaving %d, freeing %d -> %d %d", allocated, freed, code, launched);
    for (int i = 0; i < allocated && !launched; i++) {
        if (pick(me, NONE)) keep(me, GRAPH_MEMORY, left[i], bytes[i], me->current);
        else cu.free(left[i]);
    }
    if (exec) cu.graph_exec_destroy(exec);
    cu.graph_destroy(graph);
}

#endif
