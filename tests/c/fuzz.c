/*
 * fuzz SEED STEPS THREADS: random sequences of allocation calls, some of them made to fail. After every step (with one thread)
 * or round (with several) what the library charges has to be what the driver says that this process holds, within one block a
 * context. Exit status 1 and the last steps otherwise; the same seed makes the same sequence.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>

#include "harness/driver.h"
#include "harness/image.h"
#include "harness/sizes.h"

#define MIB ((size_t)1 << 20)
#define BLOCK (2 * MIB)
#define MOST 48
#define CONTEXTS 3

/* Seeds from this one on load code, too: those before it go on meaning what they meant when they found something. With one
 * thread: what others have on their way is mistaken for code, which is looked for on the card. */
#define FIRST_WITH_CODE ((uint64_t)1 << 33)
static int with_code;

static struct driver cu;
static int (*fail_next)(const char *, int, int);
static void (*hold_arrays)(int);
static int holding; /* streams do not come to what is mapped into arrays before somebody waits */
static unsigned long long (*process_bytes)(int);

enum kind {
    NONE, PLAIN, MANAGED, POOLED, ARRAY, MIPMAP, HANDLE, RESERVED, MAPPING, POOL, EXEC, GRAPH_MEMORY, SPARSE, TEAM, BOUND,
    MODULE, LIBRARY
};

struct thing {
    enum kind kind;
    unsigned long long value, other;
    size_t bytes;
    int context;
};

/* One thread's things, and the state of its dice. */
struct player {
    uint64_t dice;
    struct thing things[MOST];
    CUcontext contexts[CONTEXTS];
    CUgreenCtx green;
    CUcontext stand_in; /* for the green context: what is made there is of context 0 */
    int current, number;
    char trace[64][96];
    unsigned long traced;
};

static uint64_t roll(struct player *me) {
    me->dice ^= me->dice << 13;
    me->dice ^= me->dice >> 7;
    me->dice ^= me->dice << 17;
    return me->dice * 0x2545f4914f6cdd1dull >> 16;
}

static size_t below(struct player *me, size_t n) { return roll(me) % n; }

__attribute__((format(printf, 2, 3))) static void note(struct player *me, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(me->trace[me->traced++ % 64], sizeof me->trace[0], format, args);
    va_end(args);
}

static struct thing *pick(struct player *me, enum kind kind) {
    size_t from = below(me, MOST);
    for (size_t i = 0; i < MOST; i++) {
        struct thing *thing = &me->things[(from + i) % MOST];
        if (thing->kind == kind && (kind == NONE || thing->context == me->current || thing->context < 0)) return thing;
    }
    return NULL;
}

static size_t size(struct player *me) {
    switch (below(me, 8)) {
    case 0: return 1 + below(me, 512);
    case 1: return 1 + below(me, 64 << 10);
    case 2: return 1 + below(me, BLOCK);
    case 3: return BLOCK * (1 + below(me, 16));
    case 4: return 1 + below(me, 64 * MIB);
    case 5: return 1 + below(me, 2048 * MIB);
    case 6: return below(me, 16) ? MIB : SIZE_MAX - below(me, 4096);
    default: return 1 + below(me, 8 * MIB);
    }
}

static void keep(struct player *me, enum kind kind, unsigned long long value, size_t bytes, int context) {
    struct thing *thing = pick(me, NONE);
    *thing = (struct thing){kind, value, 0, bytes, context};
}

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

/* Code comes, is used and goes. A library is in no context, and in each that uses it. */
static void code(struct player *me) {
    struct thing *module = pick(me, MODULE), *library = pick(me, LIBRARY);
    size_t bytes = below(me, 2) ? below(me, 128) * MIB : below(me, 4 * MIB);
    unsigned long long handle;
    char text[256];
    CUresult code;
    switch (below(me, 7)) {
    case 0:
        if (!pick(me, NONE)) return;
        code = cu.module_load((CUmodule *)&handle, image_with(text, sizeof text, bytes));
        note(me, "module of %zu -> %d", bytes, code);
        if (!code) keep(me, MODULE, handle, 0, me->current);
        return;
    case 1:
        if (!module) return;
        code = cu.module_function((CUfunction *)&handle, (CUmodule)module->value, "work");
        note(me, "function -> %d", code);
        return;
    case 2:
        if (!module) return;
        code = cu.module_unload((CUmodule)module->value);
        note(me, "unload -> %d", code);
        if (!code) module->kind = NONE;
        return;
    case 3:
        if (!pick(me, NONE)) return;
        image_with(text, sizeof text, bytes);
        code = cu.library_load((CUlibrary *)&handle, text, NULL, NULL, 0, NULL, NULL, 0);
        note(me, "library of %zu -> %d", bytes, code);
        if (!code) keep(me, LIBRARY, handle, 0, -1);
        return;
    case 4:
        if (!library) return;
        code = cu.library_module((CUmodule *)&handle, (CUlibrary)library->value);
        note(me, "module of a library in context %d -> %d", me->current, code);
        return;
    case 5:
        if (!library || cu.library_kernel((CUkernel *)&handle, (CUlibrary)library->value, "work")) return;
        code = below(me, 2) ? cu.function_load((CUfunction)handle) : cu.kernel_function((CUfunction *)&handle, (CUkernel)handle);
        note(me, "kernel of a library in context %d -> %d", me->current, code);
        return;
    default:
        if (!library) return;
        code = cu.library_unload((CUlibrary)library->value);
        note(me, "unload library -> %d", code);
        if (!code) library->kind = NONE;
        return;
    }
}

static void forget_context(struct player *me, int context) {
    for (int i = 0; i < MOST; i++)
        if (me->things[i].kind != NONE && me->things[i].context == context) me->things[i].kind = NONE;
}

/* A green context comes or goes. */
static void green(struct player *me) {
    CUdevResource all;
    CUdevResourceDesc desc;
    CUresult code;
    if (me->green) {
        code = cu.green_destroy(me->green);
        note(me, "destroy green -> %d", code);
        if (!code) me->green = NULL;
        return;
    }
    if (cu.device_resource(0, &all, CU_DEV_RESOURCE_TYPE_SM) || cu.resource_desc(&desc, &all, 1)) return;
    code = cu.green_create(&me->green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM);
    note(me, "green -> %d", code);
    if (code) me->green = NULL;
    else while (cu.green_context(&me->stand_in, me->green)) continue;
}

/* Contexts come, go and take turns. Number 0 is the primary one; with several threads nobody resets it. */
static void contexts(struct player *me, int alone) {
    int which = (int)below(me, CONTEXTS);
    CUresult code = 0;
    if (which && !me->contexts[which]) {
        code = cu.ctx_create(&me->contexts[which], 0, 0);
        note(me, "create context %d -> %d", which, code);
        if (code) me->contexts[which] = NULL;
        else me->current = which;
    } else if (which && !below(me, 3)) {
        code = cu.ctx_destroy(me->contexts[which]);
        note(me, "destroy context %d -> %d", which, code);
        if (code) return;
        me->contexts[which] = NULL;
        forget_context(me, which);
        which = 0;
    } else if (alone && !which && !below(me, 8)) {
        code = cu.primary_reset(0);
        note(me, "reset -> %d", code);
        if (code) return;
        forget_context(me, 0);
        while (cu.primary_retain(&me->contexts[0], 0)) continue;
    }
    if (!which && below(me, 2)) green(me);
    if (me->contexts[which]) {
        cu.ctx_set(!which && me->green && below(me, 2) ? me->stand_in : me->contexts[which]);
        me->current = which;
    }
}

static const char *const fallible[] = {
    "cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocManaged", "cuMemFree_v2", "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap",
    "cuMemRetainAllocationHandle", "cuArray3DCreate_v2", "cuArrayDestroy", "cuMipmappedArrayCreate",
    "cuMipmappedArrayDestroy", "cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolTrimTo", "cuMemPoolGetAttribute",
    "cuPointerGetAttribute", "cuStreamSynchronize", "cuCtxSynchronize", "cuCtxCreate_v2", "cuCtxDestroy_v2",
    "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxReset_v2", "cuGraphInstantiateWithFlags", "cuGraphLaunch",
    "cuDeviceGraphMemTrim", "cuDeviceGetGraphMemAttribute", "cuMemMapArrayAsync", "cuMulticastCreate",
    "cuMulticastBindMem", "cuMulticastUnbind", "cuGreenCtxCreate", "cuGreenCtxDestroy", "cuCtxFromGreenCtx",
    /* only with code */
    "cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction", "cuLibraryLoadData", "cuLibraryGetModule",
    "cuLibraryUnload", "cuKernelGetFunction", "cuFuncLoad",
};
enum { FALLIBLE = sizeof fallible / sizeof fallible[0], ABOUT_CODE = 8 };

static void step(struct player *me, int alone) {
    const char *failing = !below(me, 10) ? fallible[below(me, with_code ? FALLIBLE : FALLIBLE - ABOUT_CODE)] : NULL;
    if (failing) {
        note(me, "%s fails once", failing);
        fail_next(failing, below(me, 2) ? 2 : 999, 1);
    }
    switch (below(me, 12)) {
    case 0 ... 4: request(me); break;
    case 5 ... 7: give_back(me); break;
    case 8: virtual_memory(me); break;
    case 9: pools(me); break;
    case 10:
        if (with_code && below(me, 2)) code(me);
        else graphs(me);
        break;
    default:
        switch (below(me, 6)) {
        case 0 ... 1: contexts(me, alone); break;
        case 2: virtual_memory(me); break;
        case 3: multicast(me); break;
        default: sparse(me, alone); break;
        }
    }
    if (failing) fail_next(failing, 0, 0);
}

static int lazy;

/* What managed memory is charged and the card need not hold: whole blocks, as it shares none. Where plain memory may be backed on
 * touch, it is managed memory to the driver. */
static long long managed(const struct player *me) {
    long long bytes = 0;
    for (int i = 0; i < MOST; i++)
        if (me->things[i].kind == MANAGED || (lazy && me->things[i].kind == PLAIN)) bytes += (long long)((me->things[i].bytes + BLOCK - 1) / BLOCK * BLOCK);
    return bytes;
}

static int check(struct player *players, int count, unsigned long at, int waited) {
    size_t free = 0, total = 0;
    int live = 0;
    long long unheld = 0;
    CUresult code = cu.mem_info(&free, &total);
    for (int p = 0; p < count; p++) {
        unheld += managed(&players[p]);
        for (int i = 1; i < CONTEXTS; i++) live += players[p].contexts[i] != NULL;
    }
    long long charged = (long long)(total - free), held = (long long)process_bytes(0);
    long long difference = charged - unheld - held, allowed = (long long)BLOCK * (live + 1);
    /* Managed memory that shares a page with other managed memory is charged once. */
    long long slack = unheld ? unheld : 0;
    /* Above the limit, as a context may bring it, all that is seen is that nothing is free. */
    int above = !free && held > charged;
    if (!code && difference <= allowed && (above || difference >= -allowed - slack)) return 0;
    /* Streams may have come to what they were to unmap: whoever waits for them sees it. Too little is never charged. */
    if (!code && difference > 0 && !waited && count == 1 && !cu.ctx_sync()) return check(players, count, at, 1);
    printf("step %lu: memory info %d, charged %lld, of that managed %lld, held %lld: difference %lld\n", at, code, charged,
           unheld, held, difference);
    for (int p = 0; p < count; p++)
        for (unsigned long i = players[p].traced > 40 ? players[p].traced - 40 : 0; i < players[p].traced; i++)
            printf("  %d: %s\n", p, players[p].trace[i % 64]);
    return 1;
}

static int steps_a_round;

static void *play(void *of) {
    struct player *me = of;
    cu.ctx_set(me->contexts[0]);
    for (int i = 0; i < steps_a_round; i++) step(me, 0);
    cu.ctx_set(me->contexts[0]);
    me->current = 0;
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) return 3;
    uint64_t seed = strtoull(argv[1], NULL, 0);
    unsigned long steps = strtoul(argv[2], NULL, 0);
    int threads = atoi(argv[3]);
    with_code = seed >= FIRST_WITH_CODE && threads == 1;
    if (threads < 1 || threads > 8) return 3;
    void *library = driver_library();
    cu = reach_driver("dlsym");
    fail_next = dlsym(library, "simgpu_fail_next");
    process_bytes = dlsym(library, "simgpu_process_bytes");
    hold_arrays = dlsym(library, "simgpu_hold_arrays");
    if (!fail_next || !process_bytes || !hold_arrays) return 3;
    lazy = getenv("FUZZ_LAZY") != NULL;
    static struct player players[8];
    CUcontext primary;
    if (cu.init(0) || cu.primary_retain(&primary, 0) || cu.ctx_set(primary)) return 3;
    for (int i = 0; i < threads; i++) {
        players[i].dice = (seed + 1) * 0x9e3779b97f4a7c15ull + (uint64_t)i * 0xd1342543de82ef95ull + 1;
        players[i].contexts[0] = primary;
        players[i].number = i;
        for (int warm = 0; warm < 8; warm++) roll(&players[i]);
    }
    if (threads == 1) {
        for (unsigned long at = 0; at < steps; at++) {
            step(&players[0], 1);
            if (check(players, 1, at, 0)) return 1;
        }
        return 0;
    }
    steps_a_round = 50;
    for (unsigned long at = 0; at < steps; at += (unsigned long)steps_a_round) {
        pthread_t ids[8];
        for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, play, &players[i]);
        for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
        if (check(players, threads, at, 0)) return 1;
    }
    return 0;
}
