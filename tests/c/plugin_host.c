/* plugin_host PLUGIN [deep|namespace] [lazy]: opens a plug-in, in the way asked for, and runs it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc < 2) return 3;
    const char *way = argc > 2 ? argv[2] : "";
    int mode = argc > 3 ? RTLD_LAZY : RTLD_NOW;
    void *plugin = !strcmp(way, "namespace") ? dlmopen(LM_ID_NEWLM, argv[1], mode)
                                             : dlopen(argv[1], mode | (*way ? RTLD_DEEPBIND : 0));
    void (*run)(void) = plugin ? dlsym(plugin, "run") : NULL;
    if (!run) return fprintf(stderr, "%s\n", dlerror()), 3;
    run();
    return 0;
}
