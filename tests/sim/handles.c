/* Which handles are alive: a hash set, so that garbage in a handle's place is answered and not followed. */
#include "sim.h"

#include <stdlib.h>

struct slot {
    const void *handle;
    enum sim_kind kind;
};

static struct slot *slots;
static size_t capacity, used;

static size_t home(const void *handle) { return ((uintptr_t)handle * 0x9e3779b97f4a7c15ull) >> 20; }

static struct slot *find(const void *handle)
{
    for (size_t at = home(handle), i = 0; i < capacity; i++) {
        struct slot *slot = &slots[(at + i) & (capacity - 1)];
        if (slot->handle == handle)
            return slot;
        if (!slot->handle)
            return NULL;
    }
    return NULL;
}

static void insert(const void *handle, enum sim_kind kind)
{
    size_t at = home(handle);
    while (slots[at & (capacity - 1)].handle)
        at++;
    slots[at & (capacity - 1)] = (struct slot){handle, kind};
}

void sim_handle_add(const void *handle, enum sim_kind kind)
{
    if ((used + 1) * 2 > capacity) {
        struct slot *old = slots;
        size_t count = capacity;
        capacity = capacity ? capacity * 2 : 256;
        slots = calloc(capacity, sizeof *slots);
        if (!slots)
            abort(); /* a test machine without memory for a table: nothing to answer */
        for (size_t i = 0; i < count; i++) {
            if (old[i].handle)
                insert(old[i].handle, old[i].kind);
        }
        free(old);
    }
    insert(handle, kind);
    used++;
}

bool sim_handle_is(const void *handle, enum sim_kind kind)
{
    struct slot *slot = handle ? find(handle) : NULL;
    return slot && slot->kind == kind;
}

void sim_handle_drop(const void *handle)
{
    struct slot *slot = handle ? find(handle) : NULL;
    if (!slot)
        return;
    slot->handle = NULL;
    used--;
    /* Those that follow may have been pushed on by this one. */
    for (size_t at = (size_t)(slot - slots) + 1; slots[at & (capacity - 1)].handle; at++) {
        struct slot moved = slots[at & (capacity - 1)];
        slots[at & (capacity - 1)].handle = NULL;
        insert(moved.handle, moved.kind);
    }
}
