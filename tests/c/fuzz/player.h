/* What a player of random sequences has, and its dice. */
#ifndef FUZZ_PLAYER_H
#define FUZZ_PLAYER_H

#include <stdarg.h>
#include <stdint.h>

#include "../harness/driver.h"
#include "../harness/image.h"
#include "../harness/sizes.h"

#define MIB ((size_t)1 << 20)
#define BLOCK (2 * MIB)
#define MOST 48
#define CONTEXTS 3

/* Seeds from this one on load code, too: those before it go on meaning what they meant when they found something. With one
 * thread: what others have on their way is mistaken for code, which is looked for on the card. */
#define FIRST_WITH_CODE ((uint64_t)1 << 33)
static int with_code;

static struct driver cu;
static int (*fail_next)(const char *, int, int);
static void (*hold_arrays)(int);
static int holding; /* streams do not come to what is mapped into arrays before somebody waits */
static unsigned long long (*process_bytes)(int);

enum kind {
    NONE, PLAIN, MANAGED, POOLED, ARRAY, MIPMAP, HANDLE, RESERVED, MAPPING, POOL, EXEC, GRAPH_MEMORY, SPARSE, TEAM, BOUND,
    MODULE, LIBRARY, EXTERNAL
};

struct thing {
    enum kind kind;
    unsigned long long value, other;
    size_t bytes;
    int context;
};

/* One thread's things, and the state of its dice. */
struct player {
    uint64_t dice;
    struct thing things[MOST];
    CUcontext contexts[CONTEXTS];
    CUgreenCtx green;
    CUcontext stand_in; /* for the green context: what is made there is of context 0 */
    int current, number;
    char trace[64][96];
    unsigned long traced;
};

static uint64_t roll(struct player *me) {
    me->dice ^= me->dice << 13;
    me->dice ^= me->dice >> 7;
    me->dice ^= me->dice << 17;
    return me->dice * 0x2545f4914f6cdd1dull >> 16;
}

static size_t below(struct player *me, size_t n) { return roll(me) % n; }

__attribute__((format(printf, 2, 3))) static void note(struct player *me, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(me->trace[me->traced++ % 64], sizeof me->trace[0], format, args);
    va_end(args);
}

static struct thing *pick(struct player *me, enum kind kind) {
    size_t from = below(me, MOST);
    for (size_t i = 0; i < MOST; i++) {
        struct thing *thing = &me->things[(from + i) % MOST];
        if (thing->kind == kind && (kind == NONE || thing->context == me->current || thing->context < 0)) return thing;
    }
    return NULL;
}

static size_t size(struct player *me) {
    switch (below(me, 8)) {
    case 0: return 1 + below(me, 512);
    case 1: return 1 + below(me, 64 << 10);
    case 2: return 1 + below(me, BLOCK);
    case 3: return BLOCK * (1 + below(me, 16));
    case 4: return 1 + below(me, 64 * MIB);
    case 5: return 1 + below(me, 2048 * MIB);
    case 6: return below(me, 16) ? MIB : SIZE_MAX - below(me, 4096);
    default: return 1 + below(me, 8 * MIB);
    }
}

static void keep(struct player *me, enum kind kind, unsigned long long value, size_t bytes, int context) {
    struct thing *thing = pick(me, NONE);
    *thing = (struct thing){kind, value, 0, bytes, context};
}

#endif
