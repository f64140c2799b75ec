/*
 * kills ROUNDS SIZE [grandchild]: a child allocates and frees in a loop and is killed at a random moment; then this
 * process must get SIZE within a second. With "grandchild" the child has forked one that lives on. Prints how many
 * rounds took too long, and the longest wait in milliseconds where that was more than a second.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/driver.h"
#include "harness/sizes.h"

static struct driver cu;

static void connect_to_driver(void) {
    CUcontext context;
    cu = reach_driver("dlsym");
    if (cu.init(0) || cu.primary_retain(&context, 0) || cu.ctx_set(context)) exit(3);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static int hold(size_t size, int fork_one) {
    connect_to_driver();
    if (fork_one) {
        pid_t grandchild = fork();
        if (!grandchild) {
            close(1);
            sleep(2);
            _exit(0);
        }
    }
    if (write(1, "r", 1) != 1) return 3;
    close(1);
    for (;;) {
        CUdeviceptr address;
        if (!cu.alloc(&address, size)) cu.free(address);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 3;
    int rounds = atoi(argv[1]), fork_one = argc > 3 && !strcmp(argv[3], "grandchild");
    size_t size = parse_size(argv[2]);
    if (argc > 3 && !strcmp(argv[3], "hold")) return hold(size, 0);
    if (argc > 4 && !strcmp(argv[4], "hold")) return hold(size, 1);
    connect_to_driver();
    srand(4711);
    int late = 0;
    for (int i = 0; i < rounds; i++) {
        int ready[2];
        if (pipe(ready)) return 3;
        pid_t child = fork();
        if (!child) {
            dup2(ready[1], 1);
            close(ready[0]);
            close(ready[1]);
            execl("/proc/self/exe", argv[0], "0", argv[2], fork_one ? "grandchild" : "hold", "hold", NULL);
            _exit(3);
        }
        close(ready[1]);
        char byte;
        if (read(ready[0], &byte, 1) != 1) return 3;
        close(ready[0]);
        usleep(rand() % 20000);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        double killed = now();
        CUdeviceptr address;
        CUresult code;
        while ((code = cu.alloc(&address, size)) == CUDA_ERROR_OUT_OF_MEMORY && now() - killed < 5) usleep(1000);
        if (code) return fprintf(stderr, "round %d: %d\n", i, code), 4;
        if (now() - killed > 1) late++, printf("round %d took %.0f ms\n", i, (now() - killed) * 1e3);
        cu.free(address);
        while (waitpid(-1, NULL, WNOHANG) > 0) {}
    }
    printf("late %d\n", late);
    return 0;
}
