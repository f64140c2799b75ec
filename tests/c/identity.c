/* Prints who the cards are, to CUDA first and then to NVML, a line each; then looks CUDA's devices up by what it
 * printed. */
#include "open_driver.h"

#include <string.h>

static void print_uuid(const unsigned char *u)
{
    printf("GPU-");
    for (int i = 0; i < 16; i++)
        printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
}

static void print_cuda(void)
{
    void *cuda = open_library("libcuda.so.1");
    int (*init)(unsigned) = function_of(cuda, "cuInit");
    int (*count)(int *) = function_of(cuda, "cuDeviceGetCount");
    int (*name)(char *, int, int) = function_of(cuda, "cuDeviceGetName");
    int (*uuid)(unsigned char *, int) = function_of(cuda, "cuDeviceGetUuid_v2");
    int (*bus)(char *, int, int) = function_of(cuda, "cuDeviceGetPCIBusId");
    int (*by_bus)(int *, const char *) = function_of(cuda, "cuDeviceGetByPCIBusId");
    int (*total)(size_t *, int) = function_of(cuda, "cuDeviceTotalMem_v2");
    int n = -1, result = init(0);
    printf("cuInit %d\n", result);
    if (result)
        return;
    printf("count %d %d\n", count(&n), n);
    for (int device = 0; device < n; device++) {
        char text[64], id[32];
        unsigned char bytes[16];
        size_t all = 0;
        int again = -1;
        result = name(text, sizeof text, device) | uuid(bytes, device) | bus(id, sizeof id, device) | total(&all, device);
        printf("cuda %d %d ", device, result);
        print_uuid(bytes);
        printf(" %s %zu \"%s\"", id, all, text);
        result = by_bus(&again, id);
        printf(" by bus %d %d\n", result, again);
    }
}

static void print_nvml(void)
{
    void *nvml = open_library("libnvidia-ml.so.1");
    int (*init)(void) = function_of(nvml, "nvmlInit_v2");
    int (*count)(unsigned *) = function_of(nvml, "nvmlDeviceGetCount_v2");
    int (*by_index)(unsigned, void **) = function_of(nvml, "nvmlDeviceGetHandleByIndex_v2");
    int (*by_uuid)(const char *, void **) = function_of(nvml, "nvmlDeviceGetHandleByUUID");
    int (*name)(void *, char *, unsigned) = function_of(nvml, "nvmlDeviceGetName");
    int (*uuid)(void *, char *, unsigned) = function_of(nvml, "nvmlDeviceGetUUID");
    int (*memory)(void *, unsigned long long *) = function_of(nvml, "nvmlDeviceGetMemoryInfo");
    unsigned n = 0;
    printf("count before nvmlInit %d\n", count(&n));
    printf("nvmlInit %d\n", init());
    printf("count %d %u\n", count(&n), n);
    for (unsigned index = 0; index < n; index++) {
        void *device = NULL, *same = NULL;
        char text[64], id[64];
        unsigned long long all[3] = {0};
        int result = by_index(index, &device);
        result |= name(device, text, sizeof text) | uuid(device, id, sizeof id) | by_uuid(id, &same);
        int info = memory(device, all);
        printf("nvml %u %d %s %llu \"%s\" memory %d %s\n", index, result, id, all[0], text, info,
               same == device ? "found again" : "lost");
    }
}

int main(void)
{
    print_cuda();
    print_nvml();
    return 0;
}
