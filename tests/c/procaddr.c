/* Asks cuGetProcAddress for each argument NAME@VERSION[:FLAGS] and prints the code, the status, and which exported
 * functions of the driver the pointer equals. "4:" before the name asks by the signature of four arguments. */
#include "open_driver.h"

#include <string.h>

typedef int ask4(const char *, void **, int, uint64_t);
typedef int ask5(const char *, void **, int, uint64_t, int *);

static void print_exports_at(void *driver, const char *base, void *found)
{
    static const char *const endings[] = {"", "_v2", "_v3", "_v4", "_ptsz", "_ptds", "_v2_ptsz", "_v2_ptds"};
    char name[128];
    bool any = false;
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        snprintf(name, sizeof name, "%s%s", base, endings[i]);
        if (*base && dlsym(driver, name) == found) {
            printf(" %s", name);
            any = true;
        }
    }
    if (!any)
        printf(" none");
}

int main(int argc, char **argv)
{
    void *driver = open_library("libcuda.so.1");
    ask4 *four = (ask4 *)function_of(driver, "cuGetProcAddress");
    ask5 *five = (ask5 *)function_of(driver, "cuGetProcAddress_v2");
    for (int i = 1; i < argc; i++) {
        char name[128] = "";
        int version = 0, status = -1;
        unsigned long long flags = 0;
        bool old = !strncmp(argv[i], "4:", 2);
        const char *asked = argv[i] + (old ? 2 : 0), *at = strchr(asked, '@');
        if (!at || sscanf(at, "@%d:%llu", &version, &flags) < 1) {
            fprintf(stderr, "want NAME@VERSION[:FLAGS], not %s\n", argv[i]);
            return 64;
        }
        snprintf(name, sizeof name, "%.*s", (int)(at - asked), asked);
        void *found = (void *)0x11;
        int code = old ? four(name, &found, version, flags) : five(name, &found, version, flags, &status);
        printf("%s %d %d", argv[i], code, status);
        if (found == (void *)0x11)
            printf(" untouched");
        else if (!found)
            printf(" null");
        else
            print_exports_at(driver, name, found);
        printf("\n");
    }
    void *found = (void *)0x11;
    printf("null status %d\n", five("cuInit", &found, 12000, 0, NULL));
    printf("null pointer %d %d\n", five("cuInit", NULL, 12000, 0, NULL), four("cuInit", NULL, 12000, 0));
    printf("null name %d\n", five(NULL, &found, 12000, 0, NULL));
    int version = 0, (*get_version)(int *) = NULL;
    five("cuDriverGetVersion", (void **)&get_version, 12000, 0, NULL);
    int code = get_version ? get_version(&version) : -1;
    printf("driver version %d %d\n", code, version);
    return 0;
}
