/*
 * torn ROUNDS: threads do all that takes memory in a context (allocate, also in arrays and by graphs, map, set limits, load code,
 * import), while another destroys it. Every other round they only allocate, and others allocate and free in a context that
 * stays, which may be given the same addresses at once, and set a limit of it. With all of them done what is charged is what the
 * card holds. Exit status 1 where it is not.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/driver.h"
#include "harness/image.h"
#include "harness/sizes.h"

#define THREADS 4
#define STAYING 2
#define MOST 8
#define KEPT 32

static struct driver cu;
static CUcontext context, primary;
static atomic_int going, freeing;
static int foreign;

/* The heap of kernels, of which the first 8 MiB are the context's own. */
static CUresult set_heap(int blocks) { return cu.ctx_set_limit(CU_LIMIT_MALLOC_HEAP_SIZE, (size_t)(8 + 2 * blocks) << 20); }

/* Physical memory of 18 MiB, which is released once a tile of an array has it. The array is destroyed, or goes with the context. */
static CUresult map_tile(int turn) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {512, 384, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};
    CUmemAllocationProp where = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUarrayMapInfo tile = {.deviceBitMask = 1, .memOperationType = CU_MEM_OPERATION_TYPE_MAP};
    tile.subresource.sparseLevel.extentWidth = tile.subresource.sparseLevel.extentHeight = 128;
    tile.subresource.sparseLevel.extentDepth = 1;
    CUresult code = cu.array_create_3d(&tile.resource.array, &shape);
    if (code || (code = cu.create(&tile.memHandle.memHandle, 18 << 20, &where, 0))) return code;
    CUmemGenericAllocationHandle memory = tile.memHandle.memHandle;
    code = cu.map_array(&tile, 1, NULL);
    while (cu.release(memory)) continue;
    tile.memHandle.memHandle = 0;
    tile.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
    if (!code && turn % 3 == 0) code = cu.map_array(&tile, 1, NULL);
    return turn % 2 ? cu.array_destroy(tile.resource.array) : code;
}

/* A graph that takes 6 MiB, and gives them back itself, or leaves that to us. */
static CUresult launch(int turn) {
    CUdeviceptr taken;
    CUstream stream;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUresult code = cu.stream_create(&stream, 0);
    if (code || (code = cu.capture_begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED))) return code;
    code = cu.alloc_async(&taken, 6 << 20, stream);
    if (!code && turn % 3) code = cu.free_async(taken, stream);
    if (!cu.capture_end(stream, &graph) && !code && !(code = cu.graph_instantiate(&exec, graph, 0)))
        code = cu.graph_launch(exec, stream);
    if (!code && turn % 3 == 0) code = cu.free(taken);
    if (exec) cu.graph_exec_destroy(exec);
    if (graph) cu.graph_destroy(graph);
    cu.stream_destroy(stream);
    return code;
}

/* Memory of another interface. It is destroyed, or goes with the context: then the descriptor, which is the driver's, is answered. */
static int import(int turn) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC what = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = 8 << 20};
    CUexternalMemory memory;
    what.handle.fd = dup(foreign);
    if (cu.external_import(&memory, &what)) close(what.handle.fd);
    else if (turn % 8 == 0 || cu.external_destroy(memory)) return what.handle.fd;
    return -1;
}

/* One thread also loads code, which takes its time. */
static void *play(void *loads) {
    char text[256];
    CUdeviceptr at[MOST];
    CUarray arrays[MOST];
    const CUDA_ARRAY3D_DESCRIPTOR shape = {512, 512, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    int held = 0, refused = 0, turn = 0, kept = 0, left[KEPT];
    cu.ctx_set(context);
    while (atomic_load(&going) && refused < 50) {
        if (!atomic_load(&freeing)) {
            refused += cu.alloc(&at[0], 2 << 20) != 0;
            continue;
        }
        CUmodule module;
        if (loads && cu.module_load(&module, image_with(text, sizeof text, 12 << 20))) refused++;
        else if (loads && turn % 2) refused += cu.module_unload(module) != 0;
        if (!loads) refused += map_tile(turn) || launch(turn);
        refused += set_heap(held) != 0;
        if (kept < KEPT && (left[kept] = import(turn)) >= 0) kept++;
        turn++;
        if (held < MOST) {
            CUresult code = held % 2 ? cu.alloc(&at[held], 4 << 20) : cu.array_create_3d(&arrays[held], &shape);
            if (code) refused++;
            else held++;
        }
        if (held > MOST / 2) {
            held--;
            if (held % 2 ? cu.free(at[held]) : cu.array_destroy(arrays[held])) refused++;
        }
    }
    while (kept) close(left[--kept]);
    return NULL;
}

/* Leaves what it has last in `kept`, 0 where that is nothing. */
static void *stay(void *kept) {
    CUdeviceptr *at = kept;
    cu.ctx_set(primary);
    for (int i = 0; atomic_load(&going); i = (i + 1) % MOST) {
        if (at[i] && cu.free(at[i])) break;
        at[i] = 0;
        if (set_heap(i) || cu.alloc(&at[i], 4 << 20)) at[i] = 0;
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 2) return 3;
    unsigned long long (*process_bytes)(int) = dlsym(driver_library(), "simgpu_process_bytes");
    cu = reach_driver("dlsym");
    if (!process_bytes || cu.init(0) || cu.primary_retain(&primary, 0) || cu.ctx_set(primary)) return 3;
    foreign = memfd_create("foreign", MFD_CLOEXEC);
    for (int round = 0; round < atoi(argv[1]); round++) {
        int staying = round % 2 ? STAYING : 0;
        pthread_t ids[THREADS + STAYING];
        CUdeviceptr kept[STAYING][MOST] = {0};
        if (cu.ctx_create(&context, 0, 0) || cu.ctx_set(primary)) return 3;
        atomic_store(&going, 1);
        atomic_store(&freeing, !staying);
        for (int i = 0; i < THREADS; i++) pthread_create(&ids[i], NULL, play, i ? NULL : &cu);
        for (int i = 0; i < staying; i++) pthread_create(&ids[THREADS + i], NULL, stay, kept[i]);
        usleep((staying ? 100 : 1000) + 100 * (round % 20));
        CUresult destroyed = cu.ctx_destroy(context);
        atomic_store(&going, 0);
        for (int i = 0; i < THREADS + staying; i++) pthread_join(ids[i], NULL);
        size_t free = 0, total = 0;
        CUresult code = set_heap(0);
        if (!code) code = cu.mem_info(&free, &total);
        if (destroyed || code || total - free != process_bytes(0)) {
            printf("round %d: %d, then %d, %zu charged, %llu held\n", round, destroyed, code, total - free, process_bytes(0));
            return 1;
        }
        for (int i = 0; i < staying; i++)
            for (int j = 0; j < MOST; j++)
                if (kept[i][j] && cu.free(kept[i][j])) return 4;
    }
    return 0;
}
