/* What modules, libraries, functions and kernels are to each other. */
#ifndef SIM_MODULE_H
#define SIM_MODULE_H

#include "sim.h"

struct sim_module;

enum { FUNCTION_ATTRIBUTES = 16 };

/* A function of a module, or a kernel of a library: any name exists in any image. */
struct sim_function {
    struct sim_function *next;
    struct sim_module *module;
    char *name;
    int attributes[FUNCTION_ATTRIBUTES]; /* what a program set */
};

/* The function behind a handle of a function, or of a kernel, which launches take too. NULL: neither. */
struct sim_function *sim_function_of(const void *handle);

#endif
