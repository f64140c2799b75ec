/* two_drivers FIRST SECOND: uses two copies of the driver in one process. */
#include "open_driver.h"

struct copy {
    CUresult (*init)(unsigned), (*retain)(CUcontext *, CUdevice), (*set)(CUcontext), (*release)(CUdevice);
    CUresult (*alloc)(CUdeviceptr *, size_t), (*give_back)(CUdeviceptr), (*info)(size_t *, size_t *);
    CUresult (*pool_create)(CUmemoryPool *, const CUmemPoolProps *), (*pool_destroy)(CUmemoryPool);
    CUresult (*alloc_from_pool)(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
    unsigned long long (*calls)(const char *);
    CUcontext context;
    CUdeviceptr held;
};

static struct copy open_copy(const char *path)
{
    void *library = open_library(path);
    struct copy copy = {
        .init = function_of(library, "cuInit"),
        .retain = function_of(library, "cuDevicePrimaryCtxRetain"),
        .release = function_of(library, "cuDevicePrimaryCtxRelease_v2"),
        .set = function_of(library, "cuCtxSetCurrent"),
        .alloc = function_of(library, "cuMemAlloc_v2"),
        .give_back = function_of(library, "cuMemFree_v2"),
        .info = function_of(library, "cuMemGetInfo_v2"),
        .pool_create = function_of(library, "cuMemPoolCreate"),
        .pool_destroy = function_of(library, "cuMemPoolDestroy"),
        .alloc_from_pool = function_of(library, "cuMemAllocFromPoolAsync"),
        .calls = function_of(library, "simgpu_call_count"),
    };
    if (copy.init(0) || copy.retain(&copy.context, 0) || copy.set(copy.context))
        exit(71);
    return copy;
}

static void ask(const char *name, struct copy *copy, struct copy *other, int too_much, int fits)
{
    unsigned long long own = copy->calls("cuMemAlloc_v2"), others = other->calls("cuMemAlloc_v2");
    int refused = copy->alloc(&copy->held, (size_t)too_much << 30);
    int granted = copy->alloc(&copy->held, (size_t)fits << 30);
    printf("%s: %d GiB %d, %d GiB %d, asked of it %llu, of the other %llu\n", name, too_much, refused, fits, granted,
           copy->calls("cuMemAlloc_v2") - own, other->calls("cuMemAlloc_v2") - others);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 64;
    struct copy first = open_copy(argv[1]), second = open_copy(argv[2]);
    ask("first", &first, &second, 5, 2);
    ask("second", &second, &first, 2, 1);
    size_t left, total;
    int freed = first.give_back(first.held), also = second.give_back(second.held);
    first.info(&left, &total);
    printf("freed: first %d, second %d, free again %zu MiB\n", freed, also, left >> 20);

    /* One driver does not know the memory of the other, which is no sign that it is gone. */
    CUmemPoolProps where = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemoryPool pool;
    int made = second.pool_create(&pool, &where), pooled = second.alloc_from_pool(&second.held, 512 << 20, pool, NULL);
    int released = first.release(0), destroyed = second.pool_destroy(pool);
    second.info(&left, &total);
    printf("pool %d, 512 MiB %d, released %d, destroyed %d, free %zu MiB\n", made, pooled, released, destroyed, left >> 20);
    return 0;
}
