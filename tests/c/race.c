/*
 * race PROCESSES THREADS ROUNDS SIZE: all threads of all processes ask for SIZE at once, round after round, where only
 * one of them fits. Prints how many rounds saw more than one grant, and how many none.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/driver.h"
#include "harness/sizes.h"

static struct shared {
    pthread_barrier_t barrier;
    atomic_int granted, two, none, other;
} *shared;
static struct driver cu;
static CUcontext context;
static int rounds;
static size_t size;

static void *racer(void *leader) {
    cu.ctx_set(context);
    for (int i = 0; i < rounds; i++) {
        CUdeviceptr address;
        pthread_barrier_wait(&shared->barrier);
        CUresult code = cu.alloc(&address, size);
        if (code == CUDA_SUCCESS) atomic_fetch_add(&shared->granted, 1);
        else if (code != CUDA_ERROR_OUT_OF_MEMORY) atomic_fetch_add(&shared->other, 1);
        pthread_barrier_wait(&shared->barrier);
        if (code == CUDA_SUCCESS) cu.free(address);
        if (leader) {
            int granted = atomic_exchange(&shared->granted, 0);
            if (granted > 1) atomic_fetch_add(&shared->two, 1);
            if (granted < 1) atomic_fetch_add(&shared->none, 1);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 5) return 3;
    int processes = atoi(argv[1]), threads = atoi(argv[2]);
    rounds = atoi(argv[3]);
    size = parse_size(argv[4]);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attributes, processes * threads);
    for (int process = 0; process < processes; process++) {
        if (fork()) continue;
        cu = reach_driver("dlsym");
        if (cu.init(0) || cu.primary_retain(&context, 0)) _exit(3);
        pthread_t ids[64];
        for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, racer, process + i == 0 ? shared : NULL);
        for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
        _exit(0);
    }
    int failed = 0, status;
    while (wait(&status) > 0) failed += status != 0;
    printf("rounds with two %d, with none %d, other codes %d, failed processes %d\n", shared->two, shared->none,
           shared->other, failed);
    return 0;
}
