/* replaced: holds 3 GiB and executes itself anew, which takes 3 GiB; and a server does so in children, one by one. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/driver.h"

static int take(void) {
    CUcontext context;
    CUdeviceptr address;
    struct driver cu = reach_driver("dlsym");
    if (cu.init(0) || cu.primary_retain(&context, 0) || cu.ctx_set(context)) return -1;
    return cu.alloc(&address, 3ull << 30);
}

int main(int argc, char **argv) {
    if (argc > 2) return printf("anew %d\n", take()), 0;
    if (argc > 1) {
        int code = take();
        if (printf("first %d\n", code), fflush(stdout), code) return 3;
        execl("/proc/self/exe", argv[0], argv[1], "anew", NULL);
        return 4;
    }
    int refused = 0;
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (!child) _exit(take());
        int status = 0;
        waitpid(child, &status, 0);
        refused += status != 0;
    }
    printf("refused %d\n", refused);
    return 0;
}
