/* The first of two libraries that define the same function: it calls on to the next. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

const char *chain(void) {
    static __thread char said[64];
    const char *(*next)(void) = dlsym(RTLD_NEXT, "chain");
    snprintf(said, sizeof said, "first then %s", !next ? "nothing" : next == chain ? "itself" : next());
    return said;
}
