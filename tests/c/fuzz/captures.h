/* Captures, open on one thread while others do other things: what they allocate takes memory when their graph is launched. */
#ifndef FUZZ_CAPTURES_H
#define FUZZ_CAPTURES_H

#include "player.h"

static void capture(struct player *me) {
    CUstream stream;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUdeviceptr made[3];
    size_t bytes[3];
    int count = 0, wanted = (int)below(me, 4), frees = (int)below(me, 2);
    if (cu.stream_create(&stream, 0)) return;
    CUresult code = cu.capture_begin(stream, (CUstreamCaptureMode)below(me, 3));
    if (!code) {
        while (count < wanted && !cu.alloc_async(&made[count], bytes[count] = 1 + below(me, 64 * MIB), stream)) count++;
        for (int i = 0; frees && i < count; i++) cu.free_async(made[i], stream);
        /* The other way for one to end. */
        if (!below(me, 8)) {
            note(me, "capture of %d, then no stream -> %d", count, cu.stream_destroy(stream));
            return;
        }
        code = cu.capture_end(stream, &graph);
    }
    if (!code) code = cu.graph_instantiate(&exec, graph, 0);
    if (!code) code = cu.graph_launch(exec, stream);
    note(me, "capture leaving %d -> %d", frees ? 0 : count, code);
    for (int i = 0; i < count && !frees && !code; i++) {
        if (pick(me, NONE)) keep(me, GRAPH_MEMORY, made[i], bytes[i], me->current);
        else while (cu.free(made[i])) continue;
    }
    if (exec) cu.graph_exec_destroy(exec);
    if (graph) cu.graph_destroy(graph);
    while (cu.stream_destroy(stream)) continue;
}

#endif
