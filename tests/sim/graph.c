/* Graphs as captures make them: a list of work, done in order at every launch. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

struct sim_graph *sim_graph_new(void)
{
    struct sim_graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        return NULL;
    graph->last = &graph->first;
    graph->references = 1;
    return graph;
}

struct sim_graph *sim_graph_of(CUgraph handle)
{
    return sim_handle_is(handle, SIM_GRAPH) ? (struct sim_graph *)handle : NULL;
}

struct sim_node *sim_node_of(CUgraphNode handle)
{
    return sim_handle_is(handle, SIM_GRAPH_NODE) ? (struct sim_node *)handle : NULL;
}

struct sim_node *sim_node_new(struct sim_graph *graph, enum sim_node_type type, CUresult (*run)(const void *),
                              const void *args, size_t size, struct sim_node *const *dependencies, size_t count)
{
    struct sim_node *node = malloc(sizeof *node + size);
    struct sim_node **copy = count ? malloc(count * sizeof(struct sim_node *)) : NULL;
    if (!node || (count && !copy)) {
        free(node);
        free(copy);
        return NULL;
    }
    *node = (struct sim_node){
        .type = type, .graph = graph, .dependencies = copy, .depends_on = count, .run = run, .size = size};
    if (count)
        memcpy(copy, dependencies, count * sizeof *copy);
    if (size)
        memcpy(node->args, args, size);
    *graph->last = graph->tail = node;
    graph->last = &node->next;
    graph->nodes++;
    sim_handle_add(node, SIM_GRAPH_NODE);
    return node;
}

struct sim_node *sim_graph_tail(struct sim_graph *graph) { return graph->tail; }

/* What a capture records depends on what it recorded before. */
bool sim_graph_add(struct sim_graph *graph, CUresult (*run)(const void *), const void *args, size_t size)
{
    struct sim_node *before = sim_graph_tail(graph);
    return sim_node_new(graph, SIM_NODE_KERNEL, run, args, size, &before, before ? 1 : 0);
}

void sim_graph_free(struct sim_graph *graph)
{
    if (--graph->references)
        return;
    for (struct sim_node *node = graph->first, *next; node; node = next) {
        next = node->next;
        if (node->child)
            sim_graph_free(node->child);
        sim_handle_drop(node);
        free(node->dependencies);
        free(node);
    }
    for (size_t i = 0; i < graph->owned; i++)
        sim_region_abandon(graph->regions[i]);
    sim_handle_drop(graph); /* as a child it may have got a handle of its own */
    free(graph->regions);
    free(graph);
}

bool sim_graph_own(struct sim_graph *graph, struct sim_region *region)
{
    struct sim_region **grown = realloc(graph->regions, (graph->owned + 1) * sizeof *grown);
    if (!grown)
        return false;
    graph->regions = grown;
    graph->regions[graph->owned++] = region;
    return true;
}

enum { AUTO_FREE_ON_LAUNCH = 1 };

struct graph_exec {
    struct sim_graph *graph;
    unsigned long long flags;
};

static CUresult create(CUgraph *out, unsigned flags)
{
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_graph *graph = sim_graph_new();
    if (!graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_handle_add(graph, SIM_GRAPH);
    *out = (CUgraph)graph;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUgraph handle)
{
    if (!sim_handle_is(handle, SIM_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    sim_handle_drop(handle);
    sim_graph_free((struct sim_graph *)handle);
    return CUDA_SUCCESS;
}

static CUresult get_nodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
    if (!sim_handle_is(handle, SIM_GRAPH) || !count)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_graph *graph = (struct sim_graph *)handle;
    size_t i = 0;
    for (struct sim_node *node = graph->first; nodes && node && i < *count; node = node->next)
        nodes[i++] = (CUgraphNode)node;
    *count = nodes ? i : graph->nodes;
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (!out || !sim_handle_is(handle, SIM_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    struct graph_exec *exec = calloc(1, sizeof *exec);
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->graph = (struct sim_graph *)handle;
    exec->graph->references++;
    exec->flags = flags;
    sim_handle_add(exec, SIM_GRAPH_EXEC);
    *out = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

static CUresult exec_destroy(CUgraphExec handle)
{
    if (!sim_handle_is(handle, SIM_GRAPH_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    struct graph_exec *exec = (struct graph_exec *)handle;
    sim_handle_drop(exec);
    sim_graph_free(exec->graph);
    free(exec);
    return CUDA_SUCCESS;
}

CUresult sim_graph_run(const void *args)
{
    struct sim_graph *graph = *(struct sim_graph *const *)args;
    CUresult result = CUDA_SUCCESS;
    /* A host function of the graph may destroy it. */
    graph->references++;
    for (struct sim_node *node = graph->first; node && result == CUDA_SUCCESS; node = node->next)
        result = node->run ? node->run(node->args) : CUDA_SUCCESS;
    sim_graph_free(graph);
    return result;
}

/* Frees what a graph's launches left allocated. */
static void release_all(struct sim_graph *graph)
{
    for (size_t i = 0; i < graph->owned; i++) {
        if (graph->regions[i]->blocks)
            (void)sim_heap_release(graph->regions[i]->base);
    }
}

static bool any_left(const struct sim_graph *graph)
{
    for (size_t i = 0; i < graph->owned; i++) {
        if (graph->regions[i]->blocks)
            return true;
    }
    return false;
}

static CUresult launch(CUgraphExec handle, CUstream stream)
{
    if (!sim_handle_is(handle, SIM_GRAPH_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    struct graph_exec *exec = (struct graph_exec *)handle;
    struct sim_graph *graph = exec->graph;
    if (sim_stream_capturing(stream)) {
        /* Launching into a capture makes a child graph, which lives on in its parent. */
        CUgraph parent = NULL;
        CUresult result = sim_work(stream, sim_graph_run, &graph, sizeof graph);
        if (result == CUDA_SUCCESS && (parent = sim_stream_graph(stream))) {
            struct sim_node *node = sim_graph_tail((struct sim_graph *)parent);
            node->type = SIM_NODE_GRAPH;
            node->child = graph;
            graph->references++;
        }
        return result;
    }
    if (exec->flags & AUTO_FREE_ON_LAUNCH)
        release_all(graph);
    /* What an earlier launch allocated has to be freed first. */
    if (any_left(graph))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_work(stream, sim_graph_run, &graph, sizeof graph);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        release_all(graph);
    return result;
}

static CUresult upload(CUgraphExec handle, CUstream stream)
{
    return sim_handle_is(handle, SIM_GRAPH_EXEC) ? sim_stream_check(stream) : CUDA_ERROR_INVALID_VALUE;
}

/* flags, the stream to upload to, and the outcome */
struct instantiate_params {
    unsigned long long flags;
    CUstream stream;
    CUgraphNode error_node;
    int result;
};

static CUresult instantiate_params(CUgraphExec *out, CUgraph graph, struct instantiate_params *params)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = instantiate(out, graph, params->flags);
    params->error_node = NULL;
    params->result = result != CUDA_SUCCESS;
    return result;
}

SIM_EXPORT(cuGraphCreate, (CUgraph * out, unsigned flags), create(out, flags))
SIM_EXPORT(cuGraphDestroy, (CUgraph graph), destroy(graph))
SIM_EXPORT(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count), get_nodes(graph, nodes, count))
SIM_EXPORT(cuGraphInstantiate, (CUgraphExec * out, CUgraph graph, CUgraphNode *error, char *log, size_t size),
           ((void)error, (void)log, (void)size, instantiate(out, graph, 0)))
SIM_EXPORT(cuGraphInstantiate_v2, (CUgraphExec * out, CUgraph graph, CUgraphNode *error, char *log, size_t size),
           ((void)error, (void)log, (void)size, instantiate(out, graph, 0)))
SIM_EXPORT(cuGraphInstantiateWithFlags, (CUgraphExec * out, CUgraph graph, unsigned long long flags),
           instantiate(out, graph, flags))
SIM_EXPORT(cuGraphInstantiateWithParams, (CUgraphExec * out, CUgraph graph, struct instantiate_params *params),
           instantiate_params(out, graph, params))
SIM_EXPORT(cuGraphInstantiateWithParams_ptsz, (CUgraphExec * out, CUgraph graph, struct instantiate_params *params),
           instantiate_params(out, graph, params))
SIM_EXPORT(cuGraphExecDestroy, (CUgraphExec exec), exec_destroy(exec))
SIM_EXPORT(cuGraphLaunch, (CUgraphExec exec, CUstream stream), launch(exec, stream))
SIM_EXPORT(cuGraphLaunch_ptsz, (CUgraphExec exec, CUstream stream), launch(exec, sim_ptsz(stream)))
SIM_EXPORT(cuGraphUpload, (CUgraphExec exec, CUstream stream), upload(exec, stream))
SIM_EXPORT(cuGraphUpload_ptsz, (CUgraphExec exec, CUstream stream), upload(exec, sim_ptsz(stream)))
