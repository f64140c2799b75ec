/*
 * ends: holds memory and uses the driver to the very end and beyond: in handlers of atexit, in destructors of the program
 * and of its threads, and in a detached thread that does not notice that the process exits.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "harness/driver.h"

static struct driver cu;
static CUcontext context;
static CUdeviceptr held;
static pthread_key_t key;
static atomic_int running;

static void use(const char *when) {
    CUdeviceptr address = 7;
    size_t free = 7, total = 7;
    int alloc = cu.alloc(&address, 1 << 20), given = alloc ? -1 : (int)cu.free(address);
    int info = cu.mem_info(&free, &total), back = cu.free(held);
    printf("%s: alloc %d, free %d, info %d, free what was held %d\n", when, alloc, given, info, back);
    fflush(stdout);
    if (!back) cu.alloc(&held, 1 << 20);
}

static void at_exit(void) { use("atexit"); }
static void at_thread_exit(void *unused) { (void)unused, use("thread's end"); }
__attribute__((destructor)) static void at_unload(void) { use("destructor"); }

static void *brief(void *unused) {
    (void)unused;
    cu.ctx_set(context);
    pthread_setspecific(key, &key);
    return NULL;
}

static void *endless(void *unused) {
    (void)unused;
    cu.ctx_set(context);
    for (;;) {
        CUdeviceptr address;
        if (!cu.alloc(&address, 4096)) cu.free(address);
        running = 1;
    }
    return NULL;
}

int main(int argc, char **argv) {
    (void)argv;
    /* Before the driver is up, so called after it is down; and the other way round. */
    if (argc > 1) atexit(at_exit);
    cu = reach_driver("dlsym");
    if (cu.init(0) || cu.primary_retain(&context, 0) || cu.ctx_set(context) || cu.alloc(&held, 1 << 20)) return 3;
    if (argc < 2) atexit(at_exit);
    pthread_key_create(&key, at_thread_exit);
    pthread_t thread;
    pthread_create(&thread, NULL, brief, NULL);
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, endless, NULL);
    pthread_detach(thread);
    while (!running) usleep(1000);
    exit(5);
}
