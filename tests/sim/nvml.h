/* What the parts of the simulated NVML share. Names, codes and layouts are facts of the interface. */
#ifndef SIM_NVML_H
#define SIM_NVML_H

#include "card.h"
#include "identity.h"

#define SIM_API __attribute__((visibility("default")))

typedef enum nvmlReturn {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
} nvmlReturn;

typedef const struct nvml_device {
    unsigned card;
} *nvmlDevice;

/* A structure's version word: its size and the version. */
#define NVML_VERSION_OF(bytes, version) ((unsigned)(bytes) | (unsigned)(version) << 24)

/* UNINITIALIZED outside nvmlInit ... nvmlShutdown. */
nvmlReturn nvml_ready(void);
/* The same, and INVALID_ARGUMENT for a handle that is none. */
nvmlReturn nvml_device(nvmlDevice device);

/* The first statements of an entry point; for one about a device it names the handle. */
#define NVML_ENTER()                                                                                                  \
    do {                                                                                                              \
        nvmlReturn ready_ = nvml_ready();                                                                             \
        if (ready_ != NVML_SUCCESS)                                                                                   \
            return ready_;                                                                                            \
    } while (0)
#define NVML_ENTER_DEVICE(device, outputs)                                                                            \
    do {                                                                                                              \
        nvmlReturn ready_ = nvml_device(device);                                                                      \
        if (ready_ != NVML_SUCCESS)                                                                                   \
            return ready_;                                                                                            \
        if (!(outputs))                                                                                               \
            return NVML_ERROR_INVALID_ARGUMENT;                                                                       \
    } while (0)

/* Copies text with its end into `len` bytes, or says that they are too few. */
nvmlReturn nvml_text(const char *text, char *out, unsigned len);

#endif
