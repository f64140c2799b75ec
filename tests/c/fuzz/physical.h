/* Physical memory: created, mapped, bound to sparse arrays and multicast objects. */
#ifndef FUZZ_PHYSICAL_H
#define FUZZ_PHYSICAL_H

#include "player.h"

static void virtual_memory(struct player *me) {
    struct thing *handle = pick(me, HANDLE), *range = pick(me, RESERVED), *mapping = pick(me, MAPPING);
    CUresult code;
    switch (below(me, 5)) {
    case 0: {
        CUdeviceptr base;
        if (!pick(me, NONE)) return;
        code = cu.address_reserve(&base, 256 * MIB, 0, 0, 0);
        if (!code) keep(me, RESERVED, base, 256 * MIB, -1);
        return;
    }
    case 1:
    case 2: {
        if (!handle || !range || !pick(me, NONE)) return;
        CUdeviceptr at = range->value + BLOCK * below(me, 64);
        code = cu.map(at, handle->bytes, 0, handle->value, 0);
        note(me, "map %zu at %llx -> %d", handle->bytes, at, code);
        if (!code) keep(me, MAPPING, at, handle->bytes, -1);
        return;
    }
    case 3:
        if (!mapping) return;
        code = cu.unmap(mapping->value, mapping->bytes);
        note(me, "unmap %zu at %llx -> %d", mapping->bytes, mapping->value, code);
        if (!code) mapping->kind = NONE;
        return;
    default: {
        CUmemGenericAllocationHandle again;
        if (!mapping || !pick(me, NONE)) return;
        code = cu.retain(&again, (void *)(mapping->value + BLOCK * below(me, mapping->bytes / BLOCK)));
        note(me, "retain at %llx -> %d", mapping->value, code);
        if (!code) keep(me, HANDLE, again, mapping->bytes, -1);
        return;
    }
    }
}

/* Physical memory is mapped into the tiles of a sparse array, a list of operations at a time. */
static void sparse(struct player *me, int alone) {
    struct thing *array = pick(me, SPARSE);
    CUresult code;
    if (!array || !below(me, 8)) {
        CUDA_ARRAY3D_DESCRIPTOR shape = {512, 384, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};
        CUarray made;
        if (!pick(me, NONE)) return;
        code = cu.array_create_3d(&made, &shape);
        note(me, "sparse array -> %d", code);
        if (!code) keep(me, SPARSE, (unsigned long long)made, 0, me->current);
        return;
    }
    if (alone && !below(me, 6)) {
        hold_arrays(holding = !holding);
        note(me, holding ? "hold arrays" : "hold no arrays");
    }
    CUarrayMapInfo list[3];
    unsigned count = 1 + (unsigned)below(me, 3);
    code = 0;
    for (unsigned i = 0; i < count; i++) {
        struct thing *handle = below(me, 2) ? pick(me, HANDLE) : NULL;
        unsigned x = (unsigned)below(me, 4), y = (unsigned)below(me, 3), wrong = !below(me, 12);
        list[i] = (CUarrayMapInfo){.resource.array = (CUarray)array->value, .deviceBitMask = 1};
        list[i].subresource.sparseLevel.offsetX = 128 * x + wrong;
        list[i].subresource.sparseLevel.offsetY = 128 * y;
        list[i].subresource.sparseLevel.extentWidth = 128 * (1 + (unsigned)below(me, 4 - x));
        list[i].subresource.sparseLevel.extentHeight = 128 * (1 + (unsigned)below(me, 3 - y));
        list[i].subresource.sparseLevel.extentDepth = 1;
        list[i].memOperationType = handle ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
        list[i].memHandle.memHandle = handle ? handle->value : 0;
    }
    code = cu.map_array(list, count, NULL);
    note(me, "map %u into array %llx -> %d", count, array->value, code);
    /* What a refused list has done nobody knows, and it is charged for what it may have: not with the array gone. */
    while (code && array->kind == SPARSE)
        if (!cu.array_destroy((CUarray)array->value)) array->kind = NONE;
}

/* Physical memory is bound to a multicast object of the one device. */
static void multicast(struct player *me) {
    struct thing *team = pick(me, TEAM), *bound = pick(me, BOUND), *handle = pick(me, HANDLE);
    CUresult code;
    switch (below(me, 4)) {
    case 0: {
        CUmulticastObjectProp properties = {.numDevices = 1, .size = 256 * MIB};
        CUmemGenericAllocationHandle made;
        if (!pick(me, NONE)) return;
        code = cu.multicast_create(&made, &properties);
        note(me, "multicast -> %d", code);
        if (code) return;
        keep(me, TEAM, made, properties.size, -1);
        cu.multicast_add_device(made, 0);
        return;
    }
    case 1: {
        size_t offset = BLOCK * below(me, 100);
        if (!team || !handle || !pick(me, NONE)) return;
        code = cu.multicast_bind(team->value, offset, handle->value, 0, handle->bytes, 0);
        note(me, "bind %llx to %llx -> %d", handle->value, team->value, code);
        if (code) return;
        keep(me, BOUND, team->value, handle->bytes, -1);
        for (int i = 0; i < MOST; i++)
            if (me->things[i].kind == BOUND && !me->things[i].other) me->things[i].other = offset + 1;
        return;
    }
    case 2:
        if (!bound) return;
        code = cu.multicast_unbind(bound->value, 0, bound->other - 1, bound->bytes);
        note(me, "unbind from %llx -> %d", bound->value, code);
        if (!code || code == CUDA_ERROR_INVALID_VALUE) bound->kind = NONE; /* it may have gone with its object */
        return;
    default: {
        struct thing *range = pick(me, RESERVED);
        if (!team) return;
        if (range && pick(me, NONE) && below(me, 2)) {
            code = cu.map(range->value, team->bytes, 0, team->value, 0);
            note(me, "map multicast %llx at %llx -> %d", team->value, range->value, code);
            if (!code) keep(me, MAPPING, range->value, team->bytes, -1);
            return;
        }
        code = cu.release(team->value);
        note(me, "release multicast %llx -> %d", team->value, code);
        if (!code) team->kind = NONE;
        return;
    }
    }
}

#endif
