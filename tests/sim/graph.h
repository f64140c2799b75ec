/* Graphs among their own files: graph.c (what they are and do), graph_node.c (built by hand), graph_memory.c. */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "stream.h"

/* CUgraphNodeType, as far as there are such nodes here. */
enum sim_node_type {
    SIM_NODE_KERNEL = 0, /* and whatever else a capture recorded */
    SIM_NODE_GRAPH = 4,
    SIM_NODE_EMPTY = 5,
    SIM_NODE_MEM_ALLOC = 10,
    SIM_NODE_MEM_FREE = 11,
};

struct sim_node {
    struct sim_node *next;
    enum sim_node_type type;
    struct sim_graph *graph, *child;
    struct sim_node **dependencies;
    size_t depends_on;
    CUresult (*run)(const void *); /* NULL: kernels and other work without effect here */
    size_t size;
    max_align_t args[];
};

struct sim_graph {
    struct sim_node *first, **last, *tail;
    size_t nodes;
    unsigned references; /* the handle's, and those of what was instantiated from it */
    struct sim_region **regions;
    size_t owned;
};

struct sim_graph *sim_graph_of(CUgraph handle);
struct sim_node *sim_node_of(CUgraphNode handle);
/* A node at the end of a graph; its dependencies are before it. NULL without memory. */
struct sim_node *sim_node_new(struct sim_graph *graph, enum sim_node_type type, CUresult (*run)(const void *),
                              const void *args, size_t size, struct sim_node *const *dependencies, size_t count);
/* The node that was added last. */
struct sim_node *sim_graph_tail(struct sim_graph *graph);
/* Runs what a graph does, as a child of another. `args` is its address. */
CUresult sim_graph_run(const void *args);

/* ---- graph_memory.c ---- */
/* A node that allocates `bytes` on a device, at an address known at once, or that frees. */
CUresult sim_graph_alloc_node(struct sim_graph *graph, CUdeviceptr *ptr, size_t bytes, CUdevice device,
                              struct sim_context *context, struct sim_node *const *dependencies, size_t count);
CUresult sim_graph_free_node(struct sim_graph *graph, CUdeviceptr ptr, struct sim_node *const *dependencies,
                             size_t count);

#endif
