/* Commands about graphs. Included by harness.c, whose names it uses. */
#ifndef HARNESS_GRAPHS_H
#define HARNESS_GRAPHS_H

/* Adds a node to a graph, after the one that was added last, unless it stands alone. */
static CUresult add_node(struct thing *graph, struct thing *address, CUgraphNodeParams *params, int alone) {
    CUgraphNode last = (CUgraphNode)graph->extra;
    size_t count = last && !alone;
    CUresult code = cu.graph_add((CUgraphNode *)&graph->extra, (CUgraph)graph->value, &last, count, params);
    if (code) graph->extra = (unsigned long long)last;
    else if (address) address->value = params->alloc.dptr;
    return code;
}

static int graph_command(const char *command, char **w, int n) {
    CUresult code = 0;
    struct thing *graph = n > 1 ? find(GRAPH, w[1]) : NULL;
    if (IS("graph", 2)) {
        code = cu.graph_create((CUgraph *)&graph->value, 0);
        graph->extra = 0;
    } else if (IS("graph-alloc", 4) || IS("graph-alloc-alone", 4)) {
        /* graph-alloc GRAPH ADDRESS SIZE */
        CUgraphNodeParams params = {.type = 10};
        params.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        params.alloc.poolProps.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
        params.alloc.bytesize = parse_size(w[3]);
        code = add_node(graph, find(ADDRESS, w[2]), &params, !strcmp(w[0], "graph-alloc-alone"));
    } else if (IS("graph-free", 3)) {
        CUgraphNode last = (CUgraphNode)graph->extra;
        code = cu.graph_add_free((CUgraphNode *)&graph->extra, (CUgraph)graph->value, &last, last != NULL,
                                 find(ADDRESS, w[2])->value);
    } else if (IS("graph-child", 3)) {
        CUgraphNode last = (CUgraphNode)graph->extra;
        CUgraph child = (CUgraph)find(GRAPH, w[2])->value;
        code = cu.graph_add_child((CUgraphNode *)&graph->extra, (CUgraph)graph->value, &last, last != NULL, child);
    } else if (IS("instantiate", 3) || IS("instantiate", 4)) {
        /* instantiate EXEC GRAPH [FLAGS] */
        CUgraph of = (CUgraph)find(GRAPH, w[2])->value;
        code = cu.graph_instantiate((CUgraphExec *)&find(EXEC, w[1])->value, of, n == 4 ? strtoull(w[3], NULL, 0) : 0);
    } else if (IS("launch", 2) || IS("launch", 3)) {
        /* launch EXEC [STREAM] */
        CUstream stream = n == 3 ? (CUstream)find(STREAM, w[2])->value : NULL;
        code = cu.graph_launch((CUgraphExec)find(EXEC, w[1])->value, stream);
    } else if (IS("destroy-exec", 2)) code = cu.graph_exec_destroy((CUgraphExec)find(EXEC, w[1])->value);
    else if (IS("destroy-graph", 2)) code = cu.graph_destroy((CUgraph)graph->value);
    else if (IS("trim-graphs", 1)) code = cu.graph_mem_trim(device);
    else if (IS("end-capture-to", 3)) {
        /* end-capture-to GRAPH STREAM */
        code = cu.capture_end((CUstream)find(STREAM, w[2])->value, (CUgraph *)&graph->value);
    } else if (IS("capture-own", 1)) {
        /* what a program calls whose default stream is each thread's own */
        CUresult (*begin)(CUstream, CUstreamCaptureMode) = dlsym(driver_library(), "cuStreamBeginCapture_v2_ptsz");
        code = begin ? begin(NULL, 0) : CUDA_ERROR_NOT_FOUND;
    } else if (IS("end-capture-own", 1)) {
        CUgraph of;
        CUresult (*end)(CUstream, CUgraph *) = dlsym(driver_library(), "cuStreamEndCapture_ptsz");
        code = end ? end(NULL, &of) : CUDA_ERROR_NOT_FOUND;
    } else if (IS("free-stream", 3)) {
        code = cu.free_async(find(ADDRESS, w[1])->value, (CUstream)find(STREAM, w[2])->value);
    } else if (IS("set-limit", 3)) code = cu.ctx_set_limit((CUlimit)atoi(w[1]), parse_size(w[2]));
    else return 0;
    say(command, code, "");
    return 1;
}

#endif
