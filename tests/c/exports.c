/* Reads names from stdin, a line each, and says of the library named by the argument which of them it lacks and which
 * two have one address. */
#include "open_driver.h"

#include <string.h>

struct export {
    char name[128];
    void *at;
};

static int by_address(const void *a, const void *b)
{
    const struct export *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

int main(int argc, char **argv)
{
    static struct export found[4096];
    size_t count = 0;
    void *library = open_library(argc > 1 ? argv[1] : "");
    for (char line[128]; fgets(line, sizeof line, stdin) && count < 4096;) {
        line[strcspn(line, "\n")] = 0;
        void *at = dlsym(library, line);
        if (!at) {
            printf("missing %s\n", line);
            continue;
        }
        strcpy(found[count].name, line);
        found[count++].at = at;
    }
    qsort(found, count, sizeof *found, by_address);
    for (size_t i = 1; i < count; i++)
        if (found[i].at == found[i - 1].at)
            printf("same address %s %s\n", found[i - 1].name, found[i].name);
    printf("found %zu\n", count);
    return 0;
}
