/* CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER: which cards a process sees, and under which ordinals. */
#include "identity.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The order that ordinals count in: by PCI id (the order of the spec), or the default, the fastest first. Cards of
 * one size are equally fast and keep their PCI order. */
static void order_cards(const struct sim_spec *spec, unsigned *order)
{
    const char *how = getenv("CUDA_DEVICE_ORDER");
    bool by_bus = how && !strcmp(how, "PCI_BUS_ID");
    for (unsigned card = 0; card < spec->cards; card++) {
        unsigned at = card;
        for (; !by_bus && at && spec->card_bytes[order[at - 1]] < spec->card_bytes[card]; at--)
            order[at] = order[at - 1];
        order[at] = card;
    }
}

/* The one card that `entry` of CUDA_VISIBLE_DEVICES names, or -1: an ordinal, a UUID or a prefix of only one. */
static int card_of(const char *entry, const struct sim_spec *spec, const unsigned *order)
{
    while (*entry == ' ')
        entry++;
    size_t len = strlen(entry);
    while (len && entry[len - 1] == ' ')
        len--;
    if (len && strspn(entry, "0123456789") == len) {
        unsigned long at = strtoul(entry, NULL, 10);
        return at < spec->cards ? (int)order[at] : -1;
    }
    int found = -1;
    for (unsigned card = 0; len >= 4 && card < spec->cards; card++) {
        char text[SIM_UUID_TEXT];
        sim_instance_uuid_text(spec, card, text);
        if (len > strlen(text) || strncasecmp(entry, text, len))
            continue;
        if (found >= 0)
            return -1;
        found = (int)card;
    }
    return found;
}

unsigned sim_visible_cards(const struct sim_spec *spec, unsigned *cards)
{
    unsigned order[SIM_MAX_CARDS];
    order_cards(spec, order);
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (!list) {
        memcpy(cards, order, spec->cards * sizeof *order);
        return spec->cards;
    }
    char *copy = strdup(list), *rest = copy, *entry;
    unsigned count = 0;
    bool seen[SIM_MAX_CARDS] = {false};
    while (copy && (entry = strsep(&rest, ","))) {
        int card = card_of(entry, spec, order);
        /* The first entry that names no card ends the list; one named twice leaves none at all. */
        if (card < 0)
            break;
        if (seen[card]) {
            count = 0;
            break;
        }
        seen[card] = true;
        cards[count++] = (unsigned)card;
    }
    free(copy);
    return count;
}
