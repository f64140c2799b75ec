/* Who a card is, the same to CUDA and to NVML. */
#include "identity.h"

#include "card.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* FNV-1a with a last mix, so that neighbours in the spec differ in their first digits already. */
static uint64_t hash(uint64_t h, const void *bytes, size_t len)
{
    for (const unsigned char *at = bytes; len--; at++)
        h = (h ^ *at) * 0x100000001b3ull;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93ull;
    return h ^ (h >> 32);
}

void sim_card_uuid(unsigned card, unsigned char uuid[16])
{
    const char *dir = sim_card_dir();
    uint64_t first = hash(0xcbf29ce484222325ull, dir, strlen(dir));
    uint64_t second = hash(~first, dir, strlen(dir));
    memcpy(uuid, &first, 8);
    memcpy(uuid + 8, &second, 8);
    /* An odd multiple of the index on top keeps the first 32 bits of all cards of a machine distinct. */
    uint32_t head;
    memcpy(&head, uuid, 4);
    head += card * 0x9e3779b1u;
    memcpy(uuid, &head, 4);
    uuid[6] = (unsigned char)((uuid[6] & 0x0f) | 0x40); /* a version 4 UUID, as the real ones */
    uuid[8] = (unsigned char)((uuid[8] & 0x3f) | 0x80);
}

static void spell(const char *kind, const unsigned char u[16], char text[SIM_UUID_TEXT])
{
    snprintf(text, SIM_UUID_TEXT, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", kind, u[0],
             u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

void sim_card_uuid_text(unsigned card, char text[SIM_UUID_TEXT])
{
    unsigned char u[16];
    sim_card_uuid(card, u);
    spell("GPU", u, text);
}

void sim_instance_uuid(const struct sim_spec *spec, unsigned card, unsigned char uuid[16])
{
    sim_card_uuid(card, uuid);
    if (spec->mig)
        uuid[0] ^= 0xff;
}

void sim_instance_uuid_text(const struct sim_spec *spec, unsigned card, char text[SIM_UUID_TEXT])
{
    unsigned char u[16];
    sim_instance_uuid(spec, card, u);
    spell(spec->mig ? "MIG" : "GPU", u, text);
}

void sim_card_name(const struct sim_spec *spec, unsigned card, char *name, size_t len)
{
    uint64_t mib = spec->card_bytes[card] >> 20;
    const char *cut = spec->mig ? " MIG 1g" : "";
    if (mib % 1024)
        snprintf(name, len, "Simulated GPU %" PRIu64 "MiB%s", mib, cut);
    else
        snprintf(name, len, "Simulated GPU %" PRIu64 "GiB%s", mib / 1024, cut);
}

int sim_card_at_bus_id(const struct sim_spec *spec, const char *id)
{
    unsigned domain = 0, bus, device, function = 0;
    int used = 0;
    size_t len = strlen(id);
    /* %x would take signs and blanks as well. */
    if (strspn(id, "0123456789abcdefABCDEF:.") != len)
        return -2;
    bool full = sscanf(id, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &used) == 4 && (size_t)used == len;
    if (!full)
        full = sscanf(id, "%8x:%2x:%2x%n", &domain, &bus, &device, &used) == 3 && (size_t)used == len;
    if (!full) {
        domain = 0;
        if (sscanf(id, "%2x:%2x.%1x%n", &bus, &device, &function, &used) != 3 || (size_t)used != len)
            return -2;
    }
    bool there = !domain && !device && !function && bus >= sim_card_bus(0) && bus < sim_card_bus(spec->cards);
    return there ? (int)(bus - sim_card_bus(0)) : -1;
}
