/* dlvsym LIBRARY: looks up by dlvsym, plainly and through a dlvsym that was itself looked up. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

static const char *whose(void *library, void *function) {
    Dl_info ours, theirs;
    if (!function) return "nothing";
    if (!dladdr(function, &ours) || !dladdr(dlsym(library, "unhooked"), &theirs)) return "nowhere";
    return ours.dli_fbase == theirs.dli_fbase ? "driver" : "hook";
}

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    void *(*found)(void *, const char *, const char *) = dlsym(RTLD_DEFAULT, "dlvsym");
    if (!library || !found) return 3;
    printf("plain: %s\n", whose(library, dlvsym(library, "cuMemAlloc_v2", "")));
    printf("looked up: %s\n", whose(library, found(library, "cuMemAlloc_v2", "")));
    printf("unhooked: %s\n", whose(library, dlvsym(library, "unhooked", "")));
    printf("absent: %s\n", whose(library, dlvsym(library, "cuMemFree_v2", "")));
    return 0;
}
