/* Modules and libraries. */
#ifndef FUZZ_CODE_H
#define FUZZ_CODE_H

#include "player.h"

/* Code comes, is used and goes. A library is in no context, and in each that uses it. */
static void code(struct player *me) {
    struct thing *module = pick(me, MODULE), *library = pick(me, LIBRARY);
    size_t bytes = below(me, 2) ? below(me, 128) * MIB : below(me, 4 * MIB);
    unsigned long long handle;
    char text[256];
    CUresult code;
    switch (below(me, 7)) {
    case 0:
        if (!pick(me, NONE)) return;
        code = cu.module_load((CUmodule *)&handle, image_with(text, sizeof text, bytes));
        note(me, "module of %zu -> %d", bytes, code);
        if (!code) keep(me, MODULE, handle, 0, me->current);
        return;
    case 1:
        if (!module) return;
        code = cu.module_function((CUfunction *)&handle, (CUmodule)module->value, "work");
        note(me, "function -> %d", code);
        return;
    case 2:
        if (!module) return;
        code = cu.module_unload((CUmodule)module->value);
        note(me, "unload -> %d", code);
        if (!code) module->kind = NONE;
        return;
    case 3:
        if (!pick(me, NONE)) return;
        image_with(text, sizeof text, bytes);
        code = cu.library_load((CUlibrary *)&handle, text, NULL, NULL, 0, NULL, NULL, 0);
        note(me, "library of %zu -> %d", bytes, code);
        if (!code) keep(me, LIBRARY, handle, 0, -1);
        return;
    case 4:
        if (!library) return;
        code = cu.library_module((CUmodule *)&handle, (CUlibrary)library->value);
        note(me, "module of a library in context %d -> %d", me->current, code);
        return;
    case 5:
        if (!library || cu.library_kernel((CUkernel *)&handle, (CUlibrary)library->value, "work")) return;
        code = below(me, 2) ? cu.function_load((CUfunction)handle) : cu.kernel_function((CUfunction *)&handle, (CUkernel)handle);
        note(me, "kernel of a library in context %d -> %d", me->current, code);
        return;
    default:
        if (!library) return;
        code = cu.library_unload((CUlibrary)library->value);
        note(me, "unload library -> %d", code);
        if (!code) library->kind = NONE;
        return;
    }
}

#endif
