/* SIMGPU_SPEC: which cards the machine has and how its driver behaves. */
#define _GNU_SOURCE
#include "spec.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK (2ull << 20)
#define NVML_NOT_SUPPORTED 3
#define NVML_NO_PERMISSION 4

/* "16GiB", "1.5GiB", "512MiB", "4096": bytes. */
static bool parse_size(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"", 1},    {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
                 {"TiB", 0x1p40}, {"KB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
    if (text[0] < '0' || text[0] > '9')
        return false;
    size_t digits = strspn(text, "0123456789.");
    char number[32];
    if (digits >= sizeof number)
        return false;
    memcpy(number, text, digits);
    number[digits] = 0;
    char *end;
    double value = strtod(number, &end);
    if (*end)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (!strcmp(text + digits, units[i].unit)) {
            value *= units[i].factor;
            if (value >= 9e18)
                return false;
            *bytes = (uint64_t)value;
            return true;
        }
    return false;
}

/* "12.9": 12090. */
static bool parse_version(const char *text, int *version)
{
    unsigned major, minor;
    int used = 0;
    if (sscanf(text, "%2u.%1u%n", &major, &minor, &used) != 2 || text[used] || major < 2)
        return false;
    *version = (int)(major * 1000 + minor * 10);
    return true;
}

/* "200us", "2ms": microseconds. */
static bool parse_delay(const char *text, unsigned *us)
{
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    unsigned long value = strtoul(text, &end, 10);
    unsigned long factor = !strcmp(end, "us") ? 1 : !strcmp(end, "ms") ? 1000 : 0;
    if (!factor || value > 1000000 / factor)
        return false;
    *us = (unsigned)(value * factor);
    return true;
}

/* A word that must be one of `a` (false) and `b` (true). */
static bool parse_choice(const char *text, const char *a, const char *b, bool *is_b)
{
    *is_b = !strcmp(text, b);
    return *is_b || !strcmp(text, a);
}

static bool parse_nvml(const char *value, struct sim_spec *spec)
{
    bool denied, known = parse_choice(value, "notsupported", "nopermission", &denied);
    spec->nvml_memory_code = denied ? NVML_NO_PERMISSION : NVML_NOT_SUPPORTED;
    return known;
}

/* Takes the value of one option; NULL, or what it wants instead. */
static const char *parse_option(const char *key, const char *value, struct sim_spec *spec)
{
    if (!strcmp(key, "context"))
        return parse_size(value, &spec->context_bytes) ? NULL : "want a size such as context=300MiB";
    if (!strcmp(key, "module"))
        return parse_size(value, &spec->module_bytes) ? NULL : "want a size such as module=8MiB";
    if (!strcmp(key, "driver"))
        return parse_version(value, &spec->driver_version) ? NULL : "want a version such as driver=12.9";
    if (!strcmp(key, "procaddr"))
        return parse_choice(value, "exported", "inner", &spec->procaddr_inner)
                   ? NULL
                   : "want procaddr=inner or procaddr=exported";
    if (!strcmp(key, "calls"))
        return parse_choice(value, "direct", "exports", &spec->through_exports)
                   ? NULL
                   : "want calls=exports or calls=direct";
    if (!strcmp(key, "work"))
        return parse_choice(value, "all", "none", &spec->no_work) ? NULL : "want work=none or work=all";
    if (!strcmp(key, "delay"))
        return parse_delay(value, &spec->delay_us) ? NULL : "want at most a second, such as delay=200us";
    if (!strcmp(key, "handles"))
        return parse_choice(value, "unique", "anew", &spec->handles_anew) ? NULL : "want handles=anew or handles=unique";
    if (!strcmp(key, "jitter"))
        return parse_delay(value, &spec->jitter_us) ? NULL : "want at most a second, such as jitter=200us";
    if (!strcmp(key, "mig"))
        return parse_choice(value, "0", "1", &spec->mig) ? NULL : "want mig=0 or mig=1";
    if (!strcmp(key, "managed"))
        return parse_choice(value, "0", "1", &spec->managed) ? NULL : "want managed=0 or managed=1";
    if (!strcmp(key, "nvml"))
        return parse_nvml(value, spec) ? NULL : "want nvml=notsupported or nvml=nopermission";
    return "no such option; there are context, module, driver, procaddr, calls, work, delay, jitter, handles, managed, mig, nvml";
}

/* Adds a card of the size that the part says; NULL, or what it wants instead. */
static const char *parse_card(const char *part, struct sim_spec *spec)
{
    uint64_t bytes;
    if (!parse_size(part, &bytes))
        return "want a card's size such as 16GiB, or key=value";
    if (bytes < BLOCK || bytes > (1ull << 40))
        return "a card has between 2MiB and 1TiB";
    if (spec->cards == SIM_MAX_CARDS)
        return "too many cards; a machine has at most 32";
    spec->card_bytes[spec->cards++] = bytes / BLOCK * BLOCK;
    return NULL;
}

bool sim_spec_parse(const char *text, struct sim_spec *spec, char *why, size_t len)
{
    *spec = (struct sim_spec){.context_bytes = 300ull << 20, .driver_version = 13000, .managed = true};
    text = text ? text : "";
    char *copy = strdup(text), *rest = copy, *part;
    const char *wanted = copy ? NULL : "out of memory";
    while (!wanted && *text && (part = strsep(&rest, ","))) {
        char whole[64];
        snprintf(whole, sizeof whole, "%s", part);
        char *value = strchr(part, '=');
        if (value)
            *value++ = 0;
        wanted = value ? parse_option(part, value, spec) : parse_card(part, spec);
        if (wanted)
            snprintf(why, len, "\"%s\": %s", whole, wanted);
    }
    if (!copy)
        snprintf(why, len, "%s", wanted);
    free(copy);
    if (!wanted && !spec->cards)
        spec->card_bytes[spec->cards++] = 16ull << 30;
    return !wanted;
}

static struct sim_spec parsed;
static bool valid;

static void parse_once(void)
{
    char why[256];
    valid = sim_spec_parse(getenv("SIMGPU_SPEC"), &parsed, why, sizeof why);
    if (!valid)
        fprintf(stderr, "simgpu: SIMGPU_SPEC: %s\n", why);
}

const struct sim_spec *sim_spec(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, parse_once);
    return valid ? &parsed : NULL;
}
