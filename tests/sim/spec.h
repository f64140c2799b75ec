/* What SIMGPU_SPEC says about the machine. */
#ifndef SIM_SPEC_H
#define SIM_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_MAX_CARDS 32

struct sim_spec {
    unsigned cards;
    uint64_t card_bytes[SIM_MAX_CARDS]; /* whole 2 MiB blocks */
    uint64_t context_bytes;             /* what a context takes from its card */
    uint64_t module_bytes;              /* what the code of a module takes */
    int driver_version;                 /* 12090 for 12.9 */
    bool procaddr_inner;                /* cuGetProcAddress hands out thunks */
    bool through_exports;               /* some calls call others by their exported names, where a preload may stand */
    bool no_work;                       /* benchmarks: calls do next to nothing */
    bool mig;                           /* every card is cut, and shows as one MIG instance */
    bool managed;                       /* CONCURRENT_MANAGED_ACCESS */
    bool handles_anew;                  /* a new context has the handle of the one destroyed last */
    unsigned jitter_us;                 /* now and then a random delay up to this before and after any call */
    unsigned delay_us;                  /* a random delay up to this inside allocation calls */
    int nvml_memory_code;               /* what NVML's memory info answers instead of figures; 0: figures */
};

/* The spec of this process, parsed once. NULL when it is refused; one line on stderr then said why. */
const struct sim_spec *sim_spec(void);

/* Parses `text` (NULL: the default machine). On failure returns false with a sentence in `why`. */
bool sim_spec_parse(const char *text, struct sim_spec *spec, char *why, size_t why_len);

#endif
