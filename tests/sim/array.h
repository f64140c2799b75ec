/* Arrays and mipmaps between array.c, which makes them, and copy_box.c, which fills them. */
#ifndef SIM_ARRAY_H
#define SIM_ARRAY_H

#include "mem.h"

struct sim_mipmap;

struct sim_array {
    struct sim_resource resource;
    struct sim_context *context;
    struct sim_card *card;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    unsigned element;         /* bytes */
    uint64_t row, slice;      /* bytes from row to row, from slice to slice */
    uint64_t offset;          /* of the first byte in its blocks: levels of a mipmap share blocks */
    uint32_t *blocks;         /* of its own, or of the mipmap */
    size_t count;
    struct sim_mipmap *level_of;
};

/* The array behind a handle, or NULL. */
struct sim_array *sim_array_of(CUarray handle);

#endif
