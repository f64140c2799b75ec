/*
 * What NVML says of the first GPU: memory information in both versions with guard bytes around them, with wrong version
 * words, NULL outputs and bad handles, and the questions a framework asks after an allocation was refused.
 *
 * nvml [SIZE]: with a size, first holds that much through CUDA, and asks for 64 TiB more.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "harness/driver.h"
#include "harness/sizes.h"

typedef void *device_t;
struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

static int whole(const unsigned char *bytes, size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        if (bytes[i] != 0xAA) return 0;
    return 1;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        struct driver cu = reach_driver("dlsym");
        CUcontext context;
        CUdeviceptr address;
        if (cu.init(0) || cu.primary_retain(&context, 0) || cu.ctx_set(context)) return 3;
        printf("alloc %d\n", cu.alloc(&address, parse_size(argv[1])));
        printf("too much %d\n", cu.alloc(&address, 64ull << 40));
    }
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*init)(void) = library ? dlsym(library, "nvmlInit_v2") : NULL;
    int (*handle)(unsigned, device_t *) = library ? dlsym(library, "nvmlDeviceGetHandleByIndex_v2") : NULL;
    int (*by_pci)(const char *, device_t *) = library ? dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2") : NULL;
    int (*info)(device_t, void *) = library ? dlsym(library, "nvmlDeviceGetMemoryInfo") : NULL;
    int (*info_v2)(device_t, void *) = library ? dlsym(library, "nvmlDeviceGetMemoryInfo_v2") : NULL;
    int (*processes)(device_t, unsigned *, void *) =
        library ? dlsym(library, "nvmlDeviceGetComputeRunningProcesses") : NULL;
    if (!init || !handle || !by_pci || !info || !info_v2 || !processes) return 3;
    device_t device = NULL, same = NULL;
    int first = init(), second = handle(0, &device), third = by_pci("0000:01:00.0", &same);
    printf("init %d, handle %d, by PCI bus id %d\n", first, second, third);

    unsigned char buffer[24 + 32];
    memset(buffer, 0xAA, sizeof buffer);
    int code = info(same, buffer + 16);
    struct memory memory;
    memcpy(&memory, buffer + 16, sizeof memory);
    printf("v1 %d total=%s free=%s used=%s, sum %s, guards %s\n", code, print_size(memory.total), print_size(memory.free),
           print_size(memory.used), memory.total == memory.free + memory.used ? "right" : "wrong",
           whole(buffer, 0, 16) && whole(buffer, 40, sizeof buffer) ? "whole" : "hit");

    static const unsigned versions[] = {0x02000028, 2, 0, 0x03000028};
    for (int i = 0; i < 4; i++) {
        unsigned char wide[40 + 32];
        struct memory_v2 v2;
        memset(wide, 0xAA, sizeof wide);
        memcpy(wide + 16, &versions[i], 4);
        code = info_v2(device, wide + 16);
        memcpy(&v2, wide + 16, sizeof v2);
        if (code) printf("v2 version %#x: %d, buffer %s\n", versions[i], code, whole(wide, 20, 56) ? "untouched" : "touched");
        else
            printf("v2 %d total=%s free=%s, sum %s, guards %s\n", code, print_size(v2.total), print_size(v2.free),
                   v2.total == v2.free + v2.used + v2.reserved ? "right" : "wrong",
                   whole(wide, 0, 16) && whole(wide, 56, sizeof wide) ? "whole" : "hit");
    }
    printf("NULL output %d and %d\n", info(device, NULL), info_v2(device, NULL));
    memset(buffer, 0xAA, sizeof buffer);
    code = info((device_t)0x10, buffer + 16);
    printf("bad handle %d, buffer %s\n", code, whole(buffer, 0, sizeof buffer) ? "untouched" : "touched");
    unsigned count = 0;
    code = processes(device, &count, NULL);
    printf("running processes %d\n", code);
    return 0;
}
