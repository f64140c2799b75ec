/* cuInit and the devices that a process sees. */
#include "sim.h"

#include "identity.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Set by the first cuInit that finds the machine good, and never changed: ordinals are for a process's life. */
static unsigned visible[SIM_MAX_CARDS];
static _Atomic(int) visible_count;

int sim_device_count(void)
{
    return visible_count;
}

int sim_device_card(CUdevice device)
{
    return device >= 0 && device < visible_count ? (int)visible[device] : -1;
}

/* A tool that the user wants in every program that uses the GPU. */
static void inject_tool(void)
{
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *tool = path && *path ? dlopen(path, RTLD_NOW) : NULL;
    int (*initialise)(void) = tool ? (int (*)(void))dlsym(tool, "InitializeInjection") : NULL;
    if (initialise)
        initialise();
}

static pthread_once_t tool_once = PTHREAD_ONCE_INIT;
static __thread bool injecting;

SIM_API CUresult cuInit(unsigned flags)
{
    SIM_ENTER_ALWAYS(cuInit);
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_spec *spec = sim_spec();
    if (!spec)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    {
        SIM_LOCKED();
        if (!visible_count)
            visible_count = (int)sim_visible_cards(spec, visible);
    }
    CUresult started = visible_count ? sim_start() : CUDA_ERROR_NO_DEVICE;
    if (started == CUDA_SUCCESS && !injecting) {
        /* The tool calls cuInit as well. */
        injecting = true;
        pthread_once(&tool_once, inject_tool);
        injecting = false;
    }
    return started;
}

SIM_API CUresult cuDriverGetVersion(int *version)
{
    SIM_ENTER_ALWAYS(cuDriverGetVersion);
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_spec *spec = sim_spec();
    if (!spec)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    *version = spec->driver_version;
    return CUDA_SUCCESS;
}

/* The private tables are NVIDIA's own; this driver has none and says so. */
SIM_API CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    SIM_ENTER_ALWAYS(cuGetExportTable);
    return table && id ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuDeviceGetCount(int *count)
{
    SIM_ENTER(cuDeviceGetCount);
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = visible_count;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    SIM_ENTER(cuDeviceGet);
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device_card(ordinal) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

/* Declares `card`, or answers what a bad output or a bad ordinal gets. */
#define CARD_OF(device, output)                                                                                       \
    if (!(output))                                                                                                    \
        return CUDA_ERROR_INVALID_VALUE;                                                                              \
    int card = sim_device_card(device);                                                                               \
    if (card < 0)                                                                                                     \
    return CUDA_ERROR_INVALID_DEVICE

SIM_API CUresult cuDeviceGetName(char *name, int len, CUdevice device)
{
    SIM_ENTER(cuDeviceGetName);
    CARD_OF(device, name);
    if (len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_card_name(sim_spec(), (unsigned)card, name, (size_t)len);
    return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice device)
{
    CARD_OF(device, uuid);
    sim_card_uuid((unsigned)card, (unsigned char *)uuid->bytes);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    SIM_ENTER(cuDeviceGetUuid);
    return get_uuid(uuid, device);
}

/* The second version answers a MIG instance's UUID where there is one. */
SIM_API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    SIM_ENTER(cuDeviceGetUuid_v2);
    CARD_OF(device, uuid);
    sim_instance_uuid(sim_spec(), (unsigned)card, (unsigned char *)uuid->bytes);
    return CUDA_SUCCESS;
}

/* Locally unique ids belong to another operating system's driver model. */
SIM_API CUresult cuDeviceGetLuid(char *luid, unsigned *node_mask, CUdevice device)
{
    SIM_ENTER(cuDeviceGetLuid);
    CARD_OF(device, luid && node_mask);
    return CUDA_ERROR_NOT_SUPPORTED;
}

SIM_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    SIM_ENTER(cuDeviceTotalMem_v2);
    CARD_OF(device, bytes);
    *bytes = sim_spec()->card_bytes[card];
    return CUDA_SUCCESS;
}

/* The interface of before 3.2 has 32 bits for it. */
SIM_API CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device)
{
    SIM_ENTER(cuDeviceTotalMem);
    CARD_OF(device, bytes);
    uint64_t all = sim_spec()->card_bytes[card];
    *bytes = all > UINT_MAX ? UINT_MAX : (unsigned)all;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice device)
{
    SIM_ENTER(cuDeviceGetPCIBusId);
    CARD_OF(device, id);
    if (len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(id, (size_t)len, "0000:%02x:00.0", sim_card_bus((unsigned)card));
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
    SIM_ENTER(cuDeviceGetByPCIBusId);
    if (!device || !id)
        return CUDA_ERROR_INVALID_VALUE;
    int card = sim_card_at_bus_id(sim_spec(), id);
    if (card == -2)
        return CUDA_ERROR_INVALID_VALUE;
    for (int at = 0; at < visible_count; at++)
        if (card == (int)visible[at]) {
            *device = at;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_DEVICE;
}

SIM_API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    SIM_ENTER(cuDeviceCanAccessPeer);
    CARD_OF(device, can);
    int other = sim_device_card(peer);
    if (other < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *can = card != other;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice from, CUdevice to)
{
    /* By attribute: performance rank, access, native atomics, array access, only some atomics. */
    static const int values[] = {-1, 0, 1, 0, 1, 0};
    SIM_ENTER(cuDeviceGetP2PAttribute);
    CARD_OF(from, value);
    if (sim_device_card(to) < 0 || sim_device_card(to) == card)
        return CUDA_ERROR_INVALID_DEVICE;
    if (attribute < 1 || attribute >= (int)(sizeof values / sizeof values[0]))
        return CUDA_ERROR_INVALID_VALUE;
    *value = values[attribute];
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *width, CUarray_format format, unsigned channels,
                                                    CUdevice device)
{
    SIM_ENTER(cuDeviceGetTexture1DLinearMaxWidth);
    CARD_OF(device, width);
    if (!format || (channels != 1 && channels != 2 && channels != 4))
        return CUDA_ERROR_INVALID_VALUE;
    *width = (size_t)1 << 28;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetExecAffinitySupport(int *supported, int kind, CUdevice device)
{
    SIM_ENTER(cuDeviceGetExecAffinitySupport);
    CARD_OF(device, supported);
    if (kind != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *supported = 0;
    return CUDA_SUCCESS;
}
