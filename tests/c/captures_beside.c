/*
 * captures_beside CAPTURES ROUNDS: one thread begins and ends captures, each open until the others have done so many rounds more.
 * They ask for memory of pools, free it, and ask how much is free, on streams of their own; one makes and destroys streams, so
 * that the captured one has a handle that was another's before. A driver bears all of that, also of a capture that no unsafe call
 * of any thread may meet.
 *
 * Prints how many captures did not end well, and with which code the last of them. Exit status 1 where there are any.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "harness/driver.h"
#include "harness/sizes.h"

enum { OTHERS = 3 };

static struct driver cu;
static CUcontext primary;
static atomic_int going = 1, rounds, failed;

static void *allocate(void *unused) {
    (void)unused;
    CUstream stream;
    CUdeviceptr at;
    size_t free, total;
    cu.ctx_set(primary);
    if (cu.stream_create(&stream, CU_STREAM_NON_BLOCKING)) atomic_fetch_add(&failed, 1);
    for (; atomic_load(&going); atomic_fetch_add(&rounds, 1))
        if (cu.alloc_async(&at, 2 << 20, stream) || cu.mem_info(&free, &total) || cu.free_async(at, stream))
            atomic_fetch_add(&failed, 1);
    return NULL;
}

static void *replace_streams(void *unused) {
    (void)unused;
    CUstream stream;
    cu.ctx_set(primary);
    while (atomic_load(&going))
        if (cu.stream_create(&stream, CU_STREAM_NON_BLOCKING) || cu.stream_destroy(stream)) atomic_fetch_add(&failed, 1);
    return NULL;
}

static int capture(int more) {
    CUstream stream;
    CUgraph graph;
    CUresult code = cu.stream_create(&stream, CU_STREAM_NON_BLOCKING);
    if (!code) code = cu.capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    for (int until = atomic_load(&rounds) + more; atomic_load(&rounds) < until;) sched_yield();
    if (!code) code = cu.capture_end(stream, &graph);
    if (!code) code = cu.graph_destroy(graph);
    if (!code) code = cu.stream_destroy(stream);
    return (int)code;
}

int main(int argc, char **argv) {
    if (argc != 3) return 3;
    int broken = 0, last = 0;
    pthread_t others[OTHERS], replacing;
    cu = reach_driver("dlsym");
    if (cu.init(0) || cu.primary_retain(&primary, 0) || cu.ctx_set(primary)) return 3;
    for (int i = 0; i < OTHERS; i++) pthread_create(&others[i], NULL, allocate, NULL);
    pthread_create(&replacing, NULL, replace_streams, NULL);
    for (int left = atoi(argv[1]); left > 0; left--) {
        int code = capture(atoi(argv[2]));
        if (code) broken++, last = code;
    }
    atomic_store(&going, 0);
    for (int i = 0; i < OTHERS; i++) pthread_join(others[i], NULL);
    pthread_join(replacing, NULL);
    printf("%d captures broken, at last with %d; %d requests failed\n", broken, last, atomic_load(&failed));
    return broken || atomic_load(&failed);
}
