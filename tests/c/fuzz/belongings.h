/* What belongs to a context without an address: its limits, and memory of other interfaces. */
#ifndef FUZZ_BELONGINGS_H
#define FUZZ_BELONGINGS_H

#include <sys/mman.h>
#include <unistd.h>

#include "player.h"

/* Stacks, the printf buffer and the heap grow and shrink; where threads share a context the largest that they set at once stays
 * charged, and they leave it alone. */
static void limit(struct player *me, int alone) {
    static const struct { CUlimit limit; size_t unit; } kinds[] = {
        {CU_LIMIT_STACK_SIZE, 1 << 10}, {CU_LIMIT_PRINTF_FIFO_SIZE, MIB}, {CU_LIMIT_MALLOC_HEAP_SIZE, 8 * MIB},
    };
    if (!alone && !me->current) return;
    size_t which = below(me, 3), bytes = kinds[which].unit * below(me, 9) + below(me, 2) * below(me, 1000);
    if (!below(me, 16)) bytes = SIZE_MAX - below(me, 4096);
    note(me, "limit %d of %zu -> %d", kinds[which].limit, bytes, cu.ctx_set_limit(kinds[which].limit, bytes));
}

/* Imported, and destroyed or left to its context. No card of the simulator holds it. */
static void external(struct player *me) {
    struct thing *thing = below(me, 2) ? pick(me, EXTERNAL) : NULL;
    CUresult code;
    if (thing) {
        code = cu.external_destroy((CUexternalMemory)thing->value);
        note(me, "destroy external %zu -> %d", thing->bytes, code);
        if (!code) thing->kind = NONE;
        return;
    }
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC foreign = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = 1 + below(me, 64 * MIB)};
    CUexternalMemory memory;
    if (!pick(me, NONE) || (foreign.handle.fd = memfd_create("foreign", MFD_CLOEXEC)) < 0) return;
    code = cu.external_import(&memory, &foreign);
    note(me, "external %llu -> %d", foreign.size, code);
    if (code) close(foreign.handle.fd);
    else keep(me, EXTERNAL, (unsigned long long)memory, foreign.size, me->current);
}

#endif
