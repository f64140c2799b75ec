/* Sizes as tests write them. */
#ifndef HARNESS_SIZES_H
#define HARNESS_SIZES_H

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "4GiB", "512MiB", "1000", "max" (SIZE_MAX), each optionally followed by "+N" or "-N". */
__attribute__((unused)) static size_t parse_size(const char *text) {
    size_t value;
    char *end;
    if (!strncmp(text, "max", 3)) {
        value = (size_t)-1;
        end = (char *)text + 3;
    } else {
        value = strtoull(text, &end, 0);
        if (!strncmp(end, "KiB", 3)) value <<= 10, end += 3;
        else if (!strncmp(end, "MiB", 3)) value <<= 20, end += 3;
        else if (!strncmp(end, "GiB", 3)) value <<= 30, end += 3;
    }
    if (*end == '+') value += strtoull(end + 1, &end, 0);
    else if (*end == '-') value -= strtoull(end + 1, &end, 0);
    if (*end) {
        fprintf(stderr, "harness: bad size %s\n", text);
        exit(3);
    }
    return value;
}

/* "512MiB" where that is exact, else bytes. */
__attribute__((unused)) static const char *print_size(long long bytes) {
    static char text[4][32];
    static int turn;
    char *out = text[turn++ % 4];
    if (bytes % (1 << 20) == 0) snprintf(out, sizeof text[0], "%lldMiB", bytes / (1 << 20));
    else snprintf(out, sizeof text[0], "%lld", bytes);
    return out;
}

#endif
