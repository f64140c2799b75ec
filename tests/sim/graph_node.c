/* Graphs built by hand: nodes, what they depend on, and questions about both. */
#include "graph.h"

#include <stdlib.h>

/* The nodes behind handles, all of them of that graph; false where one is not. `out` has room for `count`. */
static bool all_of(struct sim_graph *graph, const CUgraphNode *handles, size_t count, struct sim_node **out)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = handles ? sim_node_of(handles[i]) : NULL;
        if (!out[i] || out[i]->graph != graph)
            return false;
    }
    return true;
}

enum { MOST_DEPENDENCIES = 64 };

static CUresult add_alloc(CUgraphNode *out, CUgraph handle, const CUgraphNode *dependencies, size_t count,
                          CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    struct sim_graph *graph = sim_graph_of(handle);
    struct sim_node *before[MOST_DEPENDENCIES];
    struct sim_context *context;
    if (!out || !graph || !params || count > MOST_DEPENDENCIES || !all_of(graph, dependencies, count, before) ||
        !params->bytesize || params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE || params->poolProps.handleTypes)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device_card(params->poolProps.location.id) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult result = sim_current(&context);
    if (result == CUDA_SUCCESS)
        result = sim_graph_alloc_node(graph, &params->dptr, params->bytesize, params->poolProps.location.id, context,
                                      before, count);
    if (result == CUDA_SUCCESS)
        *out = (CUgraphNode)sim_graph_tail(graph);
    return result;
}

static CUresult add_free(CUgraphNode *out, CUgraph handle, const CUgraphNode *dependencies, size_t count,
                         CUdeviceptr ptr)
{
    struct sim_graph *graph = sim_graph_of(handle);
    struct sim_node *before[MOST_DEPENDENCIES];
    if (!out || !graph || !ptr || count > MOST_DEPENDENCIES || !all_of(graph, dependencies, count, before))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_graph_free_node(graph, ptr, before, count);
    if (result == CUDA_SUCCESS)
        *out = (CUgraphNode)sim_graph_tail(graph);
    return result;
}

/* A node that does nothing, or all that a child graph does. */
static CUresult add_other(CUgraphNode *out, CUgraph handle, const CUgraphNode *dependencies, size_t count,
                          struct sim_graph *child)
{
    struct sim_graph *graph = sim_graph_of(handle);
    struct sim_node *before[MOST_DEPENDENCIES];
    if (!out || !graph || count > MOST_DEPENDENCIES || !all_of(graph, dependencies, count, before))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_node *node =
        child ? sim_node_new(graph, SIM_NODE_GRAPH, sim_graph_run, &child, sizeof child, before, count)
              : sim_node_new(graph, SIM_NODE_EMPTY, NULL, NULL, 0, before, count);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->child = child;
    if (child)
        child->references++;
    *out = (CUgraphNode)node;
    return CUDA_SUCCESS;
}

static CUresult add_child(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUgraph child)
{
    struct sim_graph *found = sim_graph_of(child);
    return found && child != graph ? add_other(out, graph, dependencies, count, found) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult add_node(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                         CUgraphNodeParams *params)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case SIM_NODE_MEM_ALLOC:
        return add_alloc(out, graph, dependencies, count, &params->alloc);
    case SIM_NODE_MEM_FREE:
        return add_free(out, graph, dependencies, count, params->free);
    case SIM_NODE_GRAPH:
        return add_child(out, graph, dependencies, count, params->graph);
    case SIM_NODE_EMPTY:
        return add_other(out, graph, dependencies, count, NULL);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* ---- questions ------------------------------------------------------------------------------------ */

static CUresult get_type(CUgraphNode handle, int *type)
{
    struct sim_node *node = sim_node_of(handle);
    if (!node || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->type;
    return CUDA_SUCCESS;
}

static CUresult get_alloc(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    struct sim_node *node = sim_node_of(handle);
    if (!node || !params || node->type != SIM_NODE_MEM_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr base = *(const CUdeviceptr *)node->args;
    const struct sim_region *region = sim_region_at(base);
    *params = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, region ? region->device : 0}},
        .bytesize = region ? region->bytes : 0,
        .dptr = base};
    return CUDA_SUCCESS;
}

static CUresult get_free(CUgraphNode handle, CUdeviceptr *ptr)
{
    struct sim_node *node = sim_node_of(handle);
    if (!node || !ptr || node->type != SIM_NODE_MEM_FREE)
        return CUDA_ERROR_INVALID_VALUE;
    *ptr = *(const CUdeviceptr *)node->args;
    return CUDA_SUCCESS;
}

static CUresult get_child(CUgraphNode handle, CUgraph *graph)
{
    struct sim_node *node = sim_node_of(handle);
    if (!node || !graph || node->type != SIM_NODE_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(node->child, SIM_GRAPH))
        sim_handle_add(node->child, SIM_GRAPH);
    *graph = (CUgraph)node->child;
    return CUDA_SUCCESS;
}

static CUresult get_edges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    struct sim_graph *graph = sim_graph_of(handle);
    if (!graph || !count || !from != !to)
        return CUDA_ERROR_INVALID_VALUE;
    size_t edges = 0;
    for (struct sim_node *node = graph->first; node; node = node->next) {
        for (size_t i = 0; i < node->depends_on; i++, edges++) {
            if (from && edges < *count) {
                from[edges] = (CUgraphNode)node->dependencies[i];
                to[edges] = (CUgraphNode)node;
            }
        }
    }
    *count = from && edges > *count ? *count : edges;
    return CUDA_SUCCESS;
}

#define NODE CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t count
SIM_EXPORT(cuGraphAddMemAllocNode, (NODE, CUDA_MEM_ALLOC_NODE_PARAMS *params),
           add_alloc(out, graph, dependencies, count, params))
SIM_EXPORT(cuGraphAddMemFreeNode, (NODE, CUdeviceptr ptr), add_free(out, graph, dependencies, count, ptr))
SIM_EXPORT(cuGraphAddEmptyNode, (NODE), add_other(out, graph, dependencies, count, NULL))
SIM_EXPORT(cuGraphAddChildGraphNode, (NODE, CUgraph child), add_child(out, graph, dependencies, count, child))
SIM_EXPORT(cuGraphAddNode, (NODE, CUgraphNodeParams *params), add_node(out, graph, dependencies, count, params))
SIM_EXPORT(cuGraphAddNode_v2,
           (CUgraphNode * out, CUgraph graph, const CUgraphNode *dependencies, const void *edges, size_t count,
            CUgraphNodeParams *params),
           ((void)edges, add_node(out, graph, dependencies, count, params)))
SIM_EXPORT(cuGraphNodeGetType, (CUgraphNode node, int *type), get_type(node, type))
SIM_EXPORT(cuGraphMemAllocNodeGetParams, (CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params), get_alloc(node, params))
SIM_EXPORT(cuGraphMemFreeNodeGetParams, (CUgraphNode node, CUdeviceptr *ptr), get_free(node, ptr))
SIM_EXPORT(cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph *graph), get_child(node, graph))
SIM_EXPORT(cuGraphGetEdges, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count),
           get_edges(graph, from, to, count))
SIM_EXPORT(cuGraphGetEdges_v2, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, void *edges, size_t *count),
           ((void)edges, get_edges(graph, from, to, count)))
