/*
 * Drives real allocations: each argument is a command, each prints one line, "command -> code" and what it read. The
 * same commands run on the bare driver and under the library, and their output is compared.
 *
 * HARNESS_ROUTE names the way to the driver (default dlsym). Exit status 0 unless a command is not understood: what
 * the driver answers is output, not failure.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/driver.h"
#include "harness/sizes.h"

#define UNTOUCHED 0x11

static struct driver cu;
static CUdevice device;
static size_t base;

/* Things by the names that commands give them. */
enum kind { ADDRESS, HANDLE, RESERVED, ARRAY, MIPMAP, POOL, CONTEXT, STREAM, GRAPH, EXEC, GREEN, MODULE, LIBRARY, FUNCTION, KINDS };
static struct thing {
    char name[32];
    unsigned long long value;
    size_t bytes;
    unsigned long long extra;
} things[KINDS][20000];
static int counts[KINDS];

static struct thing *find(enum kind kind, const char *name) {
    for (int i = counts[kind] - 1; i >= 0; i--)
        if (!strcmp(things[kind][i].name, name)) return &things[kind][i];
    if (counts[kind] == 20000) exit(3);
    struct thing *thing = &things[kind][counts[kind]++];
    snprintf(thing->name, sizeof thing->name, "%s", name);
    thing->value = UNTOUCHED;
    return thing;
}

static CUresult usage(size_t *used) {
    size_t free = 0, total = 0;
    CUresult code = cu.mem_info(&free, &total);
    *used = total - free;
    return code;
}

/* The card's own view, behind everybody's back; -1 on a driver without the back door. */
static long long card_used(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    unsigned long long (*used)(int) = library ? dlsym(library, "simgpu_card_used") : NULL;
    return used ? (long long)used(device) : -1;
}

static CUmemAllocationProp on_device(void) {
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    return properties;
}

static void say(const char *command, CUresult code, const char *rest) {
    printf("%s -> %d%s%s\n", command, code, *rest ? " " : "", rest);
}

static const char *kept(unsigned long long value, CUresult code) {
    return code && value != UNTOUCHED ? "TOUCHED" : "";
}

/* One command of words w[0..n]; 0 if it is not understood. */
static int memory_command(const char *command, char **w, int n);
static int context_command(const char *command, char **w, int n);
static int object_command(const char *command, char **w, int n);
static int graph_command(const char *command, char **w, int n);
static int sparse_command(const char *command, char **w, int n);
static int multicast_command(const char *command, char **w, int n);
static int green_command(const char *command, char **w, int n);
static int module_command(const char *command, char **w, int n);

int main(int argc, char **argv) {
    const char *route = getenv("HARNESS_ROUTE");
    cu = reach_driver(route ? route : "dlsym");
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        char *copy = strdup(argv[i]), *w[8] = {0}, *save = NULL;
        int n = 0;
        for (char *word = strtok_r(copy, " ", &save); word && n < 8; word = strtok_r(NULL, " ", &save)) w[n++] = word;
        if (!n || !(context_command(argv[i], w, n) || memory_command(argv[i], w, n) || object_command(argv[i], w, n) ||
                    graph_command(argv[i], w, n) || sparse_command(argv[i], w, n) || multicast_command(argv[i], w, n) ||
                    green_command(argv[i], w, n) || module_command(argv[i], w, n))) {
            fprintf(stderr, "harness: unknown command '%s'\n", argv[i]);
            return 3;
        }
        free(copy);
    }
    return 0;
}

#define IS(command, words) (!strcmp(w[0], command) && n == (words))

#include "harness/bound.h"
#include "harness/graphs.h"
#include "harness/green.h"
#include "harness/modules.h"

static int context_command(const char *command, char **w, int n) {
    char rest[160] = "";
    CUresult code = 0;
    size_t free = 77, total = 77, used;
    if (IS("init", 1)) code = cu.init(0);
    else if (IS("device", 2)) code = cu.device_get(&device, atoi(w[1]));
    else if (IS("primary", 1)) {
        struct thing *context = find(CONTEXT, "primary");
        if (!(code = cu.primary_retain((CUcontext *)&context->value, device)))
            code = cu.ctx_set((CUcontext)context->value);
    } else if (IS("retain-primary", 1)) {
        CUcontext context;
        code = cu.primary_retain(&context, device);
    } else if (IS("release-primary", 1)) code = cu.primary_release(device);
    else if (IS("reset-primary", 1)) code = cu.primary_reset(device);
    else if (IS("context", 2)) code = cu.ctx_create((CUcontext *)&find(CONTEXT, w[1])->value, 0, device);
    else if (IS("destroy-context", 2)) code = cu.ctx_destroy((CUcontext)find(CONTEXT, w[1])->value);
    else if (IS("attach", 2)) code = cu.ctx_attach((CUcontext *)&find(CONTEXT, w[1])->value, 0);
    else if (IS("detach", 2)) code = cu.ctx_detach((CUcontext)find(CONTEXT, w[1])->value);
    else if (IS("set-context", 2))
        code = cu.ctx_set(strcmp(w[1], "none") ? (CUcontext)find(CONTEXT, w[1])->value : NULL);
    else if (IS("sync", 1)) code = cu.ctx_sync();
    else if (IS("total", 1)) {
        code = cu.total_mem(&total, device);
        snprintf(rest, sizeof rest, "%s", print_size(total));
    } else if (IS("info", 1) || IS("info", 2)) {
        /* "info", or with one or both outputs left out: "info free", "info total", "info none" */
        int want_free = n == 1 || !strcmp(w[1], "free"), want_total = n == 1 || !strcmp(w[1], "total");
        code = cu.mem_info(want_free ? &free : NULL, want_total ? &total : NULL);
        snprintf(rest, sizeof rest, "free=%s total=%s", print_size(free), print_size(total));
    } else if (IS("base", 1)) {
        code = usage(&base);
    } else if (IS("used", 1)) {
        code = usage(&used);
        snprintf(rest, sizeof rest, "%s", print_size((long long)(used - base)));
    } else if (IS("card", 1)) {
        snprintf(rest, sizeof rest, "%s", print_size(card_used()));
    } else if (IS("difference", 1)) {
        /* What the library charges, against what the card lost: both since "base" and "card-base". */
        code = usage(&used);
        snprintf(rest, sizeof rest, "%s", print_size(card_used() - (long long)used));
    } else if (IS("fail", 4)) {
        int (*fail)(const char *, int, int) = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "simgpu_fail_next");
        code = fail ? fail(w[1], atoi(w[2]), atoi(w[3])) : -1;
    } else if (IS("live", 1)) {
        unsigned long long (*live)(void) = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "simgpu_live_allocations");
        snprintf(rest, sizeof rest, "%lld", live ? (long long)live() : -1);
    } else if (IS("say", 2)) {
        printf("%s\n", w[1]);
        fflush(stdout);
        return 1;
    } else if (IS("wait", 1)) {
        /* For the test to act: until a byte, or the end, of standard input. */
        char byte;
        fflush(stdout);
        if (read(0, &byte, 1) < 0) return 0;
        return 1;
    } else if (IS("sleep", 2)) {
        usleep(1000 * atoi(w[1]));
        return 1;
    } else return 0;
    say(command, code, rest);
    return 1;
}

static int memory_command(const char *command, char **w, int n) {
    char rest[160] = "";
    CUresult code = 0;
    struct thing *thing = NULL;
    if (IS("alloc", 3)) {
        thing = find(ADDRESS, w[1]);
        size_t bytes;
        if (!strncmp(w[2], "left", 4)) {
            /* "left", "left+1": what is free now */
            size_t free = 0, total;
            cu.mem_info(&free, &total);
            bytes = free + (w[2][4] ? (size_t)atoll(w[2] + 4) : 0);
        } else bytes = parse_size(w[2]);
        thing->value = UNTOUCHED;
        code = cu.alloc(&thing->value, bytes);
    } else if (IS("alloc-null", 2)) {
        code = cu.alloc(NULL, parse_size(w[1]));
    } else if (IS("alloc-many", 3)) {
        /* COUNT allocations of one SIZE; the code of the first that fails */
        int granted = 0;
        for (; granted < atoi(w[1]) && !code; granted += !code) {
            struct thing *one = &things[ADDRESS][counts[ADDRESS]];
            strcpy(one->name, "*");
            if (!(code = cu.alloc(&one->value, parse_size(w[2])))) counts[ADDRESS]++;
        }
        snprintf(rest, sizeof rest, "granted=%d", granted);
    } else if (IS("free-many", 2)) {
        /* every Nth of those */
        for (int i = 0, nth = 0; i < counts[ADDRESS] && !code; i++) {
            struct thing *one = &things[ADDRESS][i];
            if (!strcmp(one->name, "*") && nth++ % atoi(w[1]) == 0) code = cu.free(one->value), strcpy(one->name, "-");
        }
    } else if (IS("pitch", 4)) {
        size_t pitch = 0;
        thing = find(ADDRESS, w[1]);
        code = cu.alloc_pitch(&thing->value, &pitch, parse_size(w[2]), parse_size(w[3]), 4);
    } else if (IS("managed", 3)) {
        thing = find(ADDRESS, w[1]);
        code = cu.alloc_managed(&thing->value, parse_size(w[2]), CU_MEM_ATTACH_GLOBAL);
    } else if (IS("is-managed", 2)) {
        unsigned one = 77, many = 77;
        CUdeviceptr address = strcmp(w[1], "bad") ? find(ADDRESS, w[1])->value : 0xdead0000;
        CUpointer_attribute which = CU_POINTER_ATTRIBUTE_IS_MANAGED;
        void *out = &many;
        code = cu.pointer_attribute(&one, which, address);
        CUresult second = cu.pointer_attributes(1, &which, &out, address);
        snprintf(rest, sizeof rest, "%u then %d %u", one, second, many);
    } else if (IS("free", 2)) code = cu.free(find(ADDRESS, w[1])->value);
    else if (IS("free-address", 2)) code = cu.free(parse_size(w[1]));
    else if (IS("alloc-async", 3)) {
        thing = find(ADDRESS, w[1]);
        code = cu.alloc_async(&thing->value, parse_size(w[2]), NULL);
    } else if (IS("alloc-pool", 4)) {
        thing = find(ADDRESS, w[1]);
        thing->value = UNTOUCHED;
        code = cu.alloc_from_pool(&thing->value, parse_size(w[3]), (CUmemoryPool)find(POOL, w[2])->value, NULL);
    } else if (IS("free-async", 2)) code = cu.free_async(find(ADDRESS, w[1])->value, NULL);
    else if (IS("copy", 2)) {
        /* Writes a pattern and reads it back. */
        unsigned char to[4096], from[4096];
        for (size_t i = 0; i < sizeof to; i++) to[i] = (unsigned char)(i * 7 + 3);
        CUdeviceptr address = find(ADDRESS, w[1])->value;
        if (!(code = cu.copy_to_device(address, to, sizeof to))) code = cu.copy_to_host(from, address, sizeof from);
        snprintf(rest, sizeof rest, "%s", code ? "" : memcmp(to, from, sizeof to) ? "DIFFERENT" : "same");
    } else return 0;
    say(command, code, thing ? kept(thing->value, code) : rest);
    return 1;
}

static int object_command(const char *command, char **w, int n) {
    char rest[160] = "";
    CUresult code = 0;
    if (IS("pool", 2) || IS("managed-pool", 2)) {
        /* a managed one prefers no place */
        CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED};
        if (!strcmp(w[0], "pool")) {
            properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
            properties.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
        }
        code = cu.pool_create((CUmemoryPool *)&find(POOL, w[1])->value, &properties);
    } else if (IS("default-pool", 2)) code = cu.pool_default((CUmemoryPool *)&find(POOL, w[1])->value, device);
    else if (IS("destroy-pool", 2)) code = cu.pool_destroy((CUmemoryPool)find(POOL, w[1])->value);
    else if (IS("threshold", 3)) {
        uint64_t bytes = parse_size(w[2]);
        code = cu.pool_set((CUmemoryPool)find(POOL, w[1])->value, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes);
    } else if (IS("trim", 3)) code = cu.pool_trim((CUmemoryPool)find(POOL, w[1])->value, parse_size(w[2]));
    else if (IS("held", 2)) {
        uint64_t bytes = 0;
        code = cu.pool_get((CUmemoryPool)find(POOL, w[1])->value, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
        snprintf(rest, sizeof rest, "%s", print_size(bytes));
    } else if (IS("rounds", 3)) {
        /* COUNT rounds of allocate, free and synchronise in the default pool */
        for (int i = 0; i < atoi(w[1]) && !code; i++) {
            CUdeviceptr address;
            if (!(code = cu.alloc_async(&address, parse_size(w[2]), NULL)) && !(code = cu.free_async(address, NULL)))
                code = cu.stream_sync(NULL);
        }
    } else if (IS("stream", 2)) code = cu.stream_create((CUstream *)&find(STREAM, w[1])->value, 0);
    else if (IS("destroy-stream", 2)) code = cu.stream_destroy((CUstream)find(STREAM, w[1])->value);
    else if (IS("capture", 2)) code = cu.capture_begin((CUstream)find(STREAM, w[1])->value, 0);
    else if (IS("end-capture", 2)) {
        CUgraph graph;
        code = cu.capture_end((CUstream)find(STREAM, w[1])->value, &graph);
    } else if (IS("alloc-stream", 4)) {
        struct thing *thing = find(ADDRESS, w[1]);
        code = cu.alloc_async(&thing->value, parse_size(w[3]), (CUstream)find(STREAM, w[2])->value);
    } else if (IS("alloc-pool-stream", 5)) {
        /* alloc-pool-stream ADDRESS POOL STREAM SIZE */
        struct thing *thing = find(ADDRESS, w[1]);
        code = cu.alloc_from_pool(&thing->value, parse_size(w[4]), (CUmemoryPool)find(POOL, w[2])->value,
                                  (CUstream)find(STREAM, w[3])->value);
    } else if (IS("create", 3)) {
        struct thing *thing = find(HANDLE, w[1]);
        CUmemAllocationProp properties = on_device();
        thing->value = UNTOUCHED;
        thing->bytes = parse_size(w[2]);
        code = cu.create(&thing->value, thing->bytes, &properties, 0);
        snprintf(rest, sizeof rest, "%s", kept(thing->value, code));
    } else if (IS("release", 2)) code = cu.release(find(HANDLE, w[1])->value);
    else if (IS("reserve", 3)) {
        struct thing *thing = find(RESERVED, w[1]);
        thing->bytes = parse_size(w[2]);
        code = cu.address_reserve(&thing->value, thing->bytes, 0, 0, 0);
    } else if (IS("unreserve", 2)) {
        struct thing *thing = find(RESERVED, w[1]);
        code = cu.address_free(thing->value, thing->bytes);
    } else if (IS("map", 3) || IS("map", 4)) {
        /* map RESERVED HANDLE [OFFSET] */
        struct thing *handle = find(HANDLE, w[2]);
        size_t offset = n == 4 ? parse_size(w[3]) : 0;
        code = cu.map(find(RESERVED, w[1])->value + offset, handle->bytes, 0, handle->value, 0);
    } else if (IS("unmap", 3) || IS("unmap", 4)) {
        /* unmap RESERVED SIZE [OFFSET] */
        size_t offset = n == 4 ? parse_size(w[3]) : 0;
        code = cu.unmap(find(RESERVED, w[1])->value + offset, parse_size(w[2]));
    } else if (IS("retain", 3)) {
        /* retain NEW-HANDLE RESERVED */
        code = cu.retain(&find(HANDLE, w[1])->value, (void *)find(RESERVED, w[2])->value);
    } else if (IS("array", 4)) {
        CUDA_ARRAY_DESCRIPTOR shape = {parse_size(w[2]), parse_size(w[3]), CU_AD_FORMAT_FLOAT, 1};
        code = cu.array_create((CUarray *)&find(ARRAY, w[1])->value, &shape);
    } else if (IS("array3d", 5)) {
        CUDA_ARRAY3D_DESCRIPTOR shape = {parse_size(w[2]), parse_size(w[3]), parse_size(w[4]), CU_AD_FORMAT_FLOAT, 1, 0};
        code = cu.array_create_3d((CUarray *)&find(ARRAY, w[1])->value, &shape);
    } else if (IS("destroy-array", 2)) code = cu.array_destroy((CUarray)find(ARRAY, w[1])->value);
    else if (IS("mipmap", 5)) {
        CUDA_ARRAY3D_DESCRIPTOR shape = {parse_size(w[2]), parse_size(w[3]), 0, CU_AD_FORMAT_FLOAT, 1, 0};
        code = cu.mipmap_create((CUmipmappedArray *)&find(MIPMAP, w[1])->value, &shape, atoi(w[4]));
    } else if (IS("layered-mipmap", 6)) {
        CUDA_ARRAY3D_DESCRIPTOR shape = {parse_size(w[2]), parse_size(w[3]), parse_size(w[4]), CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED};
        code = cu.mipmap_create((CUmipmappedArray *)&find(MIPMAP, w[1])->value, &shape, atoi(w[5]));
    } else if (IS("destroy-mipmap", 2)) code = cu.mipmap_destroy((CUmipmappedArray)find(MIPMAP, w[1])->value);
    else return 0;
    say(command, code, rest);
    return 1;
}
