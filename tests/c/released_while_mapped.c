/*
 * released_while_mapped ROUNDS: threads map, retain and unmap one piece of physical memory, at addresses and in sparse arrays, while
 * another releases it: whoever comes first, what is charged is what the card holds. Exit status 1 where it is not.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "harness/driver.h"
#include "harness/sizes.h"

#define THREADS 4
#define BYTES ((size_t)4 << 20)

static struct driver cu;
static CUcontext primary;
static CUmemGenericAllocationHandle memory;
static atomic_int going;

static struct place {
    CUdeviceptr address;
    CUarray array;
    unsigned dice;
    int mapped, tiled;
} places[THREADS];

static void *play(void *of) {
    struct place *mine = of;
    cu.ctx_set(primary);
    while (atomic_load(&going)) {
        CUmemGenericAllocationHandle again;
        CUarrayMapInfo tile = {.resource.array = mine->array, .deviceBitMask = 1};
        switch (rand_r(&mine->dice) % 5) {
        case 0: mine->mapped |= !cu.map(mine->address, BYTES, 0, memory, 0); break;
        case 1: mine->mapped &= cu.unmap(mine->address, BYTES) != 0; break;
        case 2:
            if (mine->mapped && !cu.retain(&again, (void *)(uintptr_t)mine->address)) cu.release(again);
            break;
        default:
            tile.subresource.sparseLevel.extentWidth = tile.subresource.sparseLevel.extentHeight = 128;
            tile.subresource.sparseLevel.extentDepth = 1;
            tile.memOperationType = mine->tiled ? CU_MEM_OPERATION_TYPE_UNMAP : CU_MEM_OPERATION_TYPE_MAP;
            tile.memHandle.memHandle = mine->tiled ? 0 : memory;
            mine->tiled ^= !cu.map_array(&tile, 1, NULL);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 2) return 3;
    unsigned long long (*process_bytes)(int) = dlsym(driver_library(), "simgpu_process_bytes");
    cu = reach_driver("dlsym");
    if (!process_bytes || cu.init(0) || cu.primary_retain(&primary, 0) || cu.ctx_set(primary)) return 3;
    const CUmemAllocationProp where = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    const CUDA_ARRAY3D_DESCRIPTOR shape = {512, 384, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};
    for (int i = 0; i < THREADS; i++) {
        places[i].dice = (unsigned)i;
        if (cu.address_reserve(&places[i].address, BYTES, 0, 0, 0) || cu.array_create_3d(&places[i].array, &shape)) return 3;
    }
    for (int round = 0; round < atoi(argv[1]); round++) {
        pthread_t ids[THREADS];
        if (cu.create(&memory, BYTES, &where, 0)) return 3;
        atomic_store(&going, 1);
        for (int i = 0; i < THREADS; i++) pthread_create(&ids[i], NULL, play, &places[i]);
        usleep(200 + 50 * (round % 20));
        CUresult released = cu.release(memory);
        usleep(200);
        atomic_store(&going, 0);
        for (int i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
        /* Also when the half of them has let go of it. */
        for (int half = 0; half < 2; half++) {
            size_t free = 0, total = 0;
            CUresult code = cu.ctx_sync();
            if (!code) code = cu.mem_info(&free, &total);
            if (released || code || total - free != process_bytes(0)) {
                printf("round %d: %d, then %d, %zu charged, %llu held\n", round, released, code, total - free, process_bytes(0));
                return 1;
            }
            for (int i = half; i < THREADS; i += 2)
                if (places[i].mapped && !cu.unmap(places[i].address, BYTES)) places[i].mapped = 0;
        }
    }
    return 0;
}
