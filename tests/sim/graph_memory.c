/*
 * Memory of graphs: an allocation captured into a graph has its address at once and its blocks from a
 * launch until it is freed, by the graph or by the program. The blocks come from a pool of the device
 * that keeps them until cuDeviceGraphMemTrim.
 */
#include "graph.h"
#include "pool.h"

static struct sim_pool *graph_pools[32]; /* by card */

static struct sim_pool *graph_pool(CUdevice device)
{
    int card = sim_device_card(device);
    if (card >= 0 && !graph_pools[card]) {
        CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
        struct sim_pool *pool = graph_pools[card] = sim_pool_new(device, &props);
        if (pool) {
            pool->threshold = UINT64_MAX;
            sim_handle_drop(pool); /* not one that programs can name */
        }
    }
    return card < 0 ? NULL : graph_pools[card];
}

static CUresult run_alloc(const void *args)
{
    struct sim_region *region = sim_region_at(*(const CUdeviceptr *)args);
    if (!region || region->blocks)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_region_back(region) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult run_free(const void *args)
{
    return sim_heap_release(*(const CUdeviceptr *)args) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* An address of the graph's own, without memory. */
static CUresult address(struct sim_graph *graph, CUdeviceptr *ptr, size_t bytes, CUdevice device,
                        struct sim_context *context)
{
    struct sim_pool *pool = graph_pool(device);
    struct sim_region *region = pool ? sim_region_unbacked(&pool->heap, context, bytes) : NULL;
    if (!region)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!sim_graph_own(graph, region)) {
        sim_region_abandon(region);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ptr = region->base;
    return CUDA_SUCCESS;
}

CUresult sim_graph_alloc(CUdeviceptr *ptr, size_t bytes, CUdevice device, CUstream stream, struct sim_context *context)
{
    struct sim_stream *object;
    struct sim_context *unused;
    CUdeviceptr base;
    CUresult result = sim_stream_object(stream, &unused, &object);
    if (result != CUDA_SUCCESS)
        return result;
    if (object->capture->invalidated)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    struct sim_graph *graph = object->capture->graph;
    result = address(graph, &base, bytes, device, context);
    if (result == CUDA_SUCCESS)
        result = sim_work(stream, run_alloc, &base, sizeof base);
    if (result != CUDA_SUCCESS)
        return result;
    sim_graph_tail(graph)->type = SIM_NODE_MEM_ALLOC;
    *ptr = base;
    return CUDA_SUCCESS;
}

CUresult sim_graph_release(CUdeviceptr ptr, CUstream stream)
{
    CUresult result = sim_work(stream, run_free, &ptr, sizeof ptr);
    CUgraph graph = result == CUDA_SUCCESS ? sim_stream_graph(stream) : NULL;
    if (graph)
        sim_graph_tail((struct sim_graph *)graph)->type = SIM_NODE_MEM_FREE;
    return result;
}

CUresult sim_graph_alloc_node(struct sim_graph *graph, CUdeviceptr *ptr, size_t bytes, CUdevice device,
                              struct sim_context *context, struct sim_node *const *dependencies, size_t count)
{
    CUdeviceptr base;
    CUresult result = address(graph, &base, bytes, device, context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_node_new(graph, SIM_NODE_MEM_ALLOC, run_alloc, &base, sizeof base, dependencies, count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ptr = base;
    return CUDA_SUCCESS;
}

CUresult sim_graph_free_node(struct sim_graph *graph, CUdeviceptr ptr, struct sim_node *const *dependencies,
                             size_t count)
{
    return sim_node_new(graph, SIM_NODE_MEM_FREE, run_free, &ptr, sizeof ptr, dependencies, count)
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

enum { USED, USED_HIGH, RESERVED, RESERVED_HIGH, ATTRIBUTES };

static CUresult get_attribute(CUdevice device, int attribute, void *out)
{
    struct sim_pool *pool = graph_pool(device);
    if (!pool)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!out || attribute < 0 || attribute >= ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    const uint64_t values[ATTRIBUTES] = {pool->heap.used, pool->used_high, sim_pool_reserved(pool),
                                         pool->reserved_high};
    *(uint64_t *)out = values[attribute];
    return CUDA_SUCCESS;
}

static CUresult set_attribute(CUdevice device, int attribute, const void *value)
{
    struct sim_pool *pool = graph_pool(device);
    if (!pool)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || *(const uint64_t *)value || (attribute != USED_HIGH && attribute != RESERVED_HIGH))
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == USED_HIGH)
        pool->used_high = pool->heap.used;
    else
        pool->reserved_high = sim_pool_reserved(pool);
    return CUDA_SUCCESS;
}

static CUresult trim(CUdevice device)
{
    struct sim_pool *pool = graph_pool(device);
    if (!pool)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_pool_trim(pool, 0);
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuDeviceGetGraphMemAttribute, (CUdevice device, int attribute, void *out),
           get_attribute(device, attribute, out))
SIM_EXPORT(cuDeviceSetGraphMemAttribute, (CUdevice device, int attribute, void *value),
           set_attribute(device, attribute, value))
SIM_EXPORT(cuDeviceGraphMemTrim, (CUdevice device), trim(device))
