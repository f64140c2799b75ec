/* Arrays and mipmaps between array.c and mipmap.c, which make them, sparse.c, which maps memory into them, and copy_box.c,
 * which fills them. */
#ifndef SIM_ARRAY_H
#define SIM_ARRAY_H

#include "mem.h"

struct sim_mipmap;
struct sim_sparse;

#define SIM_LEVELS 32u

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
    struct sim_sparse *sparse; /* what is mapped into it, where the program does that */
};

struct sim_mipmap {
    struct sim_resource resource;
    struct sim_context *context;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    uint32_t *blocks;
    size_t count;
    struct sim_sparse *sparse;
    unsigned levels;
    struct sim_array *level[SIM_LEVELS];
};

/* The array behind a handle, or NULL. */
struct sim_array *sim_array_of(CUarray handle);
/* What a call that makes or ends an array does first. */
CUresult sim_array_ready(struct sim_context **context);
/* Ends an array, but for the blocks of a level of a mipmap. */
void sim_array_end(struct sim_resource *resource);
/* The bytes of an element; 0 for a shape that no device takes. */
unsigned sim_element_of(const CUDA_ARRAY3D_DESCRIPTOR *shape);
/* Whether the program maps the memory of such an array itself. */
bool sim_unbacked(const CUDA_ARRAY3D_DESCRIPTOR *shape);
/* Fills in how a shape is laid out; returns its bytes. */
uint64_t sim_lay_out(struct sim_array *array);
/* Blocks of a card for so many bytes; NULL when there are none. */
uint32_t *sim_array_take(struct sim_context *context, uint64_t bytes, size_t *count);
/* The shape of a level: each side halved, never below one. Layers are not halved. */
CUDA_ARRAY3D_DESCRIPTOR sim_level_shape(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned level);

/* ---- sparse.c ---- */

/* For an unbacked array of so many levels, of which `mipmap` tells whether the small ones share a tail. `bytes` is what all
 * of it takes. NULL when the host has no memory. */
struct sim_sparse *sim_sparse_new(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels, bool mipmap, uint64_t bytes);
/* Unmaps all of it. NULL is none. */
void sim_sparse_free(struct sim_sparse *sparse);

#endif
