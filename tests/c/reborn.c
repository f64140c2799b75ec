/*
 * reborn pools|contexts ROUNDS: things are destroyed and others made, to which the driver may give the same handles.
 *
 * pools: meanwhile another thread synchronises, at which every pool is asked what it holds.
 * contexts: all threads make and destroy contexts with memory in them.
 *
 * After every round, with all of them done, what is charged is what the card holds. Exit status 1 where it is not.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "harness/driver.h"
#include "harness/sizes.h"

#define THREADS 3
#define MIB ((size_t)1 << 20)

static struct driver cu;
static CUcontext primary;
static atomic_int going;

static void *synchronise(void *unused) {
    (void)unused;
    cu.ctx_set(primary);
    while (atomic_load(&going)) {
        cu.stream_sync(NULL);
        usleep(20);
    }
    return NULL;
}

/* A pool with memory in it, that was asked for and freed `turns` times before it is kept. */
static int pool(CUmemoryPool *made, CUdeviceptr *kept, size_t bytes, int turns) {
    const CUmemPoolProps where = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    if (cu.pool_create(made, &where)) return 1;
    for (int turn = 0; turn < turns; turn++)
        if (cu.alloc_from_pool(kept, bytes, *made, NULL) || cu.free_async(*kept, NULL)) return 1;
    return cu.alloc_from_pool(kept, bytes, *made, NULL) != CUDA_SUCCESS;
}

static CUmemoryPool left;
static CUdeviceptr in_it;

/* What fails is counted. */
static int pools(int round) {
    pthread_t other;
    CUmemoryPool first;
    CUdeviceptr at;
    if (left && (cu.free_async(in_it, NULL) || cu.pool_destroy(left))) return 1;
    atomic_store(&going, 1);
    pthread_create(&other, NULL, synchronise, NULL);
    int failed = pool(&first, &at, 4 * MIB, round % 3) || cu.free_async(at, NULL) || cu.pool_destroy(first) ||
                 pool(&left, &in_it, 64 * MIB, round / 3 % 3);
    atomic_store(&going, 0);
    pthread_join(other, NULL);
    return failed;
}

/* Three contexts of its own, one after another. The last one is kept, and answered. */
static void *inherit(void *unused) {
    (void)unused;
    CUcontext context = NULL;
    for (int i = 0; i < 3; i++) {
        CUdeviceptr at;
        if (context && cu.ctx_destroy(context)) return NULL;
        if (cu.ctx_create(&context, 0, 0) || cu.alloc(&at, 16 * MIB)) return NULL;
    }
    return context;
}

static int contexts(int round) {
    static CUcontext kept[THREADS];
    pthread_t ids[THREADS];
    int failed = 0;
    for (int i = 0; round && i < THREADS; i++) failed += cu.ctx_destroy(kept[i]) != CUDA_SUCCESS;
    for (int i = 0; i < THREADS; i++) pthread_create(&ids[i], NULL, inherit, NULL);
    for (int i = 0; i < THREADS; i++) {
        void *context = NULL;
        pthread_join(ids[i], &context);
        kept[i] = context;
        failed += !context;
    }
    return failed;
}

int main(int argc, char **argv) {
    if (argc != 3) return 3;
    int (*play)(int) = !strcmp(argv[1], "pools") ? pools : !strcmp(argv[1], "contexts") ? contexts : NULL;
    unsigned long long (*process_bytes)(int) = dlsym(driver_library(), "simgpu_process_bytes");
    cu = reach_driver("dlsym");
    if (!play || !process_bytes || cu.init(0) || cu.primary_retain(&primary, 0) || cu.ctx_set(primary)) return 3;
    for (int round = 0; round < atoi(argv[2]); round++) {
        int failed = play(round);
        size_t free = 0, total = 0;
        CUresult code = cu.mem_info(&free, &total);
        if (failed || code || total - free != process_bytes(0)) {
            printf("round %d: %d, %d, %zu charged, %llu held\n", round, failed, code, total - free, process_bytes(0));
            return 1;
        }
    }
    return 0;
}
