/*
 * cycles: allocates and frees a million times with a thousand allocations alive, and prints by how many KiB the process
 * has grown since the first ten thousand.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/driver.h"

static long resident(void) {
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "VmRSS: %ld", &kib);
    if (status) fclose(status);
    return kib;
}

int main(void) {
    static CUdeviceptr live[1000];
    CUcontext context;
    struct driver cu = reach_driver("dlsym");
    if (cu.init(0) || cu.primary_retain(&context, 0) || cu.ctx_set(context)) return 3;
    long before = 0;
    int refused = 0;
    for (int i = 0; i < 1000000; i++) {
        CUdeviceptr *one = &live[(unsigned)i * 7919u % 1000];
        if (*one) cu.free(*one);
        *one = 0;
        refused += cu.alloc(one, 512 + (size_t)(i % 13) * 4096) != CUDA_SUCCESS;
        if (i == 10000) before = resident();
    }
    printf("grown %ld, refused %d\n", resident() - before, refused);
    return 0;
}
