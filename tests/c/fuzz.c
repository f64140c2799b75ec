/*
 * fuzz SEED STEPS THREADS [FOCUS]: random sequences of allocation calls, some of them made to fail, three of four of them of one
 * family where FOCUS (1 to 6) says so, as threads meet more often there. After every step (with one thread)
 * or round (with several) what the library charges has to be what the driver says that this process holds, within one block a
 * context. Exit status 1 and the last steps otherwise; the same seed makes the same sequence.
 */
#define _GNU_SOURCE
#include <pthread.h>

#include "fuzz/belongings.h"
#include "fuzz/captures.h"
#include "fuzz/code.h"
#include "fuzz/contexts.h"
#include "fuzz/physical.h"
#include "fuzz/pools.h"
#include "fuzz/requests.h"

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
    /* only with what belongs to contexts */
    "cuCtxSetLimit", "cuImportExternalMemory", "cuDestroyExternalMemory",
};
enum { ABOUT_BELONGINGS = 3, ABOUT_CODE = 8, FALLIBLE = sizeof fallible / sizeof fallible[0] - ABOUT_BELONGINGS };

/* What three of four steps are about: pools, contexts, physical memory, graphs, captures, what belongs to contexts. The numbers are those of `step`. */
static int focus;
enum { REQUEST = 0, GIVE_BACK = 5, VIRTUAL = 8, POOLS = 9, GRAPHS = 10, OTHER = 11, CONTEXT, SPARSE_ARRAY, CAPTURE, LIMIT, FOREIGN };
static const int families[][4] = {
    {POOLS, POOLS, REQUEST, GIVE_BACK},
    {CONTEXT, CONTEXT, REQUEST, GIVE_BACK},
    {VIRTUAL, SPARSE_ARRAY, OTHER, GIVE_BACK},
    {GRAPHS, GRAPHS, POOLS, GIVE_BACK},
    {CAPTURE, CONTEXT, REQUEST, GIVE_BACK},
    {LIMIT, FOREIGN, CONTEXT, GIVE_BACK},
};
enum { FAMILIES = sizeof families / sizeof families[0], BELONGINGS = 6 };

static void step(struct player *me, int alone) {
    int wanted = focus == BELONGINGS ? FALLIBLE + ABOUT_BELONGINGS : with_code ? FALLIBLE : FALLIBLE - ABOUT_CODE;
    const char *failing = !below(me, 10) ? fallible[below(me, (size_t)wanted)] : NULL;
    if (failing) {
        note(me, "%s fails once", failing);
        fail_next(failing, below(me, 2) ? 2 : 999, 1);
    }
    switch (focus && below(me, 4) ? families[focus - 1][below(me, 4)] : (int)below(me, 12)) {
    case REQUEST ... GIVE_BACK - 1: request(me); break;
    case GIVE_BACK ... VIRTUAL - 1: give_back(me); break;
    case VIRTUAL: virtual_memory(me); break;
    case POOLS: pools(me); break;
    case CONTEXT: contexts(me, alone); break;
    case CAPTURE: capture(me); break;
    case LIMIT: limit(me, alone); break;
    case FOREIGN: external(me); break;
    case SPARSE_ARRAY: sparse(me, alone); break;
    case GRAPHS:
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

/* What is charged in whole blocks and no card holds. */
static long long foreign(const struct player *me) {
    long long bytes = 0;
    for (int i = 0; i < MOST; i++)
        if (me->things[i].kind == EXTERNAL) bytes += (long long)((me->things[i].bytes + BLOCK - 1) / BLOCK * BLOCK);
    return bytes;
}

static int check(struct player *players, int count, unsigned long at, int waited) {
    size_t free = 0, total = 0;
    int live = 0;
    long long unheld = 0, elsewhere = 0;
    CUresult code = cu.mem_info(&free, &total);
    for (int p = 0; p < count; p++) {
        unheld += managed(&players[p]);
        elsewhere += foreign(&players[p]);
        for (int i = 1; i < CONTEXTS; i++) live += players[p].contexts[i] != NULL;
    }
    long long charged = (long long)(total - free), held = (long long)process_bytes(0);
    long long difference = charged - unheld - elsewhere - held, allowed = (long long)BLOCK * (live + 1);
    /* Managed memory that shares a page with other managed memory is charged once. */
    long long slack = unheld ? unheld : 0;
    /* Above the limit, as a context may bring it, all that is seen is that nothing is free. */
    int above = !free && held + elsewhere > charged;
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
    if (argc != 4 && argc != 5) return 3;
    uint64_t seed = strtoull(argv[1], NULL, 0);
    unsigned long steps = strtoul(argv[2], NULL, 0);
    int threads = atoi(argv[3]);
    with_code = seed >= FIRST_WITH_CODE && threads == 1;
    focus = argc > 4 ? atoi(argv[4]) : 0;
    if (threads < 1 || threads > 8 || focus < 0 || focus > FAMILIES) return 3;
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
