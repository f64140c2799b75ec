/*
 * What each GPU's total is, by CUDA's ordinals and by NVML's indices.
 *
 * visible [NAME=VALUE | NAME= | nvml | init]...: in their order, sets variables (or unsets them), asks NVML, starts CUDA;
 * at the end CUDA is asked, which starts it if nothing did.
 */
#define _GNU_SOURCE
#include "open_driver.h"

#include <string.h>

struct memory {
    unsigned long long total, free, used;
};

static void by_nvml(void)
{
    void *library = open_library("libnvidia-ml.so.1"), *device;
    int (*init)(void) = function_of(library, "nvmlInit_v2");
    int (*count)(unsigned *) = function_of(library, "nvmlDeviceGetCount_v2");
    int (*handle)(unsigned, void **) = function_of(library, "nvmlDeviceGetHandleByIndex_v2");
    int (*info)(void *, struct memory *) = function_of(library, "nvmlDeviceGetMemoryInfo");
    unsigned devices = 0;
    if (init() || count(&devices))
        exit(71);
    printf("nvml");
    for (unsigned i = 0; i < devices; i++) {
        struct memory memory;
        int code = handle(i, &device);
        if (!code)
            code = info(device, &memory);
        if (code)
            printf(" error %d", code);
        else
            printf(" %llu", memory.total >> 20);
    }
    printf("\n");
}

static void start(void *library)
{
    CUresult (*init)(unsigned) = function_of(library, "cuInit");
    CUresult code = init(0);
    if (code) {
        printf("init %d\n", code);
        exit(0);
    }
}

int main(int argc, char **argv)
{
    void *library = open_library("libcuda.so.1");
    CUresult (*count)(int *) = function_of(library, "cuDeviceGetCount");
    CUresult (*total)(size_t *, CUdevice) = function_of(library, "cuDeviceTotalMem_v2");
    int started = 0, devices = 0;
    for (int i = 1; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!strcmp(argv[i], "nvml")) {
            by_nvml();
        } else if (!strcmp(argv[i], "init")) {
            start(library);
            started = 1;
        } else if (value) {
            *value++ = 0;
            if (*value)
                setenv(argv[i], value, 1);
            else
                unsetenv(argv[i]);
        } else {
            fprintf(stderr, "visible: what is %s?\n", argv[i]);
            return 72;
        }
    }
    if (!started)
        start(library);
    if (count(&devices))
        return 73;
    printf("cuda");
    for (int device = 0; device < devices; device++) {
        size_t bytes = 0;
        CUresult code = total(&bytes, device);
        if (code)
            printf(" error %d", code);
        else
            printf(" %zu", bytes >> 20);
    }
    printf("\n");
    return 0;
}
