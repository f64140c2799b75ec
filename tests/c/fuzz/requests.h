/* Requests for memory at an address or of an array, and what gives it back. */
#ifndef FUZZ_REQUESTS_H
#define FUZZ_REQUESTS_H

#include "player.h"

/* A request: what came back is kept. */
static void request(struct player *me) {
    CUdeviceptr address = 0;
    size_t bytes = size(me), pitch = 0;
    struct thing *pool;
    CUresult code;
    if (!pick(me, NONE)) return;
    switch (below(me, 9)) {
    case 0:
    case 1:
        code = cu.alloc(&address, bytes);
        note(me, "alloc %zu -> %d %llx", bytes, code, address);
        if (!code) keep(me, PLAIN, address, bytes, me->current);
        return;
    case 2: {
        size_t width = 1 + below(me, 5000), height = 1 + below(me, 3000);
        code = cu.alloc_pitch(&address, &pitch, width, height, 4);
        note(me, "pitch %zu x %zu -> %d %llx", width, height, code, address);
        if (!code) keep(me, PLAIN, address, pitch * height, me->current);
        return;
    }
    case 3:
        bytes = bytes < 64 * MIB ? bytes : 64 * MIB;
        code = cu.alloc_managed(&address, bytes, CU_MEM_ATTACH_GLOBAL);
        note(me, "managed %zu -> %d", bytes, code);
        if (!code) keep(me, MANAGED, address, bytes, me->current);
        return;
    case 4:
        code = cu.alloc_async(&address, bytes, NULL);
        note(me, "alloc-async %zu -> %d %llx", bytes, code, address);
        if (!code) keep(me, POOLED, address, bytes, me->current);
        return;
    case 5:
        if (!(pool = pick(me, POOL))) return;
        code = cu.alloc_from_pool(&address, bytes, (CUmemoryPool)pool->value, NULL);
        note(me, "alloc-pool %zu -> %d %llx", bytes, code, address);
        if (!code) keep(me, POOLED, address, bytes, me->current);
        return;
    case 6: {
        CUDA_ARRAY3D_DESCRIPTOR shape = {1 + below(me, 3000), below(me, 3000), below(me, 12), CU_AD_FORMAT_FLOAT, 1, 0};
        if (!shape.Height) shape.Depth = 0;
        CUarray array;
        code = cu.array_create_3d(&array, &shape);
        note(me, "array %zu x %zu x %zu -> %d", shape.Width, shape.Height, shape.Depth, code);
        if (!code) keep(me, ARRAY, (unsigned long long)array, 0, me->current);
        return;
    }
    case 7: {
        CUDA_ARRAY3D_DESCRIPTOR shape = {1 + below(me, 2000), 1 + below(me, 2000), 0, CU_AD_FORMAT_FLOAT, 1, 0};
        CUmipmappedArray mipmap;
        code = cu.mipmap_create(&mipmap, &shape, 1 + (unsigned)below(me, 12));
        note(me, "mipmap %zu x %zu -> %d", shape.Width, shape.Height, code);
        if (!code) keep(me, MIPMAP, (unsigned long long)mipmap, 0, me->current);
        return;
    }
    default: {
        CUmemAllocationProp where = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
        where.location.type = below(me, 8) ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST;
        bytes = BLOCK * (1 + below(me, 64));
        CUmemGenericAllocationHandle handle;
        code = cu.create(&handle, bytes, &where, 0);
        note(me, "create %zu -> %d", bytes, code);
        if (!code) keep(me, HANDLE, handle, bytes, -1);
        return;
    }
    }
}

static void give_back(struct player *me) {
    static const enum kind kinds[] = {PLAIN, PLAIN, MANAGED, POOLED, POOLED, ARRAY, MIPMAP, SPARSE, HANDLE, HANDLE, GRAPH_MEMORY};
    struct thing *thing = pick(me, kinds[below(me, sizeof kinds / sizeof kinds[0])]);
    CUresult code;
    if (!thing) {
        CUdeviceptr wrong = roll(me) << 9;
        code = cu.free(wrong);
        note(me, "free of nothing at %llx -> %d", wrong, code);
        return;
    }
    switch (thing->kind) {
    case ARRAY:
    case SPARSE: code = cu.array_destroy((CUarray)thing->value); break;
    case MIPMAP: code = cu.mipmap_destroy((CUmipmappedArray)thing->value); break;
    case HANDLE: code = cu.release(thing->value); break;
    case POOLED:
    case GRAPH_MEMORY:
        code = below(me, 2) ? cu.free_async(thing->value, NULL) : cu.free(thing->value);
        break;
    default: code = cu.free(thing->value); break;
    }
    note(me, "give back kind %d %llx -> %d", thing->kind, thing->value, code);
    if (!code) thing->kind = NONE;
}

#endif
