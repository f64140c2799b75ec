/*
 * captures_beside CAPTURES: one thread begins and ends captures, while others ask for memory of pools, free it, and ask how much
 * is free, on streams of their own. A driver bears all of that, also of a capture that no unsafe call of any thread may meet.
 *
 * Prints how many captures did not end well, and with which code the last of them. Exit status 1 where there are any.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "harness/driver.h"
#include "harness/sizes.h"

enum { OTHERS = 3 };

static struct driver cu;
static CUcontext primary;
static atomic_int going = 1, failed;

static void *allocate(void *unused) {
    (void)unused;
    CUstream stream;
    CUdeviceptr at;
    size_t free, total;
    cu.ctx_set(primary);
    if (cu.stream_create(&stream, CU_STREAM_NON_BLOCKING)) atomic_fetch_add(&failed, 1);
    while (atomic_load(&going))
        if (cu.alloc_async(&at, 2 << 20, stream) || cu.mem_info(&free, &total) || cu.free_async(at, stream))
            atomic_fetch_add(&failed, 1);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 2) return 3;
    int broken = 0, last = 0;
    cu = reach_driver("dlsym");
    CUstream stream;
    pthread_t others[OTHERS];
    if (cu.init(0) || cu.primary_retain(&primary, 0) || cu.ctx_set(primary)) return 3;
    if (cu.stream_create(&stream, CU_STREAM_NON_BLOCKING)) return 3;
    for (int i = 0; i < OTHERS; i++) pthread_create(&others[i], NULL, allocate, NULL);
    for (int left = atoi(argv[1]); left > 0; left--) {
        CUgraph graph = NULL;
        int code = (int)cu.capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
        if (!code) code = (int)cu.capture_end(stream, &graph);
        if (graph) cu.graph_destroy(graph);
        if (code) broken++, last = code;
    }
    atomic_store(&going, 0);
    for (int i = 0; i < OTHERS; i++) pthread_join(others[i], NULL);
    printf("%d captures broken, at last with %d; %d requests failed\n", broken, last, atomic_load(&failed));
    return broken || atomic_load(&failed);
}
