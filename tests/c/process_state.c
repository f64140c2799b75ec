/*
 * process_state with|without: what a process can tell of itself, having used the GPU or not: its threads, descriptors,
 * signal handlers, umask, locale and environment (the preload's own variables left out).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/driver.h"

static int entries(const char *path) {
    int count = 0;
    DIR *directory = opendir(path);
    while (directory && readdir(directory)) count++;
    if (directory) closedir(directory);
    return count;
}

int main(int argc, char **argv) {
    extern char **environ;
    if (argc != 2) return 3;
    if (!strcmp(argv[1], "with")) {
        struct driver cu = reach_driver("dlsym");
        CUcontext context;
        CUdeviceptr address;
        if (cu.init(0) || cu.primary_retain(&context, 0) || cu.ctx_set(context)) return 3;
        for (int i = 0; i < 100; i++)
            if (cu.alloc(&address, 1 << 20) || cu.free(address)) return 3;
    }
    printf("threads %d, descriptors %d\n", entries("/proc/self/task"), entries("/proc/self/fd"));
    for (int signal = 1; signal < 32; signal++) {
        struct sigaction action;
        if (!sigaction(signal, NULL, &action) && action.sa_handler != SIG_DFL)
            printf("signal %d is %s\n", signal, action.sa_handler == SIG_IGN ? "ignored" : "handled");
    }
    mode_t mask = umask(0);
    printf("umask %o, locale %s\n", mask, setlocale(LC_ALL, NULL));
    for (char **variable = environ; *variable; variable++)
        if (strncmp(*variable, "LD_PRELOAD=", 11) && strncmp(*variable, "CUQUOTA_", 8)) puts(*variable);
    return 0;
}
