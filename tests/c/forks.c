/*
 * forks CHILDREN: a process holds 2 GiB while eight threads allocate, and forks children that end in every way there
 * is, each after asking the driver something. Prints how many children did not get the driver's own error at once, and
 * by how many bytes the parent's usage changed.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/driver.h"

static struct driver cu;
static CUcontext context;
static atomic_int stop;

static void *worker(void *unused) {
    (void)unused;
    cu.ctx_set(context);
    while (!stop) {
        CUdeviceptr address;
        if (!cu.alloc(&address, 4096)) cu.free(address);
    }
    return NULL;
}

static long long used(void) {
    size_t free = 0, total = 0;
    cu.mem_info(&free, &total);
    return (long long)(total - free);
}

int main(int argc, char **argv) {
    if (argc != 2) return 3;
    CUdeviceptr address;
    cu = reach_driver("dlsym");
    if (cu.init(0) || cu.primary_retain(&context, 0) || cu.ctx_set(context) || cu.alloc(&address, 2ull << 30)) return 3;
    long long before = used();
    pthread_t ids[8];
    for (int i = 0; i < 8; i++) pthread_create(&ids[i], NULL, worker, NULL);
    int wrong = 0;
    for (int i = 0; i < atoi(argv[1]); i++) {
        pid_t child;
        if (i % 6 == 4) {
            child = vfork();
            if (!child) {
                execl("/bin/true", "true", NULL);
                _exit(9);
            }
        } else if (i % 6 == 5) {
            char *arguments[] = {"true", NULL}, *environment[] = {NULL};
            if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environment)) return 3;
        } else if (!(child = fork())) {
            size_t free = 77, total = 77;
            alarm(1);
            CUresult code = cu.mem_info(&free, &total);
            if (code != CUDA_ERROR_NOT_INITIALIZED || free != 77) _exit(7);
            if (cu.alloc(&address, 1 << 20) != CUDA_ERROR_NOT_INITIALIZED) _exit(7);
            if (i % 6 == 0) exit(0);
            if (i % 6 == 1) _exit(0);
            if (i % 6 == 2) kill(getpid(), SIGKILL);
            execl("/bin/true", "true", NULL);
            _exit(9);
        }
        int status;
        waitpid(child, &status, 0);
        int killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (i % 6 == 2 ? !killed : status != 0) wrong++;
    }
    stop = 1;
    for (int i = 0; i < 8; i++) pthread_join(ids[i], NULL);
    printf("wrong %d, changed %lld\n", wrong, used() - before);
    return 0;
}
