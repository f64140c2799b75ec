/*
 * Asks cuGetProcAddress for names at versions and flags, and prints code, status and whose function came back: "hook"
 * for one outside the driver. Run bare and under the library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "cuda_abi.h"

static const char *whose(void *function) {
    Dl_info info;
    if (!function) return "nothing";
    if (!dladdr(function, &info)) return "nowhere";
    return strstr(info.dli_fname, "libcuda.so") ? "driver" : "hook";
}

int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*v1)(const char *, void **, int, unsigned long long) = dlsym(library, "cuGetProcAddress");
    CUresult (*v2)(const char *, void **, int, unsigned long long, int *) = dlsym(library, "cuGetProcAddress_v2");
    if (!v1 || !v2) return 3;
    static const struct {
        const char *name;
        int version;
        unsigned long long flags;
    } asked[] = {
        {"cuMemGetInfo", 2000, 0},      {"cuMemGetInfo", 3020, 0},     {"cuMemAlloc", 2000, 0},
        {"cuMemAlloc", 3020, 0},        {"cuCtxCreate", 3020, 0},      {"cuCtxCreate", 11040, 0},
        {"cuCtxCreate", 12050, 0},      {"cuCtxCreate", 13000, 0},     {"cuMemAllocAsync", 12000, 0},
        {"cuMemAllocAsync", 12000, 2},  {"cuMemAllocAsync", 11000, 0}, {"cuNoSuchFunction", 12000, 0},
        {"cuMemAlloc_v2", 12000, 0},    {"", 0, 0},                    {"cuGetProcAddress", 11030, 0},
        {"cuGetProcAddress", 12000, 0}, {"cuLaunchKernel", 12000, 0},  {"cuLaunchKernel", 12000, 2},
        {"cuDevicePrimaryCtxRelease", 7000, 0},                        {"cuDevicePrimaryCtxRelease", 12000, 0},
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        void *function = (void *)0x11, *old = (void *)0x11;
        int status = 77;
        CUresult code = v2(asked[i].name, &function, asked[i].version, asked[i].flags, &status);
        CUresult old_code = v1(asked[i].name, &old, asked[i].version, asked[i].flags);
        printf("%s@%d,%llu -> %d status %d, without status %d, given %d at %s\n", asked[i].name, asked[i].version,
               asked[i].flags, code, status, old_code, function != (void *)0x11 && function,
               function == (void *)0x11 ? "untouched" : whose(function));
    }
    void *function = NULL;
    printf("no status -> %d at %s\n", v2("cuMemAlloc", &function, 3020, 0, NULL), whose(function));
    int status = 77;
    printf("no output -> %d status %d\n", v2("cuMemAlloc", NULL, 3020, 0, &status), status);
    printf("no output, without status -> %d\n", v1("cuMemAlloc", NULL, 3020, 0));
    return 0;
}
