/* Tests dlerror after each look-up, as programs do: an error of an earlier one must be gone after one that succeeds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    static const char *const names[] = {"cuInit", "cuMemAlloc_v2", "cuLaunchKernel", "no_such", "cuMemFree_v2"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        void *scopes[] = {library, RTLD_DEFAULT, RTLD_NEXT};
        for (unsigned j = 0; j < 3; j++) {
            dlsym(library, "missing");
            void *found = dlsym(scopes[j], names[i]);
            printf("%s in scope %u: %s, error %s\n", names[i], j, found ? "found" : "absent", dlerror() ? "told" : "none");
        }
    }
    return 0;
}
