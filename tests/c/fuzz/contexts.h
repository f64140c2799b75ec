/* Contexts, also green ones. */
#ifndef FUZZ_CONTEXTS_H
#define FUZZ_CONTEXTS_H

#include "player.h"

static void forget_context(struct player *me, int context) {
    for (int i = 0; i < MOST; i++)
        if (me->things[i].kind != NONE && me->things[i].context == context) me->things[i].kind = NONE;
}

/* A green context comes or goes. */
static void green(struct player *me) {
    CUdevResource all;
    CUdevResourceDesc desc;
    CUresult code;
    if (me->green) {
        code = cu.green_destroy(me->green);
        note(me, "destroy green -> %d", code);
        if (!code) me->green = NULL;
        return;
    }
    if (cu.device_resource(0, &all, CU_DEV_RESOURCE_TYPE_SM) || cu.resource_desc(&desc, &all, 1)) return;
    code = cu.green_create(&me->green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM);
    note(me, "green -> %d", code);
    if (code) me->green = NULL;
    else while (cu.green_context(&me->stand_in, me->green)) continue;
}

/* Contexts come, go and take turns. Number 0 is the primary one; with several threads nobody resets it. */
static void contexts(struct player *me, int alone) {
    int which = (int)below(me, CONTEXTS);
    CUresult code = 0;
    if (which && !me->contexts[which]) {
        code = cu.ctx_create(&me->contexts[which], 0, 0);
        note(me, "create context %d -> %d", which, code);
        if (code) me->contexts[which] = NULL;
        else me->current = which;
    } else if (which && !below(me, 3)) {
        code = cu.ctx_destroy(me->contexts[which]);
        note(me, "destroy context %d -> %d", which, code);
        if (code) return;
        me->contexts[which] = NULL;
        forget_context(me, which);
        which = 0;
    } else if (alone && !which && !below(me, 8)) {
        code = cu.primary_reset(0);
        note(me, "reset -> %d", code);
        if (code) return;
        forget_context(me, 0);
        while (cu.primary_retain(&me->contexts[0], 0)) continue;
    }
    if (!which && below(me, 2)) green(me);
    if (me->contexts[which]) {
        cu.ctx_set(!which && me->green && below(me, 2) ? me->stand_in : me->contexts[which]);
        me->current = which;
    }
}

#endif
