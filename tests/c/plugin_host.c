/* plugin_host PLUGIN [deep]: opens a plug-in, with RTLD_DEEPBIND if asked, and runs it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    if (argc < 2) return 3;
    void *plugin = dlopen(argv[1], RTLD_NOW | (argc > 2 ? RTLD_DEEPBIND : 0));
    void (*run)(void) = plugin ? dlsym(plugin, "run") : NULL;
    if (!run) return fprintf(stderr, "%s\n", dlerror()), 3;
    run();
    return 0;
}
