/* Forks before any call of the driver; then both sides allocate 1 GiB, and each sees both. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/driver.h"

int main(void) {
    struct driver cu = reach_driver("dlsym");
    int there[2], back[2];
    if (pipe(there) || pipe(back)) return 3;
    pid_t child = fork();
    CUcontext context;
    CUdeviceptr address;
    size_t free, total;
    if (cu.init(0) || cu.primary_retain(&context, 0) || cu.ctx_set(context)) return 3;
    CUresult code = cu.alloc(&address, 1ull << 30);
    /* Contexts made at the same moment are told apart by those who look later: each looks, then both look again. */
    for (int i = 0; i < 2; i++) {
        char byte = 'x';
        if (write(child ? there[1] : back[1], &byte, 1) != 1 || read(child ? back[0] : there[0], &byte, 1) != 1) return 3;
        cu.mem_info(&free, &total);
    }
    char byte = 'x';
    if (!child) {
        printf("child %d used %zu\n", code, (total - free) >> 20);
        fflush(stdout);
        _exit(write(back[1], &byte, 1) != 1);
    }
    if (read(back[0], &byte, 1) != 1) return 3;
    waitpid(child, NULL, 0);
    printf("parent %d used %zu\n", code, (total - free) >> 20);
    return 0;
}
