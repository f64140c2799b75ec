/*
 * unusual WHAT: holds 1 GiB, does to itself what daemons and sandboxes do, and goes on: asks for 1 GiB more, which is
 * there, and for 3 GiB, which are not. Then waits until its input ends.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "harness/driver.h"

static struct driver cu;
static CUcontext context;

static void *brief(void *unused) {
    (void)unused;
    CUdeviceptr address;
    cu.ctx_set(context);
    if (!cu.alloc(&address, 1 << 20)) cu.free(address);
    return NULL;
}

static int change(const char *what) {
    if (!strcmp(what, "nothing")) return 0;
    if (!strcmp(what, "close")) {
        for (int i = 3; i < 1024; i++) close(i);
        /* What is opened now has the numbers of what was closed. */
        for (int i = 0; i < 8; i++)
            if (open("/dev/null", O_RDWR) < 0) return 1;
        return 0;
    }
    if (!strcmp(what, "setuid")) return setgid(65534) || setuid(65534);
    if (!strcmp(what, "chdir")) return chdir("/");
    if (!strcmp(what, "chroot")) return chdir("/var/empty") && chdir("/mnt") ? 1 : chroot(".") || chdir("/");
    if (!strcmp(what, "threads")) {
        /* They come and go while this one allocates. */
        pthread_t threads[16];
        for (int round = 0; round < 50; round++) {
            for (int i = 0; i < 16; i++) pthread_create(&threads[i], NULL, brief, NULL);
            brief(NULL);
            for (int i = 0; i < 16; i++) pthread_join(threads[i], NULL);
        }
        return 0;
    }
    return 1;
}

int main(int argc, char **argv) {
    CUdeviceptr address;
    if (argc < 2) return 3;
    cu = reach_driver("dlsym");
    if (cu.init(0) || cu.primary_retain(&context, 0) || cu.ctx_set(context)) return 3;
    int first = cu.alloc(&address, 1ull << 30);
    if (change(argv[1])) return perror(argv[1]), 4;
    int more = cu.alloc(&address, 1ull << 30), most = cu.alloc(&address, 3ull << 30);
    size_t free = 0, total = 0;
    int info = cu.mem_info(&free, &total);
    printf("%d %d %d, info %d: %zu of %zu MiB free\nready\n", first, more, most, info, free >> 20, total >> 20);
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
