/*
 * Commands about code: "module NAME BYTES", "function NAME MODULE", "library NAME BYTES", "library-module NAME LIBRARY",
 * "kernel NAME LIBRARY", "kernel-function NAME KERNEL", "load-function NAME", "run NAME", "unload NAME",
 * "unload-library NAME". BYTES are what the variables of the code take.
 */
#include "image.h"

static int module_command(const char *command, char **w, int n) {
    CUresult code = 0;
    struct thing *thing = NULL;
    char text[256];
    if (IS("module", 3)) {
        thing = find(MODULE, w[1]);
        thing->value = UNTOUCHED;
        code = cu.module_load((CUmodule *)&thing->value, image_with(text, sizeof text, parse_size(w[2])));
    } else if (IS("unload", 2)) code = cu.module_unload((CUmodule)find(MODULE, w[1])->value);
    else if (IS("function", 3)) {
        thing = find(FUNCTION, w[1]);
        code = cu.module_function((CUfunction *)&thing->value, (CUmodule)find(MODULE, w[2])->value, "work");
    } else if (IS("library", 3)) {
        thing = find(LIBRARY, w[1]);
        thing->value = UNTOUCHED;
        image_with(text, sizeof text, parse_size(w[2]));
        code = cu.library_load((CUlibrary *)&thing->value, text, NULL, NULL, 0, NULL, NULL, 0);
    } else if (IS("unload-library", 2)) code = cu.library_unload((CUlibrary)find(LIBRARY, w[1])->value);
    else if (IS("library-module", 3)) {
        thing = find(MODULE, w[1]);
        thing->value = UNTOUCHED;
        code = cu.library_module((CUmodule *)&thing->value, (CUlibrary)find(LIBRARY, w[2])->value);
    } else if (IS("kernel", 3)) {
        thing = find(FUNCTION, w[1]);
        code = cu.library_kernel((CUkernel *)&thing->value, (CUlibrary)find(LIBRARY, w[2])->value, "work");
    } else if (IS("kernel-function", 3)) {
        thing = find(FUNCTION, w[1]);
        code = cu.kernel_function((CUfunction *)&thing->value, (CUkernel)find(FUNCTION, w[2])->value);
    } else if (IS("load-function", 2)) code = cu.function_load((CUfunction)find(FUNCTION, w[1])->value);
    else if (IS("run", 2))
        code = cu.launch((CUfunction)find(FUNCTION, w[1])->value, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    else return 0;
    say(command, code, thing ? kept(thing->value, code) : "");
    return 1;
}
