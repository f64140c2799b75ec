/* A library with a function of its own that happens to have a hooked name. */
#include <stddef.h>

int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
    *address = bytes;
    return 4711;
}
