/* work=none: addresses that are unique while they live, whoever hands them out, and no card behind them. */
#include "sim_check.h"

#include <pthread.h>

enum { THREADS = 4, COUNT = 5000 };

static CUdeviceptr ptr[THREADS][COUNT];

static void *allocate(void *row)
{
    CUdeviceptr *own = row, again;
    for (int i = 0; i < COUNT; i++)
        OK(cuMemAlloc_v2(&own[i], i % 2 ? 3 * MIB : 100));
    OK(cuMemFree_v2(own[7]));
    OK(cuMemAlloc_v2(&again, 5 * MIB)); /* last in, first out */
    EXPECT(again, own[7]);
    return NULL;
}

static int compare(const void *a, const void *b)
{
    CUdeviceptr x = *(const CUdeviceptr *)a, y = *(const CUdeviceptr *)b;
    return x < y ? -1 : x > y;
}

int main(void)
{
    pthread_t thread[THREADS];
    CUdeviceptr pooled = 5;
    CUmemoryPool pool;
    unsigned long long held = 1;
    size_t have, all;
    OK(cuInit(0));
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, allocate, ptr[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    CUdeviceptr *every = &ptr[0][0];
    qsort(every, THREADS * COUNT, sizeof *every, compare);
    for (int i = 1; i < THREADS * COUNT; i++)
        HOLDS(every[i - 1] < every[i]);
    OK(cuMemGetInfo_v2(&have, &all));
    EXPECT(all, 16 * GIB);
    EXPECT(have, all);
    OK(cuMemAllocAsync(&pooled, MIB, NULL));
    OK(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pooled));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held));
    EXPECT(held, 0);
    OK(cuMemFreeAsync(pooled, NULL));
    EXPECT(cuMemAlloc_v2(&pooled, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(simgpu_call_count("cuMemAlloc_v2"), 0); /* not even counted */
    puts("no work was done");
    return 0;
}
