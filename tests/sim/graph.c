/* Graphs as captures make them: a list of work, done in order at every launch. */
#include "stream.h"

#include <stdlib.h>
#include <string.h>

struct node {
    struct node *next;
    CUresult (*run)(const void *); /* NULL: kernels and other work without effect here */
    size_t size;
    max_align_t args[];
};

struct sim_graph {
    struct node *first, **last;
    size_t nodes;
    unsigned references; /* the handle's, and those of what was instantiated from it */
    struct sim_region **regions;
    size_t owned;
};

struct sim_graph *sim_graph_new(void)
{
    struct sim_graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        return NULL;
    graph->last = &graph->first;
    graph->references = 1;
    return graph;
}

bool sim_graph_add(struct sim_graph *graph, CUresult (*run)(const void *), const void *args, size_t size)
{
    struct node *node = malloc(sizeof *node + size);
    if (!node)
        return false;
    *node = (struct node){.run = run, .size = size};
    if (size)
        memcpy(node->args, args, size);
    *graph->last = node;
    graph->last = &node->next;
    graph->nodes++;
    return true;
}

void sim_graph_free(struct sim_graph *graph)
{
    if (--graph->references)
        return;
    for (struct node *node = graph->first, *next; node; node = next) {
        next = node->next;
        free(node);
    }
    for (size_t i = 0; i < graph->owned; i++)
        sim_region_abandon(graph->regions[i]);
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

struct graph_exec {
    struct sim_graph *graph;
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
    for (struct node *node = graph->first; nodes && node && i < *count; node = node->next)
        nodes[i++] = (CUgraphNode)node;
    *count = nodes ? i : graph->nodes;
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *out, CUgraph handle)
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

struct launch {
    struct sim_graph *graph;
};

static CUresult run_graph(const void *args)
{
    struct sim_graph *graph = ((const struct launch *)args)->graph;
    CUresult result = CUDA_SUCCESS;
    /* A host function of the graph may destroy it. */
    graph->references++;
    for (struct node *node = graph->first; node && result == CUDA_SUCCESS; node = node->next)
        result = node->run ? node->run(node->args) : CUDA_SUCCESS;
    sim_graph_free(graph);
    return result;
}

static CUresult launch(CUgraphExec handle, CUstream stream)
{
    if (!sim_handle_is(handle, SIM_GRAPH_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    /* Launching into a capture makes a child graph, which lives on in its parent. */
    struct launch launch = {((struct graph_exec *)handle)->graph};
    if (sim_stream_capturing(stream))
        launch.graph->references++;
    return sim_work(stream, run_graph, &launch, sizeof launch);
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
    CUresult result = instantiate(out, graph);
    params->error_node = NULL;
    params->result = result != CUDA_SUCCESS;
    return result;
}

SIM_EXPORT(cuGraphCreate, (CUgraph * out, unsigned flags), create(out, flags))
SIM_EXPORT(cuGraphDestroy, (CUgraph graph), destroy(graph))
SIM_EXPORT(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count), get_nodes(graph, nodes, count))
SIM_EXPORT(cuGraphInstantiate, (CUgraphExec * out, CUgraph graph, CUgraphNode *error, char *log, size_t size),
           ((void)error, (void)log, (void)size, instantiate(out, graph)))
SIM_EXPORT(cuGraphInstantiate_v2, (CUgraphExec * out, CUgraph graph, CUgraphNode *error, char *log, size_t size),
           ((void)error, (void)log, (void)size, instantiate(out, graph)))
SIM_EXPORT(cuGraphInstantiateWithFlags, (CUgraphExec * out, CUgraph graph, unsigned long long flags),
           ((void)flags, instantiate(out, graph)))
SIM_EXPORT(cuGraphInstantiateWithParams, (CUgraphExec * out, CUgraph graph, struct instantiate_params *params),
           instantiate_params(out, graph, params))
SIM_EXPORT(cuGraphInstantiateWithParams_ptsz, (CUgraphExec * out, CUgraph graph, struct instantiate_params *params),
           instantiate_params(out, graph, params))
SIM_EXPORT(cuGraphExecDestroy, (CUgraphExec exec), exec_destroy(exec))
SIM_EXPORT(cuGraphLaunch, (CUgraphExec exec, CUstream stream), launch(exec, stream))
SIM_EXPORT(cuGraphLaunch_ptsz, (CUgraphExec exec, CUstream stream), launch(exec, sim_ptsz(stream)))
SIM_EXPORT(cuGraphUpload, (CUgraphExec exec, CUstream stream), upload(exec, stream))
SIM_EXPORT(cuGraphUpload_ptsz, (CUgraphExec exec, CUstream stream), upload(exec, sim_ptsz(stream)))
