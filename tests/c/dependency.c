/* A library that needs nothing and asks for the driver's functions where those have been loaded that need it. */
#define _GNU_SOURCE
#include <dlfcn.h>

void *dependency_asks(const char *name) {
    void *volatile found = dlsym(RTLD_DEFAULT, name); /* from here, and not by a jump from whoever called */
    return found;
}
