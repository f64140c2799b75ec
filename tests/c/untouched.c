/* Whose functions are those that nobody needs to hook? */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    static const char *const asked[][2] = {
        {"libcuda.so.1", "cuLaunchKernel"}, {"libcuda.so.1", "cuMemcpyHtoD_v2"}, {"libnvidia-ml.so.1", "nvmlDeviceGetName"}};
    for (int i = 0; i < 3; i++) {
        Dl_info info;
        void *function = dlsym(dlopen(asked[i][0], RTLD_NOW), asked[i][1]);
        int theirs = function && dladdr(function, &info) && strstr(info.dli_fname, asked[i][0]);
        printf("%s: %s\n", asked[i][1], theirs ? "the driver's" : "another's");
    }
    return 0;
}
