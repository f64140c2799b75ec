/*
 * torn ROUNDS: threads allocate and free in a context, of memory and of arrays, while another destroys it. With all of them done
 * what is charged is what the card holds. Exit status 1 where it is not.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "harness/driver.h"
#include "harness/sizes.h"

#define THREADS 4
#define MOST 8

static struct driver cu;
static CUcontext context;
static atomic_int going;

static void *play(void *unused) {
    (void)unused;
    CUdeviceptr at[MOST];
    CUarray arrays[MOST];
    const CUDA_ARRAY3D_DESCRIPTOR shape = {512, 512, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    int held = 0, refused = 0;
    cu.ctx_set(context);
    while (atomic_load(&going) && refused < 50) {
        if (held < MOST) {
            CUresult code = held % 2 ? cu.alloc(&at[held], 4 << 20) : cu.array_create_3d(&arrays[held], &shape);
            if (code) refused++;
            else held++;
        }
        if (held > MOST / 2) {
            held--;
            if (held % 2 ? cu.free(at[held]) : cu.array_destroy(arrays[held])) refused++;
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 2) return 3;
    unsigned long long (*process_bytes)(int) = dlsym(driver_library(), "simgpu_process_bytes");
    cu = reach_driver("dlsym");
    CUcontext primary;
    if (!process_bytes || cu.init(0) || cu.primary_retain(&primary, 0) || cu.ctx_set(primary)) return 3;
    for (int round = 0; round < atoi(argv[1]); round++) {
        pthread_t ids[THREADS];
        if (cu.ctx_create(&context, 0, 0) || cu.ctx_set(primary)) return 3;
        atomic_store(&going, 1);
        for (int i = 0; i < THREADS; i++) pthread_create(&ids[i], NULL, play, NULL);
        usleep(1000 + 100 * (round % 20));
        CUresult destroyed = cu.ctx_destroy(context);
        atomic_store(&going, 0);
        for (int i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
        size_t free = 0, total = 0;
        CUresult code = cu.mem_info(&free, &total);
        if (destroyed || code || total - free != process_bytes(0)) {
            printf("round %d: %d, then %d, %zu charged, %llu held\n", round, destroyed, code, total - free, process_bytes(0));
            return 1;
        }
    }
    return 0;
}
