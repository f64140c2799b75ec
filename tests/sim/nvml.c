/* libnvidia-ml: the library's life, the machine, and how a device is found. Devices count in the order of the PCI
 * bus; CUDA_VISIBLE_DEVICES has no say here. */
#include "nvml.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users; /* nvmlInit less nvmlShutdown */
static struct nvml_device devices[SIM_MAX_CARDS];

nvmlReturn nvml_ready(void)
{
    pthread_mutex_lock(&lock);
    bool ready = users;
    pthread_mutex_unlock(&lock);
    return ready ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn nvml_device(nvmlDevice device)
{
    NVML_ENTER();
    for (unsigned card = 0; card < sim_spec()->cards; card++)
        if (device == &devices[card])
            return NVML_SUCCESS;
    return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn nvml_text(const char *text, char *out, unsigned len)
{
    size_t need = strlen(text) + 1;
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (len < need)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(out, text, need);
    return NVML_SUCCESS;
}

static nvmlReturn init(void)
{
    if (!sim_spec())
        return NVML_ERROR_DRIVER_NOT_LOADED;
    pthread_mutex_lock(&lock);
    for (unsigned card = 0; card < SIM_MAX_CARDS; card++)
        devices[card].card = card;
    users++;
    pthread_mutex_unlock(&lock);
    return NVML_SUCCESS;
}

SIM_API nvmlReturn nvmlInit(void)
{
    return init();
}

SIM_API nvmlReturn nvmlInit_v2(void)
{
    return init();
}

SIM_API nvmlReturn nvmlInitWithFlags(unsigned flags)
{
    enum { NO_GPUS = 1, NO_ATTACH = 2 };
    return flags & ~(unsigned)(NO_GPUS | NO_ATTACH) ? NVML_ERROR_INVALID_ARGUMENT : init();
}

SIM_API nvmlReturn nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    nvmlReturn result = users ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    users -= users != 0;
    pthread_mutex_unlock(&lock);
    return result;
}

/* What every other exported name answers. */
int sim_nvml_stub(const char *name);
int sim_nvml_stub(const char *name)
{
    (void)name;
    NVML_ENTER();
    return NVML_ERROR_NOT_SUPPORTED;
}

/* ---- the machine --------------------------------------------------------------------------- */

/* A driver release that came with the spec's CUDA version. */
static const char *release(void)
{
    int version = sim_spec()->driver_version;
    return version >= 13000 ? "580.65.06" : version >= 12000 ? "550.54.14" : "470.82.01";
}

SIM_API nvmlReturn nvmlSystemGetDriverVersion(char *version, unsigned len)
{
    NVML_ENTER();
    return nvml_text(release(), version, len);
}

SIM_API nvmlReturn nvmlSystemGetNVMLVersion(char *version, unsigned len)
{
    char text[32];
    NVML_ENTER();
    snprintf(text, sizeof text, "%d.%s", sim_spec()->driver_version / 1000, release());
    return nvml_text(text, version, len);
}

static nvmlReturn cuda_version(int *version)
{
    NVML_ENTER();
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = sim_spec()->driver_version;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn nvmlSystemGetCudaDriverVersion(int *version)
{
    return cuda_version(version);
}

SIM_API nvmlReturn nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return cuda_version(version);
}

SIM_API nvmlReturn nvmlSystemGetProcessName(unsigned pid, char *name, unsigned len)
{
    char path[32], text[1024];
    NVML_ENTER();
    if (!name || !len)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return NVML_ERROR_NOT_FOUND;
    size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = 0; /* the program's name ends at the first zero, its arguments follow */
    return nvml_text(text, name, len);
}

/* ---- finding a device ------------------------------------------------------------------------ */

static nvmlReturn count(unsigned *out)
{
    NVML_ENTER();
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = sim_spec()->cards;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn nvmlDeviceGetCount(unsigned *out)
{
    return count(out);
}

SIM_API nvmlReturn nvmlDeviceGetCount_v2(unsigned *out)
{
    return count(out);
}

static nvmlReturn by_index(unsigned index, nvmlDevice *device)
{
    NVML_ENTER();
    if (!device || index >= sim_spec()->cards)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &devices[index];
    return NVML_SUCCESS;
}

SIM_API nvmlReturn nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice *device)
{
    return by_index(index, device);
}

SIM_API nvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice *device)
{
    return by_index(index, device);
}

SIM_API nvmlReturn nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice *device)
{
    char text[SIM_UUID_TEXT];
    NVML_ENTER();
    if (!uuid || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned card = 0; card < sim_spec()->cards; card++) {
        sim_card_uuid_text(card, text);
        if (!strcmp(uuid, text))
            return by_index(card, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn by_bus_id(const char *id, nvmlDevice *device)
{
    NVML_ENTER();
    int card = id ? sim_card_at_bus_id(sim_spec(), id) : -2;
    if (card == -2 || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    return card < 0 ? NVML_ERROR_NOT_FOUND : by_index((unsigned)card, device);
}

SIM_API nvmlReturn nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice *device)
{
    return by_bus_id(id, device);
}

SIM_API nvmlReturn nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice *device)
{
    return by_bus_id(id, device);
}
