/*
 * loads_beside KIND BYTES BESIDE: loads code whose variables take BYTES, while a program outside the container takes BESIDE
 * bytes of the same card. Prints what is charged for it, in bytes, then and after it was unloaded. KIND is ptx, elf, fat, file,
 * or library (loaded when it is asked for in the context).
 */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>

#include "harness/driver.h"
#include "harness/image.h"

static struct driver cu;
static int ask[2], answer[2];
static size_t base;

/* The program outside: takes memory when it is asked to. */
static int neighbour(size_t bytes) {
    char byte;
    CUcontext context;
    CUdeviceptr address;
    if (cu.init(0) || cu.primary_retain(&context, 0) || cu.ctx_set(context) || write(1, "c", 1) != 1) return 3;
    while (read(0, &byte, 1) == 1)
        if (cu.alloc(&address, bytes) || write(1, "a", 1) != 1) return 3;
    return 0;
}

static void loading(void) {
    static int once;
    char byte;
    if (!once++ && (write(ask[1], "a", 1) != 1 || read(answer[0], &byte, 1) != 1)) exit(3);
}

static void tell(const char *what, CUresult code) {
    size_t free = 0, total = 0;
    CUresult asked = cu.mem_info(&free, &total);
    printf("%s -> %d %lld\n", what, code ? code : asked, (long long)(total - free) - (long long)base);
}

int main(int argc, char **argv) {
    cu = reach_driver("dlsym");
    if (argc == 3 && !strcmp(argv[1], "outside")) return neighbour(strtoull(argv[2], NULL, 10));
    if (argc != 4 || pipe(ask) || pipe(answer)) return 3;
    pid_t outside = fork();
    if (!outside) {
        dup2(ask[0], 0), dup2(answer[1], 1);
        close(ask[1]), close(answer[0]);
        unsetenv("LD_PRELOAD");
        execl("/proc/self/exe", argv[0], "outside", argv[3], (char *)NULL);
        _exit(3);
    }
    close(ask[0]), close(answer[1]);
    const char *kind = argv[1];
    size_t bytes = strtoull(argv[2], NULL, 10), free, total;
    char text[256], path[] = "/tmp/cuquota-image-XXXXXX", byte;
    struct elf_image elf;
    struct fat_image fat;
    CUcontext context;
    CUmodule module = NULL;
    CUlibrary library = NULL;
    CUresult code;
    void (*while_loading)(void (*)(void)) = dlsym(driver_library(), "simgpu_while_loading");
    if (read(answer[0], &byte, 1) != 1 || cu.init(0) || cu.primary_retain(&context, 0) || cu.ctx_set(context)) return 3;
    if (cu.mem_info(&free, &total)) return 3;
    base = total - free;
    while_loading(loading);
    if (!strcmp(kind, "ptx")) code = cu.module_load(&module, image_with(text, sizeof text, bytes));
    else if (!strcmp(kind, "elf")) code = cu.module_load(&module, elf_with(&elf, bytes));
    else if (!strcmp(kind, "fat")) code = cu.module_load(&module, fat_with(&fat, bytes));
    else if (!strcmp(kind, "file")) {
        int file = mkstemp(path);
        elf_with(&elf, bytes);
        if (file < 0 || write(file, &elf, sizeof elf) != sizeof elf || close(file)) return 3;
        code = cu.module_load_file(&module, path);
        unlink(path);
    } else if (!strcmp(kind, "library")) {
        code = cu.library_load(&library, image_with(text, sizeof text, bytes), NULL, NULL, 0, NULL, NULL, 0);
        /* The image may be gone by now. */
        memset(text, 0, sizeof text);
        if (!code) code = cu.library_module(&module, library);
    } else return 3;
    tell("loaded", code);
    CUfunction function;
    if (!code) code = cu.module_function(&function, module, "work");
    tell("used", code);
    if (!code) code = library ? cu.library_unload(library) : cu.module_unload(module);
    tell("unloaded", code);
    close(ask[1]);
    int status = 1;
    return waitpid(outside, &status, 0) == outside && !status ? 0 : 3;
}
