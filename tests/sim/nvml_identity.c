/* libnvidia-ml: who a device is. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

SIM_API nvmlReturn nvmlDeviceGetName(nvmlDevice device, char *name, unsigned len)
{
    char text[64];
    NVML_ENTER_DEVICE(device, name);
    sim_card_name(sim_spec(), device->card, text, sizeof text);
    return nvml_text(text, name, len);
}

SIM_API nvmlReturn nvmlDeviceGetUUID(nvmlDevice device, char *uuid, unsigned len)
{
    char text[SIM_UUID_TEXT];
    NVML_ENTER_DEVICE(device, uuid);
    sim_card_uuid_text(device->card, text);
    return nvml_text(text, uuid, len);
}

SIM_API nvmlReturn nvmlDeviceGetIndex(nvmlDevice device, unsigned *index)
{
    NVML_ENTER_DEVICE(device, index);
    *index = device->card;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn nvmlDeviceGetMinorNumber(nvmlDevice device, unsigned *minor)
{
    NVML_ENTER_DEVICE(device, minor);
    *minor = device->card;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn nvmlDeviceGetCudaComputeCapability(nvmlDevice device, int *major, int *minor)
{
    NVML_ENTER_DEVICE(device, major && minor);
    *major = 8;
    *minor = 0;
    return NVML_SUCCESS;
}

/* The layout of the third version; the earlier ones end after a field in its middle. */
struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id;
    unsigned pci_subsystem_id; /* from the second version on */
    char bus_id[32];           /* from the third on */
};
_Static_assert(sizeof(struct pci_info) == 68, "layout of the PCI information");

static nvmlReturn pci_info(nvmlDevice device, void *out, size_t len)
{
    NVML_ENTER_DEVICE(device, out);
    struct pci_info info = {.bus = sim_card_bus(device->card),
                            .pci_device_id = SIM_PCI_DEVICE << 16 | SIM_PCI_VENDOR,
                            .pci_subsystem_id = SIM_PCI_DEVICE << 16 | SIM_PCI_VENDOR};
    snprintf(info.bus_id_legacy, sizeof info.bus_id_legacy, "0000:%02X:00.0", info.bus);
    snprintf(info.bus_id, sizeof info.bus_id, "00000000:%02X:00.0", info.bus);
    memcpy(out, &info, len);
    return NVML_SUCCESS;
}

SIM_API nvmlReturn nvmlDeviceGetPciInfo(nvmlDevice device, void *out)
{
    return pci_info(device, out, offsetof(struct pci_info, pci_subsystem_id));
}

SIM_API nvmlReturn nvmlDeviceGetPciInfo_v2(nvmlDevice device, void *out)
{
    return pci_info(device, out, offsetof(struct pci_info, bus_id));
}

SIM_API nvmlReturn nvmlDeviceGetPciInfo_v3(nvmlDevice device, void *out)
{
    return pci_info(device, out, sizeof(struct pci_info));
}

SIM_API nvmlReturn nvmlDeviceIsMigDeviceHandle(nvmlDevice device, unsigned *is)
{
    NVML_ENTER_DEVICE(device, is);
    *is = 0;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn nvmlDeviceGetVbiosVersion(nvmlDevice device, char *version, unsigned len)
{
    NVML_ENTER_DEVICE(device, version);
    return nvml_text("92.00.00.00.01", version, len);
}
