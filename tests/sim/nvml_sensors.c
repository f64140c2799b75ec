/* libnvidia-ml: what the board's sensors and settings say of a card on which nothing ever runs. */
#include "nvml.h"

/* An entry point that writes one fixed value. */
#define VALUE(name, type, value)                                                                                      \
    SIM_API nvmlReturn name(nvmlDevice device, type *out);                                                            \
    SIM_API nvmlReturn name(nvmlDevice device, type *out)                                                             \
    {                                                                                                                 \
        NVML_ENTER_DEVICE(device, out);                                                                               \
        *out = (value);                                                                                               \
        return NVML_SUCCESS;                                                                                          \
    }

enum { BRAND_NVIDIA = 14, ARCHITECTURE_AMPERE = 7, BUS_PCIE = 2, POWER_SOURCE_AC = 0, REASON_IDLE = 1 };
enum { IDLE_MILLIWATT = 55000, LIMIT_MILLIWATT = 300000, LOWEST_MILLIWATT = 100000 };

VALUE(nvmlDeviceGetBrand, unsigned, BRAND_NVIDIA)
VALUE(nvmlDeviceGetArchitecture, unsigned, ARCHITECTURE_AMPERE)
VALUE(nvmlDeviceGetBusType, unsigned, BUS_PCIE)
VALUE(nvmlDeviceGetPersistenceMode, unsigned, 1)
VALUE(nvmlDeviceGetComputeMode, unsigned, 0)
VALUE(nvmlDeviceGetDisplayMode, unsigned, 0)
VALUE(nvmlDeviceGetDisplayActive, unsigned, 0)
VALUE(nvmlDeviceGetMultiGpuBoard, unsigned, 0)
VALUE(nvmlDeviceGetBoardId, unsigned, sim_card_bus(device->card) << 8)
VALUE(nvmlDeviceGetNumGpuCores, unsigned, 6912)
VALUE(nvmlDeviceGetMemoryBusWidth, unsigned, 5120)
VALUE(nvmlDeviceGetPerformanceState, unsigned, 0)
VALUE(nvmlDeviceGetPowerState, unsigned, 0)
VALUE(nvmlDeviceGetPowerUsage, unsigned, IDLE_MILLIWATT)
VALUE(nvmlDeviceGetEnforcedPowerLimit, unsigned, LIMIT_MILLIWATT)
VALUE(nvmlDeviceGetPowerManagementLimit, unsigned, LIMIT_MILLIWATT)
VALUE(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, LIMIT_MILLIWATT)
VALUE(nvmlDeviceGetPowerManagementMode, unsigned, 1)
VALUE(nvmlDeviceGetPowerSource, unsigned, POWER_SOURCE_AC)
VALUE(nvmlDeviceGetFanSpeed, unsigned, 30)
VALUE(nvmlDeviceGetNumFans, unsigned, 1)
VALUE(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, 4)
VALUE(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, 4)
VALUE(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, 4)
VALUE(nvmlDeviceGetCurrPcieLinkWidth, unsigned, 16)
VALUE(nvmlDeviceGetMaxPcieLinkWidth, unsigned, 16)
VALUE(nvmlDeviceGetPcieReplayCounter, unsigned, 0)
VALUE(nvmlDeviceGetMaxMigDeviceCount, unsigned, 0)
VALUE(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, REASON_IDLE)
VALUE(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, REASON_IDLE)
VALUE(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, REASON_IDLE)
VALUE(nvmlDeviceGetSupportedClocksThrottleReasons, unsigned long long, REASON_IDLE)

SIM_API nvmlReturn nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice device, unsigned *low, unsigned *high)
{
    NVML_ENTER_DEVICE(device, low && high);
    *low = LOWEST_MILLIWATT;
    *high = LIMIT_MILLIWATT;
    return NVML_SUCCESS;
}

struct utilization {
    unsigned gpu, memory;
};

SIM_API nvmlReturn nvmlDeviceGetUtilizationRates(nvmlDevice device, struct utilization *out)
{
    NVML_ENTER_DEVICE(device, out);
    *out = (struct utilization){0, 0};
    return NVML_SUCCESS;
}

static nvmlReturn idle_engine(nvmlDevice device, unsigned *utilization, unsigned *period_us)
{
    NVML_ENTER_DEVICE(device, utilization && period_us);
    *utilization = 0;
    *period_us = 167000;
    return NVML_SUCCESS;
}

#define ENGINE(name)                                                                                                  \
    SIM_API nvmlReturn name(nvmlDevice device, unsigned *utilization, unsigned *period_us);                           \
    SIM_API nvmlReturn name(nvmlDevice device, unsigned *utilization, unsigned *period_us)                            \
    {                                                                                                                 \
        return idle_engine(device, utilization, period_us);                                                           \
    }
ENGINE(nvmlDeviceGetEncoderUtilization)
ENGINE(nvmlDeviceGetDecoderUtilization)
ENGINE(nvmlDeviceGetJpgUtilization)
ENGINE(nvmlDeviceGetOfaUtilization)

/* ---- temperature --------------------------------------------------------------------------------- */

enum { IDLE_CELSIUS = 34, SENSOR_GPU = 0 };

SIM_API nvmlReturn nvmlDeviceGetTemperature(nvmlDevice device, unsigned sensor, unsigned *celsius)
{
    NVML_ENTER_DEVICE(device, celsius && sensor == SENSOR_GPU);
    *celsius = IDLE_CELSIUS;
    return NVML_SUCCESS;
}

struct temperature {
    unsigned version, sensor;
    int celsius;
};

SIM_API nvmlReturn nvmlDeviceGetTemperatureV(nvmlDevice device, struct temperature *out)
{
    NVML_ENTER_DEVICE(device, out);
    if (out->version != NVML_VERSION_OF(sizeof *out, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (out->sensor != SENSOR_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    out->celsius = IDLE_CELSIUS;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn nvmlDeviceGetTemperatureThreshold(nvmlDevice device, unsigned kind, unsigned *celsius)
{
    static const unsigned thresholds[] = {92, 89, 95, 85}; /* shutdown, slowdown, memory, GPU */
    NVML_ENTER_DEVICE(device, celsius);
    if (kind >= sizeof thresholds / sizeof thresholds[0])
        return NVML_ERROR_NOT_SUPPORTED;
    *celsius = thresholds[kind];
    return NVML_SUCCESS;
}

SIM_API nvmlReturn nvmlDeviceGetFanSpeed_v2(nvmlDevice device, unsigned fan, unsigned *percent)
{
    NVML_ENTER_DEVICE(device, percent && fan == 0);
    *percent = 30;
    return NVML_SUCCESS;
}

/* ---- clocks --------------------------------------------------------------------------------------- */

static nvmlReturn clock_mhz(nvmlDevice device, unsigned kind, unsigned *mhz)
{
    static const unsigned clocks[] = {1410, 1410, 1215, 1275}; /* graphics, SM, memory, video */
    NVML_ENTER_DEVICE(device, mhz && kind < sizeof clocks / sizeof clocks[0]);
    *mhz = clocks[kind];
    return NVML_SUCCESS;
}

#define CLOCK(name)                                                                                                   \
    SIM_API nvmlReturn name(nvmlDevice device, unsigned kind, unsigned *mhz);                                         \
    SIM_API nvmlReturn name(nvmlDevice device, unsigned kind, unsigned *mhz) { return clock_mhz(device, kind, mhz); }
CLOCK(nvmlDeviceGetClockInfo)
CLOCK(nvmlDeviceGetMaxClockInfo)
CLOCK(nvmlDeviceGetApplicationsClock)
CLOCK(nvmlDeviceGetDefaultApplicationsClock)

SIM_API nvmlReturn nvmlDeviceGetClock(nvmlDevice device, unsigned kind, unsigned which, unsigned *mhz)
{
    enum { CURRENT, TARGET, DEFAULT, BOOST, KINDS };
    return which < KINDS ? clock_mhz(device, kind, mhz) : NVML_ERROR_INVALID_ARGUMENT;
}

SIM_API nvmlReturn nvmlDeviceGetPcieThroughput(nvmlDevice device, unsigned counter, unsigned *kib_per_second)
{
    NVML_ENTER_DEVICE(device, kib_per_second && counter < 2);
    *kib_per_second = 0;
    return NVML_SUCCESS;
}
