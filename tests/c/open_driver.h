/* How the C programs reach the driver: opened by name as programs do, no symbol linked. */
#ifndef OPEN_DRIVER_H
#define OPEN_DRIVER_H

#include "cuda_abi.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* The library of that name, or the end of the program. */
static inline void *open_library(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(70);
    }
    return library;
}

/* The function of that name, or the end of the program. */
static inline void *function_of(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "no %s\n", name);
        exit(70);
    }
    return found;
}

#endif
