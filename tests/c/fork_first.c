/* fork_first MIB: forks before any call of the driver; then both sides allocate 1 GiB, and each sees both: MIB in use. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/driver.h"

int main(int argc, char **argv) {
    if (argc != 2) return 3;
    size_t expected = strtoull(argv[1], NULL, 0);
    struct driver cu = reach_driver("dlsym");
    int there[2], back[2];
    if (pipe(there) || pipe(back)) return 3;
    pid_t child = fork();
    CUcontext context;
    CUdeviceptr address;
    size_t free, total;
    if (cu.init(0) || cu.primary_retain(&context, 0) || cu.ctx_set(context)) return 3;
    CUresult code = cu.alloc(&address, 1ull << 30);
    /* Contexts made at the same moment are told apart within a second: both look until they see what they expect. */
    for (int i = 0; i < 100; i++) {
        cu.mem_info(&free, &total);
        if ((total - free) >> 20 == expected) break;
        usleep(20000);
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
