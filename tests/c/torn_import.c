/*
 * torn_import ROUNDS: threads open memory of a program outside of the container in a context while another destroys it. With all of
 * them done what is charged is what the card holds of this process. Exit status 1 where it is not.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "harness/driver.h"
#include "harness/sizes.h"

#define THREADS 2
#define BYTES ((size_t)64 << 20)

static struct driver cu;
static CUcontext context, primary;
static CUipcMemHandle given[THREADS];
static atomic_int going;

/* Each has memory of its own to open: twice in one process it is at one address. */
static void *play(void *of) {
    CUdeviceptr at;
    cu.ctx_set(context);
    for (int turn = 0; atomic_load(&going) && !cu.ipc_open(&at, *(CUipcMemHandle *)of, 1); turn++)
        if (turn % 2 && cu.ipc_close(at)) break;
    return NULL;
}

/* The program outside: says how its memory is called, and stays until nobody reads that any more. */
static int outside(void) {
    cu = reach_driver("dlsym");
    if (cu.init(0) || cu.primary_retain(&primary, 0) || cu.ctx_set(primary)) return 3;
    for (int i = 0; i < THREADS; i++) {
        CUdeviceptr at;
        if (cu.alloc(&at, BYTES) || cu.ipc_get(&given[i], at)) return 3;
    }
    if (write(STDOUT_FILENO, given, sizeof given) != sizeof given) return 3;
    while (usleep(10000), write(STDOUT_FILENO, "", 1) == 1) continue;
    return 0;
}

static int other_program(const char *self) {
    int ends[2];
    if (pipe(ends)) return -1;
    pid_t child = fork();
    if (child < 0) return -1;
    if (!child) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        unsetenv("LD_PRELOAD");
        execl(self, self, "outside", (char *)NULL);
        _exit(3);
    }
    close(ends[1]);
    return read(ends[0], given, sizeof given) == sizeof given ? ends[0] : -1;
}

int main(int argc, char **argv) {
    if (argc != 2) return 3;
    if (!strcmp(argv[1], "outside")) return outside();
    unsigned long long (*process_bytes)(int) = dlsym(driver_library(), "simgpu_process_bytes");
    cu = reach_driver("dlsym");
    if (!process_bytes || cu.init(0) || cu.primary_retain(&primary, 0) || cu.ctx_set(primary)) return 3;
    /* Last, so that what a context costs was learned without a stranger's memory on the card. */
    size_t free = 0, total = 0;
    if (cu.mem_info(&free, &total) || other_program(argv[0]) < 0) return 4;
    for (int round = 0; round < atoi(argv[1]); round++) {
        pthread_t ids[THREADS];
        if (cu.ctx_create(&context, 0, 0) || cu.ctx_set(primary)) return 3;
        atomic_store(&going, 1);
        for (int i = 0; i < THREADS; i++) pthread_create(&ids[i], NULL, play, &given[i]);
        usleep(500 + 100 * (round % 20));
        CUresult destroyed = cu.ctx_destroy(context);
        atomic_store(&going, 0);
        for (int i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
        CUresult code = cu.mem_info(&free, &total);
        if (destroyed || code || total - free != process_bytes(0)) {
            printf("round %d: %d, then %d, %zu charged, %llu held\n", round, destroyed, code, total - free, process_bytes(0));
            return 1;
        }
    }
    return 0;
}
