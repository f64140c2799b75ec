/* cuGetProcAddress in both signatures: a versioned look-up that works before cuInit. */
#include "proctable.h"
#include "sim.h"
#include "spec.h"

#include <string.h>

enum { FLAG_LEGACY = 1, FLAG_PER_THREAD = 2 };
enum { STATUS_FOUND = 0, STATUS_NOT_FOUND = 1, STATUS_VERSION_NOT_SUFFICIENT = 2 };

/* The first row of that base name, or NULL. */
static const struct proc_row *first_row(const char *base)
{
    unsigned low = 0, high = sim_proc_rows;
    while (low < high) {
        unsigned mid = (low + high) / 2;
        if (strcmp(sim_proc_table[mid].base, base) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low < sim_proc_rows && !strcmp(sim_proc_table[low].base, base) ? &sim_proc_table[low] : NULL;
}

static CUresult look_up(const char *name, void **out, int version, uint64_t flags, int *status)
{
    const struct sim_spec *spec = sim_spec();
    const struct proc_row *end = sim_proc_table + sim_proc_rows;
    int driver = spec ? spec->driver_version : 13000;
    int newest = version < driver ? version : driver;
    if (!name || !out || flags & ~(uint64_t)(FLAG_LEGACY | FLAG_PER_THREAD) ||
        flags == (FLAG_LEGACY | FLAG_PER_THREAD))
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    *status = STATUS_NOT_FOUND;
    const struct proc_row *first = first_row(name), *best = NULL;
    for (const struct proc_row *row = first; row && row < end && !strcmp(row->base, name); row++) {
        if ((int)row->since > driver)
            continue;
        *status = STATUS_VERSION_NOT_SUFFICIENT;
        if ((int)row->since <= newest && (!row->per_thread || flags == FLAG_PER_THREAD))
            best = row;
    }
    if (!best)
        return CUDA_ERROR_NOT_FOUND;
    *status = STATUS_FOUND;
    *out = spec && spec->procaddr_inner ? best->inner : best->symbol;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGetProcAddress(const char *name, void **out, int version, uint64_t flags)
{
    SIM_ENTER_ALWAYS(cuGetProcAddress);
    int status;
    return look_up(name, out, version, flags, &status);
}

SIM_API CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags,
                             int *status)
{
    SIM_ENTER_ALWAYS(cuGetProcAddress_v2);
    int found = STATUS_NOT_FOUND;
    CUresult result = look_up(name, out, version, flags, &found);
    if (status && result != CUDA_ERROR_INVALID_VALUE)
        *status = found;
    return result;
}
