/*
 * storm THREADS ROUNDS: threads of one process allocate and free 1 MiB as fast as they can; then usage must be what it
 * was. Prints the difference in bytes and how many requests were refused.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "harness/driver.h"

static struct driver cu;
static CUcontext context;
static int rounds;
static atomic_int refused;

static void *worker(void *unused) {
    (void)unused;
    cu.ctx_set(context);
    for (int i = 0; i < rounds; i++) {
        CUdeviceptr address;
        if (cu.alloc(&address, 1 << 20) || cu.free(address)) atomic_fetch_add(&refused, 1);
    }
    return NULL;
}

static long long used(void) {
    size_t free = 0, total = 0;
    cu.mem_info(&free, &total);
    return (long long)(total - free);
}

int main(int argc, char **argv) {
    if (argc != 3) return 3;
    int threads = atoi(argv[1]);
    rounds = atoi(argv[2]);
    cu = reach_driver("dlsym");
    if (cu.init(0) || cu.primary_retain(&context, 0) || cu.ctx_set(context)) return 3;
    long long before = used();
    pthread_t ids[64];
    for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, worker, NULL);
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    printf("difference %lld, refused %d\n", used() - before, refused);
    return 0;
}
