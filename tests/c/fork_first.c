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
    char byte = 'x';
    /* Each waits until the other has allocated. */
    if (write(child ? there[1] : back[1], &byte, 1) != 1 || read(child ? back[0] : there[0], &byte, 1) != 1) return 3;
    cu.mem_info(&free, &total);
    if (!child) {
        fprintf(stdout, "child %d used %zu\n", code, (total - free) >> 20);
        fflush(stdout);
        _exit(write(back[1], &byte, 1) != 1);
    }
    if (read(back[0], &byte, 1) != 1) return 3;
    waitpid(child, NULL, 0);
    printf("parent %d used %zu\n", code, (total - free) >> 20);
    return 0;
}
