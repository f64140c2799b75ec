/*
 * loads PROCESSES THREADS ROUNDS: all of them load and unload modules and allocate beside, at the same time and each in its
 * own way, and then keep some. Prints what is charged beyond what the card has lost, in bytes: while all is held, and when all
 * have unloaded and freed everything.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/driver.h"
#include "harness/image.h"

#define MIB ((size_t)1 << 20)

static struct driver cu;
static CUcontext context;
static int rounds;

static CUmodule load(size_t bytes) {
    char text[256];
    CUmodule module = NULL;
    if (cu.module_load(&module, image_with(text, sizeof text, bytes))) return NULL;
    CUfunction function;
    cu.module_function(&function, module, "work");
    return module;
}

static void *play(void *of) {
    unsigned dice = (unsigned)(size_t)of + (unsigned)getpid();
    cu.ctx_set(context);
    for (int i = 0; i < rounds; i++) {
        CUmodule module = load((size_t)(rand_r(&dice) % 16) * MIB);
        CUdeviceptr address = 0;
        if (cu.alloc(&address, (size_t)(rand_r(&dice) % 32 + 1) * MIB)) address = 0;
        if (module) cu.module_unload(module);
        if (address) cu.free(address);
    }
    return load(10 * MIB);
}

static void child(int threads, int ready, int go, int end) {
    pthread_t ids[8];
    void *kept[8];
    char byte = 0;
    CUresult code = cu.init(0);
    if (code || (code = cu.primary_retain(&context, 0))) {
        fprintf(stderr, "loads: no context: %d\n", code);
        _exit(3);
    }
    for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, play, (void *)(size_t)(i * 7919 + 1));
    for (int i = 0; i < threads; i++) pthread_join(ids[i], &kept[i]);
    cu.ctx_set(context);
    if (write(ready, &byte, 1) != 1 || read(go, &byte, 1) != 1) _exit(3);
    for (int i = 0; i < threads; i++)
        if (kept[i]) cu.module_unload(kept[i]);
    if (write(ready, &byte, 1) != 1 || read(end, &byte, 1) != 1) _exit(3);
    _exit(0);
}

static void tell(const char *when) {
    unsigned long long (*used)(int) = dlsym(driver_library(), "simgpu_card_used");
    size_t free = 0, total = 0;
    CUresult code = cu.mem_info(&free, &total);
    printf("%s -> %d %lld\n", when, code, (long long)(total - free) - (long long)used(0));
}

int main(int argc, char **argv) {
    int processes = argc > 3 ? atoi(argv[1]) : 0, threads = argc > 3 ? atoi(argv[2]) : 0, ready[2], go[2], end[2];
    if (processes < 1 || processes > 8 || threads < 1 || threads > 8 || pipe(ready) || pipe(go) || pipe(end)) return 3;
    rounds = atoi(argv[3]);
    cu = reach_driver("dlsym");
    for (int i = 0; i < processes; i++)
        if (!fork()) {
            close(ready[0]), close(go[1]), close(end[1]);
            child(threads, ready[1], go[0], end[0]);
        }
    char byte = 0;
    close(ready[1]), close(go[0]), close(end[0]);
    for (int i = 0; i < processes; i++)
        if (read(ready[0], &byte, 1) != 1) return 3;
    if (cu.init(0) || cu.primary_retain(&context, 0) || cu.ctx_set(context)) return 3;
    tell("held");
    for (int i = 0; i < processes; i++)
        if (write(go[1], &byte, 1) != 1) return 3;
    for (int i = 0; i < processes; i++)
        if (read(ready[0], &byte, 1) != 1) return 3;
    tell("unloaded");
    for (int i = 0; i < processes; i++)
        if (write(end[1], &byte, 1) != 1) return 3;
    while (wait(NULL) > 0) continue;
    return 0;
}
