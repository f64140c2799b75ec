/* Looks names of the driver up where no driver is loaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
    static const char *const names[] = {"cuInit", "cuMemAlloc_v2", "cuGetProcAddress_v2", "nvmlDeviceGetMemoryInfo", "no_such"};
    void *program = dlopen(NULL, RTLD_NOW), *libc = dlopen("libc.so.6", RTLD_NOW);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        printf("%s by default: %s\n", names[i], dlsym(RTLD_DEFAULT, names[i]) ? "found" : "absent");
        printf("%s next: %s\n", names[i], dlsym(RTLD_NEXT, names[i]) ? "found" : "absent");
        printf("%s in the program: %s\n", names[i], dlsym(program, names[i]) ? "found" : "absent");
        printf("%s in libc: %s\n", names[i], dlsym(libc, names[i]) ? "found" : "absent");
        printf("an error is told: %s\n", dlerror() ? "yes" : "no");
    }
    return 0;
}
