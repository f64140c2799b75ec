/* What modules, libraries, functions and kernels are to each other. */
#ifndef SIM_MODULE_H
#define SIM_MODULE_H

#include "sim.h"

/* Blocks of a card that code or its globals lie in. */
struct sim_piece {
    uint32_t *blocks;
    size_t count;
};

/* A module of a context, or a library, which belongs to none and has a module of its own in each context that uses it. */
struct sim_module {
    struct sim_resource resource; /* a module's place in its context; first, so that the two convert */
    struct sim_context *context;  /* NULL: a library */
    struct sim_function *functions;
    uint64_t globals; /* bytes that the image says its variables take */
    struct sim_piece data, code;
    struct sim_module *library, *next; /* of a library's module: whose it is, and the library's next */
    struct sim_module *modules;        /* of a library: its modules */
};

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
/* Sees to it that the code of a function is on the card: a module's, or a kernel's in the current context. */
CUresult sim_function_load(struct sim_function *function);
/* Whether code comes to the card with its module, rather than when the first of its functions is asked for or run. */
bool sim_modules_eager(void);

/* A new module of `context`, or a library (NULL), whose variables take `globals` bytes. */
CUresult sim_module_new(struct sim_context *context, enum sim_kind kind, uint64_t globals, struct sim_module **out);
/* Takes the memory of the code. */
CUresult sim_module_load_code(struct sim_module *module);
void sim_module_end(struct sim_module *module);

/* The back door: `what` is called whenever code or variables are about to be taken from a card. NULL: no more. It runs under
 * the lock of the model, so it must not call the driver. */
SIM_API void simgpu_while_loading(void (*what)(void));

/* The bytes that an image says its variables take: arrays in the global space of PTX, sections of an ELF file, which may be
 * the first in a fat binary. */
uint64_t sim_image_globals(const void *image);
/* The bytes of a file, NUL terminated, for `free`; NULL: not to be read. */
void *sim_image_read(const char *path);

#endif
