/* What the memory files of the simulator share among themselves: addresses, regions, heaps. */
#ifndef SIM_MEM_H
#define SIM_MEM_H

#include "sim.h"

/* ---- the back door (inject.c) ---------------------------------------------------------------- */

SIM_API int simgpu_fail_next(const char *name, int code, int count);
SIM_API unsigned long long simgpu_call_count(const char *name);
SIM_API unsigned long long simgpu_process_bytes(int device);
SIM_API unsigned long long simgpu_card_used(int device);
SIM_API unsigned long long simgpu_card_total(int device);
SIM_API unsigned long long simgpu_live_allocations(void);
SIM_API void simgpu_hold_arrays(int hold);

/* Live allocations of this process, whatever their kind. */
extern unsigned long long sim_live;
/* The serial number that a new allocation gets (CU_POINTER_ATTRIBUTE_BUFFER_ID). */
unsigned long long sim_next_id(void);

/* ---- va.c: device addresses, 2 MiB at a time -------------------------------------------------- */

/* The ranges that addresses come from. None of them is mapped in the process: following a device address crashes. */
enum sim_range {
    SIM_RANGE_CARD = 0, /* + card index */
    SIM_RANGE_LOW = 32, /* below 4 GiB, for the interface before 3.2 */
    SIM_RANGE_VMM,      /* reservations */
    SIM_RANGES
};

/* Takes `span` bytes (whole blocks) of addresses at `align` (a power of two); 0 when there are none left. */
uint64_t sim_va_take(enum sim_range range, uint64_t span, uint64_t align);
/* Takes exactly [base, base + span); false when something lies there or the range does not reach it. */
bool sim_va_take_at(enum sim_range range, uint64_t base, uint64_t span);
void sim_va_give(enum sim_range range, uint64_t base, uint64_t span);
/* Whether the address is one that only the simulator hands out. */
bool sim_va_is_device(uint64_t va);

/* ---- regions: what lies at an address ---------------------------------------------------------- */

enum sim_region_kind {
    SIM_REGION_PLAIN,   /* blocks of its own: large allocations, plain or from a pool */
    SIM_REGION_SLAB,    /* one block cut into small allocations */
    SIM_REGION_IMPORT,  /* opened by cuIpcOpenMemHandle or cuMemPoolImportPointer */
    SIM_REGION_MAPPING, /* of cuMemMap */
    SIM_REGION_MANAGED,
    SIM_REGION_HOST, /* pinned or registered host memory; not in the page table */
};

#define SIM_GRANULE 512u
#define SIM_GRANULES ((unsigned)(SIM_BLOCK / SIM_GRANULE))

struct sim_slab {
    uint64_t used[SIM_GRANULES / 64];  /* granules in use */
    uint64_t start[SIM_GRANULES / 64]; /* ... that an allocation starts at */
    unsigned in_use, hint;
    unsigned too_big; /* no run of so many granules since the last free; 0: not known */
    struct {
        uint32_t bytes, id;
    } sub[SIM_GRANULES];
};

struct sim_mapping;
struct sim_managed;
struct sim_pool;

struct sim_region {
    struct sim_region *next, *prev; /* in its heap, or in its file's list */
    enum sim_region_kind kind;
    uint64_t base;
    uint64_t bytes; /* as asked for */
    uint64_t span;  /* of addresses */
    enum sim_range range;
    struct sim_card *card;
    CUdevice device;
    struct sim_context *context;
    struct sim_heap *heap;
    uint32_t *blocks; /* one a 2 MiB of span, or NULL */
    size_t count;
    unsigned long long id;
    bool sync_memops;
    bool of_graph; /* the address belongs to a graph, and has blocks only from a launch until it is freed */
    bool shared; /* the blocks belong to the shared object `share` */
    struct sim_share share;
    unsigned opened; /* SIM_REGION_IMPORT: how often */
    bool of_pool;    /* SIM_REGION_IMPORT: by pointer, so that it is freed and not closed */
    union {
        struct sim_slab *slab;
        struct sim_mapping *mapping;
        struct sim_managed *managed;
        struct {
            void *memory;
            unsigned flags;
            bool registered;
        } host;
    };
};

/* Enters a region into, or removes it from, the page table. */
void sim_region_enter(struct sim_region *region);
void sim_region_remove(struct sim_region *region);
/* The region at an address, or NULL. */
struct sim_region *sim_region_at(uint64_t va);

/* One allocation: what cuMemGetAddressRange answers. */
struct sim_allocation {
    struct sim_region *region;
    uint64_t base, bytes;
    unsigned long long id;
};
/* The allocation that an address lies in. */
bool sim_allocation_at(uint64_t va, struct sim_allocation *allocation);

/* ---- heap.c ------------------------------------------------------------------------------------- */

/* Where allocations of a context, or of a pool, come from. */
struct sim_heap {
    struct sim_card *card;
    unsigned card_index;
    CUdevice device;
    struct sim_context *context; /* NULL for a pool's heap */
    struct sim_pool *pool;       /* NULL for a context's heap */
    struct sim_region *regions;
    struct sim_region *slab; /* the slab to try first */
    uint64_t used;           /* bytes of live allocations, in granules or blocks */
};

CUresult sim_heap_allocate(struct sim_heap *heap, struct sim_context *context, enum sim_range range, uint64_t bytes,
                           CUdeviceptr *ptr);
/* Frees the allocation that starts at `ptr` in a plain, pool or slab region; false when there is none. */
bool sim_heap_release(uint64_t ptr);
/* An address without blocks, for an allocation of a graph; blocks for it; and the graph's end. */
struct sim_region *sim_region_unbacked(struct sim_heap *heap, struct sim_context *context, uint64_t bytes);
bool sim_region_back(struct sim_region *region);
void sim_region_abandon(struct sim_region *region);
/* Frees all of a heap's allocations that were made in `context` (NULL: all). */
void sim_heap_clear(struct sim_heap *heap, struct sim_context *context);
/* Takes blocks of a card for this process: tries again with the pools trimmed before it gives up. */
bool sim_take_blocks(struct sim_card *card, size_t count, uint32_t *blocks);

/* ---- pool.c --------------------------------------------------------------------------------------- */

bool sim_pool_take(struct sim_pool *pool, size_t count, uint32_t *blocks);
void sim_pool_give(struct sim_pool *pool, size_t count, const uint32_t *blocks);
/* Blocks that the pool had are other processes' now. */
void sim_pool_left(struct sim_pool *pool, size_t count);
void sim_pool_used_changed(struct sim_pool *pool);
/* Gives everything unused back to the card; true when that was something. */
bool sim_pools_trim(struct sim_card *card);
/* What a synchronisation does: pools above their threshold release what they do not use. */
void sim_pools_settle(struct sim_card *card);
void sim_pools_context_gone(struct sim_context *context);

/* ---- sparse.c: the one kind of work that can be behind ------------------------------------------------ */

/* A ticket for all that streams have been given so far, and whether they have come that far. */
unsigned long long sim_sparse_given(void);
bool sim_sparse_is_done(unsigned long long ticket);
/* Does what has been given: somebody waits for it. */
void sim_sparse_catch_up(void);

/* ---- the others ------------------------------------------------------------------------------------ */

/* cuMemFree of managed memory: `ptr` must be where it starts. */
CUresult sim_managed_free(struct sim_region *region, uint64_t ptr);
void sim_managed_context_gone(struct sim_context *context);
void sim_host_context_gone(struct sim_context *context);
/* Frees what was imported by pointer; false where it was not. */
bool sim_import_release(struct sim_region *region, uint64_t ptr);
bool sim_pool_is_exportable(const struct sim_pool *pool);
bool sim_pool_is_imported(CUmemoryPool pool);
void sim_imports_context_gone(struct sim_context *context);
/* Makes pages of managed memory resident on a card, as far as it has room. */
void sim_managed_touch(struct sim_region *region, uint64_t offset, uint64_t bytes, struct sim_context *context);
/* Managed or host region at an address that is not the simulator's own. */
struct sim_region *sim_host_region_at(uint64_t va);

/* Where bytes are: host memory, or blocks of a card from an offset on. */
struct sim_extent {
    char *host; /* NULL: on the card */
    struct sim_card *card;
    const uint32_t *blocks;
    uint64_t offset;
    uint64_t bytes; /* how far it reaches */
};
/* The extent behind an address of the unified space. Addresses that nobody knows are taken for pageable host memory
 * when `host_too`; else INVALID_VALUE. */
CUresult sim_extent_at(uint64_t va, bool host_too, bool write, struct sim_extent *extent);
CUresult sim_extent_move(const struct sim_extent *to, const struct sim_extent *from, size_t bytes);
/* Repeats the low `width` (1, 2, 4) bytes of `value`; `bytes` is a multiple of it. */
CUresult sim_extent_fill(const struct sim_extent *extent, uint32_t value, unsigned width, size_t bytes);

/* What a call says about an address: that it is the host's, the device's, or nothing. */
enum sim_side { SIM_SIDE_HOST, SIM_SIDE_DEVICE, SIM_SIDE_ANY };
/* Whether [va, va + bytes) may be accessed: INVALID_VALUE when not. */
CUresult sim_range_check(uint64_t va, uint64_t bytes, enum sim_side side, bool write);
/* Moves bytes between checked ranges. */
CUresult sim_move(uint64_t to, enum sim_side to_side, uint64_t from, enum sim_side from_side, size_t bytes);
/* The extent of a VMM mapping at an address; false when the mapping may not be accessed that way. */
bool sim_mapping_extent(struct sim_region *region, uint64_t va, bool write, struct sim_extent *extent);

/* ---- nowork.c ------------------------------------------------------------------------------------------ */

/* Whether the spec says work=none. Plain, so that a call costs next to nothing. */
extern bool sim_no_work;
CUresult sim_nowork_alloc(CUdeviceptr *ptr, size_t bytes);
CUresult sim_nowork_free(CUdeviceptr ptr);
CUresult sim_nowork_info(size_t *free_bytes, size_t *total_bytes);
/* Everything is of one pool, which holds nothing. */
CUresult sim_nowork_pool_handle(CUmemoryPool *pool, CUdeviceptr ptr);
CUresult sim_nowork_pool_bytes(CUmemPool_attribute attribute, uint64_t *bytes);

#endif
