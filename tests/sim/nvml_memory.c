/* libnvidia-ml: a card's memory and who holds it, read from the card's own files. */
#include "nvml.h"

#include <stdlib.h>

struct memory_v1 {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
_Static_assert(sizeof(struct memory_v1) == 24 && sizeof(struct memory_v2) == 40, "layouts of the memory information");

static nvmlReturn memory(nvmlDevice device, struct memory_v1 *out)
{
    if (sim_spec()->nvml_memory_code)
        return (nvmlReturn)sim_spec()->nvml_memory_code;
    struct sim_card *card = sim_card(device->card);
    if (!card)
        return NVML_ERROR_UNKNOWN;
    out->total = sim_card_total(card);
    out->free = sim_card_free(card);
    out->used = out->total - out->free;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn nvmlDeviceGetMemoryInfo(nvmlDevice device, struct memory_v1 *out)
{
    NVML_ENTER_DEVICE(device, out);
    struct memory_v1 now;
    nvmlReturn result = memory(device, &now);
    if (result == NVML_SUCCESS)
        *out = now;
    return result;
}

SIM_API nvmlReturn nvmlDeviceGetMemoryInfo_v2(nvmlDevice device, struct memory_v2 *out)
{
    NVML_ENTER_DEVICE(device, out);
    if (out->version != NVML_VERSION_OF(sizeof *out, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    struct memory_v1 now;
    nvmlReturn result = memory(device, &now);
    if (result == NVML_SUCCESS)
        *out = (struct memory_v2){out->version, now.total, 0, now.free, now.used};
    return result;
}

SIM_API nvmlReturn nvmlDeviceGetBAR1MemoryInfo(nvmlDevice device, struct memory_v1 *out)
{
    NVML_ENTER_DEVICE(device, out);
    unsigned long long total = 256ull << 20, used = 2ull << 20;
    *out = (struct memory_v1){total, total - used, used};
    return NVML_SUCCESS;
}

/* ---- processes --------------------------------------------------------------------------------- */

struct process_v1 {
    unsigned pid;
    unsigned long long bytes;
};
struct process_v2 {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};
_Static_assert(sizeof(struct process_v1) == 16 && sizeof(struct process_v2) == 24, "layouts of a process");

/* `count` is room for entries when called and their number afterwards; too little room says how much it takes. */
static nvmlReturn processes(nvmlDevice device, unsigned *count, struct process_v1 *v1, struct process_v2 *v2)
{
    enum { MOST = 1024, NO_INSTANCE = -1 };
    NVML_ENTER_DEVICE(device, count && (!*count || v1 || v2));
    struct sim_card *card = sim_card(device->card);
    struct sim_card_client *clients = card ? malloc(MOST * sizeof *clients) : NULL;
    if (!clients)
        return NVML_ERROR_UNKNOWN;
    size_t found = sim_card_clients(card, clients, MOST);
    found = found < MOST ? found : MOST;
    nvmlReturn result = found > *count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    for (size_t at = 0; result == NVML_SUCCESS && at < found; at++) {
        unsigned pid = (unsigned)clients[at].pid;
        if (v1)
            v1[at] = (struct process_v1){pid, clients[at].bytes};
        else
            v2[at] = (struct process_v2){pid, clients[at].bytes, (unsigned)NO_INSTANCE, (unsigned)NO_INSTANCE};
    }
    *count = (unsigned)found;
    free(clients);
    return result;
}

static nvmlReturn none(nvmlDevice device, unsigned *count)
{
    NVML_ENTER_DEVICE(device, count);
    *count = 0;
    return NVML_SUCCESS;
}

/* Every client computes; nobody draws, and there is no server that shares the card among processes. */
SIM_API nvmlReturn nvmlDeviceGetComputeRunningProcesses(nvmlDevice device, unsigned *count, struct process_v1 *out)
{
    return processes(device, count, out, NULL);
}

SIM_API nvmlReturn nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice device, unsigned *count, struct process_v2 *out)
{
    return processes(device, count, NULL, out);
}

SIM_API nvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice device, unsigned *count, struct process_v2 *out)
{
    return processes(device, count, NULL, out);
}

#define NO_PROCESSES(name)                                                                                            \
    SIM_API nvmlReturn name(nvmlDevice device, unsigned *count, void *out);                                           \
    SIM_API nvmlReturn name(nvmlDevice device, unsigned *count, void *out)                                            \
    {                                                                                                                 \
        (void)out;                                                                                                    \
        return none(device, count);                                                                                   \
    }
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)
