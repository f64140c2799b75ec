/* What every entry point does first, the process's state, and the back door for tests. */
#define _GNU_SOURCE
#include "mem.h"
#include "spec.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern struct sim_entry __start_sim_entries[], __stop_sim_entries[];

static _Atomic(int) state = SIM_UNINITIALISED;
static pthread_mutex_t model = PTHREAD_MUTEX_INITIALIZER;
/* Failures asked for under names that have no entry point here (the generated stubs) are refused, so that a test
 * with a misspelt name cannot pass by accident. */
static struct sim_entry *entry_of(const char *name)
{
    for (struct sim_entry *entry = __start_sim_entries; name && entry < __stop_sim_entries; entry++) {
        if (entry->name && !strcmp(entry->name, name))
            return entry;
    }
    return NULL;
}

void sim_lock(void) { pthread_mutex_lock(&model); }
void sim_unlock(void) { pthread_mutex_unlock(&model); }

enum sim_state sim_state(void) { return (enum sim_state)atomic_load_explicit(&state, memory_order_acquire); }

static CUresult injected(struct sim_entry *entry)
{
    int left = atomic_load_explicit(&entry->fail_count, memory_order_relaxed);
    while (left > 0) {
        if (atomic_compare_exchange_weak(&entry->fail_count, &left, left - 1))
            return (CUresult)atomic_load(&entry->fail_code);
    }
    return CUDA_SUCCESS;
}

CUresult sim_enter_always(struct sim_entry *entry)
{
    atomic_fetch_add_explicit(&entry->calls, 1, memory_order_relaxed);
    return injected(entry);
}

CUresult sim_enter(struct sim_entry *entry)
{
    CUresult failure = sim_enter_always(entry);
    switch (sim_state()) {
    case SIM_READY:
        return failure;
    case SIM_DEINITIALISED:
        return CUDA_ERROR_DEINITIALIZED;
    default:
        return CUDA_ERROR_NOT_INITIALIZED;
    }
}

/* ---- the life of the process --------------------------------------------------------------- */

static void deinitialise(void) { atomic_store(&state, SIM_DEINITIALISED); }

static void in_child(void)
{
    model = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (sim_state() != SIM_UNINITIALISED)
        atomic_store(&state, SIM_FORKED);
    sim_cards_after_fork();
}

/* SIMGPU_FAIL: name:code:count[,name:code:count...] */
static void fail_as_told(void)
{
    const char *told = getenv("SIMGPU_FAIL");
    char *copy = told ? strdup(told) : NULL, *rest = copy, *item;
    while (copy && (item = strsep(&rest, ","))) {
        char name[128];
        int code, count, end = -1;
        if (sscanf(item, "%127[^:]:%d:%d%n", name, &code, &count, &end) != 3 || item[end] ||
            simgpu_fail_next(name, code, count))
            fprintf(stderr, "simgpu: SIMGPU_FAIL item \"%s\" is not NAME:CODE:COUNT of a driver function\n", item);
    }
    free(copy);
}

__attribute__((constructor)) static void loaded(void)
{
    pthread_atfork(NULL, NULL, in_child);
    fail_as_told();
}

CUresult sim_start(void)
{
    static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
    const struct sim_spec *spec = sim_spec();
    if (sim_state() == SIM_FORKED)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (sim_state() == SIM_DEINITIALISED)
        return CUDA_ERROR_DEINITIALIZED;
    if (!spec)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&starting);
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; !sim_no_work && sim_state() == SIM_UNINITIALISED && i < spec->cards; i++) {
        if (!sim_card(i))
            result = CUDA_ERROR_SYSTEM_NOT_READY;
    }
    if (result == CUDA_SUCCESS && sim_state() == SIM_UNINITIALISED) {
        atexit(deinitialise);
        sim_jitter_us = spec->jitter_us;
        atomic_store(&state, SIM_READY);
    }
    pthread_mutex_unlock(&starting);
    return result;
}

/* The calling thread's dice. */
static unsigned roll(void)
{
    static __thread unsigned seed;
    if (!seed) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        seed = (unsigned)now.tv_nsec ^ (unsigned)(uintptr_t)&seed;
    }
    return (unsigned)rand_r(&seed);
}

static void sleep_up_to(unsigned most_us)
{
    unsigned us = roll() % (most_us + 1);
    struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
    nanosleep(&time, NULL);
}

void sim_delay(void)
{
    const struct sim_spec *spec = sim_spec();
    if (spec && spec->delay_us)
        sleep_up_to(spec->delay_us);
}

enum { JITTERS_ONE_IN = 64 };

unsigned sim_jitter_us;

void sim_jitter_now(void)
{
    if (!(roll() % JITTERS_ONE_IN))
        sleep_up_to(sim_jitter_us);
}

/* ---- the back door ------------------------------------------------------------------------- */

int simgpu_fail_next(const char *name, int code, int count)
{
    struct sim_entry *entry = entry_of(name);
    if (!entry || count < 0)
        return -1;
    atomic_store(&entry->fail_code, code);
    atomic_store(&entry->fail_count, count);
    return 0;
}

unsigned long long simgpu_call_count(const char *name)
{
    struct sim_entry *entry = entry_of(name);
    return entry ? atomic_load(&entry->calls) : 0;
}

static struct sim_card *card_of_device(int device)
{
    int index = sim_state() == SIM_READY ? sim_device_card(device) : -1;
    return index < 0 ? NULL : sim_card((unsigned)index);
}

unsigned long long simgpu_process_bytes(int device)
{
    struct sim_card *card = card_of_device(device);
    return card ? sim_card_process_bytes(card) : 0;
}

unsigned long long simgpu_card_used(int device)
{
    struct sim_card *card = card_of_device(device);
    return card ? sim_card_total(card) - sim_card_free(card) : 0;
}

unsigned long long simgpu_card_total(int device)
{
    struct sim_card *card = card_of_device(device);
    return card ? sim_card_total(card) : 0;
}

unsigned long long simgpu_live_allocations(void)
{
    SIM_LOCKED();
    return sim_live;
}
