/* namesake_host NAMESAKE: calls another library's cuMemAlloc_v2, by link and by look-up. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

extern int cuMemAlloc_v2(unsigned long long *, size_t);

int main(int argc, char **argv) {
    unsigned long long address;
    if (argc < 2) return 3;
    printf("linked %d\n", cuMemAlloc_v2(&address, 1));
    int (*found)(unsigned long long *, size_t) = dlsym(dlopen(argv[1], RTLD_NOW), "cuMemAlloc_v2");
    printf("dlsym %d\n", found ? found(&address, 1) : -1);
    found = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    printf("next %d\n", found ? found(&address, 1) : -1);
    return 0;
}
