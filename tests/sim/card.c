/* Who owns which block of a card: taking, lending, giving back, sweeping the dead; and the bytes in the blocks. */
#define _GNU_SOURCE
#include "card_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct flock byte_at(short type, off_t at)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
}

void card_lock(struct sim_card *card)
{
    pthread_mutex_lock(&card->lock);
    struct flock change = byte_at(F_WRLCK, LOCK_CHANGE);
    while (fcntl(card->file_fd, F_OFD_SETLKW, &change) && errno == EINTR)
        ;
}

void card_unlock(struct sim_card *card)
{
    struct flock change = byte_at(F_UNLCK, LOCK_CHANGE);
    (void)fcntl(card->file_fd, F_OFD_SETLK, &change);
    pthread_mutex_unlock(&card->lock);
}

void card_discard(struct sim_card *card, uint32_t block, uint32_t count)
{
    off_t at = (off_t)block << SIM_BLOCK_SHIFT, len = (off_t)count << SIM_BLOCK_SHIFT;
    if (!fallocate(card->data_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, len))
        return;
    /* A file system without holes. */
    for (uint32_t i = 0; i < count; i++)
        (void)sim_card_zero(card, block + i, 0, SIM_BLOCK);
}

bool card_slot(struct sim_card *card)
{
    if (card->slot >= 0)
        return true;
    card_sweep(card);
    for (int slot = 0; slot < CLIENT_MAX; slot++) {
        struct card_client *client = &card->file->client[slot];
        struct flock mine = byte_at(F_WRLCK, LOCK_CLIENT + slot);
        if (client->in_use || fcntl(card->file_fd, F_OFD_SETLK, &mine))
            continue;
        client->pid = (uint32_t)getpid();
        client->in_use = 1;
        card->slot = slot;
        return true;
    }
    return false;
}

static bool slot_dead(struct sim_card *card, int slot)
{
    if (slot == card->slot)
        return false;
    struct flock asked = byte_at(F_WRLCK, LOCK_CLIENT + slot);
    return !fcntl(card->file_fd, F_OFD_GETLK, &asked) && asked.l_type == F_UNLCK;
}

/* Frees the blocks whose word `match` answers, a run at a time: the bytes go before the word does, so that a block is
 * never seen free with somebody's data in it. */
static void free_matching(struct sim_card *card, bool (*match)(uint32_t owner, const void *arg), const void *arg)
{
    for (uint32_t block = 0, run; block < card->blocks; block += run + 1) {
        for (run = 0; block + run < card->blocks && match(card->file->owner[block + run], arg); run++)
            ;
        if (!run)
            continue;
        card_discard(card, block, run);
        for (uint32_t i = 0; i < run; i++)
            card->file->owner[block + i] = 0;
    }
}

static bool owned_by_dead(uint32_t owner, const void *arg)
{
    const uint64_t *dead = arg;
    uint32_t slot = (owner & ~OWNER_LOAN) - 1;
    return owner && !(owner & OWNER_SHARE) && slot < CLIENT_MAX && (dead[slot / 64] >> (slot % 64) & 1);
}

void card_sweep(struct sim_card *card)
{
    uint64_t dead[CLIENT_MAX / 64] = {0};
    bool any = false;
    for (int slot = 0; slot < CLIENT_MAX; slot++) {
        if (!card->file->client[slot].in_use || !slot_dead(card, slot))
            continue;
        dead[slot / 64] |= (uint64_t)1 << (slot % 64);
        any = true;
    }
    if (any)
        free_matching(card, owned_by_dead, dead);
    share_sweep(card, dead);
    for (int slot = 0; any && slot < CLIENT_MAX; slot++) {
        if (dead[slot / 64] >> (slot % 64) & 1)
            card->file->client[slot].in_use = 0;
    }
}

unsigned sim_card_index(const struct sim_card *card) { return card->index; }

uint64_t sim_card_total(struct sim_card *card) { return (uint64_t)card->blocks << SIM_BLOCK_SHIFT; }

uint64_t sim_card_free(struct sim_card *card)
{
    uint64_t free_blocks = 0;
    card_lock(card);
    card_sweep(card);
    for (uint32_t block = 0; block < card->blocks; block++)
        free_blocks += !atomic_load_explicit(&card->file->owner[block], memory_order_relaxed);
    card_unlock(card);
    return free_blocks << SIM_BLOCK_SHIFT;
}

/* Lists up to `count` free blocks. */
static size_t find_free(struct sim_card *card, size_t count, uint32_t *blocks)
{
    size_t found = 0;
    for (uint32_t block = 0; found < count && block < card->blocks; block++) {
        if (!atomic_load_explicit(&card->file->owner[block], memory_order_relaxed))
            blocks[found++] = block;
    }
    return found;
}

/* Lists up to `count` blocks on loan, going round so that the longest lent go first. */
static size_t find_loans(struct sim_card *card, size_t count, uint32_t *blocks)
{
    size_t found = 0;
    for (uint32_t i = 0; found < count && i < card->blocks; i++) {
        uint32_t block = (card->next_loan + i) % card->blocks;
        if (card->file->owner[block] & OWNER_LOAN && !(card->file->owner[block] & OWNER_SHARE))
            blocks[found++] = block;
    }
    if (found)
        card->next_loan = (blocks[found - 1] + 1) % card->blocks;
    return found;
}

static bool take(struct sim_card *card, size_t count, uint32_t *blocks, uint32_t flag)
{
    if (count > card->blocks)
        return false;
    card_lock(card);
    size_t found = 0;
    bool have = card_slot(card);
    if (have && (found = find_free(card, count, blocks)) < count) {
        card_sweep(card);
        found = find_free(card, count, blocks);
    }
    /* Loans hold no bytes of the card's: what is managed lives in its owner's host memory. */
    if (have && found < count)
        found += find_loans(card, count - found, blocks + found);
    have = have && found == count;
    for (size_t i = 0; have && i < count; i++)
        card->file->owner[blocks[i]] = OWNED_BY(card->slot) | flag;
    card_unlock(card);
    return have;
}

bool sim_card_take(struct sim_card *card, size_t count, uint32_t *blocks) { return take(card, count, blocks, 0); }

bool sim_card_borrow(struct sim_card *card, size_t count, uint32_t *blocks)
{
    return take(card, count, blocks, OWNER_LOAN);
}

bool sim_card_borrowed(struct sim_card *card, uint32_t block)
{
    return card->slot >= 0 && card->file->owner[block] == (OWNED_BY(card->slot) | OWNER_LOAN);
}

void sim_card_give(struct sim_card *card, size_t count, const uint32_t *blocks)
{
    if (!count || card->slot < 0)
        return;
    card_lock(card);
    const uint32_t mine = OWNED_BY(card->slot);
    for (size_t i = 0, run; i < count; i += run) {
        for (run = 0; i + run < count && blocks[i + run] == blocks[i] + run; run++) {
            if (card->file->owner[blocks[i + run]] != mine)
                break;
        }
        if (run) {
            card_discard(card, blocks[i], (uint32_t)run);
            for (size_t k = 0; k < run; k++)
                card->file->owner[blocks[i] + k] = 0;
        } else {
            if (card->file->owner[blocks[i]] == (mine | OWNER_LOAN))
                card->file->owner[blocks[i]] = 0;
            run = 1;
        }
    }
    card_unlock(card);
}

/* Adds up the blocks of every slot, shared ones to each holder. */
static void tally(struct sim_card *card, uint32_t blocks[CLIENT_MAX])
{
    memset(blocks, 0, CLIENT_MAX * sizeof *blocks);
    for (uint32_t block = 0; block < card->blocks; block++) {
        uint32_t owner = card->file->owner[block], slot = (owner & ~OWNER_LOAN) - 1;
        if (owner && !(owner & OWNER_SHARE) && slot < CLIENT_MAX)
            blocks[slot]++;
    }
    for (uint32_t id = 0; id < card->file->share_end && id < SHARE_MAX; id++) {
        struct card_share *share = &card->file->share[id];
        for (int slot = 0; share->live && slot < CLIENT_MAX; slot++) {
            if (share->holders[slot / 64] >> (slot % 64) & 1)
                blocks[slot] += (uint32_t)share->count;
        }
    }
}

uint64_t sim_card_process_bytes(struct sim_card *card)
{
    uint32_t blocks[CLIENT_MAX];
    card_lock(card);
    tally(card, blocks);
    int slot = card->slot;
    card_unlock(card);
    return slot < 0 ? 0 : (uint64_t)blocks[slot] << SIM_BLOCK_SHIFT;
}

size_t sim_card_clients(struct sim_card *card, struct sim_card_client *out, size_t max)
{
    uint32_t blocks[CLIENT_MAX];
    size_t found = 0;
    card_lock(card);
    card_sweep(card);
    tally(card, blocks);
    for (int slot = 0; slot < CLIENT_MAX; slot++) {
        if (!card->file->client[slot].in_use)
            continue;
        if (found < max) {
            out[found].pid = (pid_t)card->file->client[slot].pid;
            out[found].bytes = (uint64_t)blocks[slot] << SIM_BLOCK_SHIFT;
        }
        found++;
    }
    card_unlock(card);
    return found;
}

/* ---- the bytes --------------------------------------------------------------------------- */

int sim_card_read(struct sim_card *card, uint32_t block, uint64_t offset, void *to, size_t len)
{
    off_t at = (off_t)(((uint64_t)block << SIM_BLOCK_SHIFT) + offset);
    while (len) {
        ssize_t got = pread(card->data_fd, to, len, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got ? errno : EIO;
        to = (char *)to + got, at += got, len -= (size_t)got;
    }
    return 0;
}

int sim_card_write(struct sim_card *card, uint32_t block, uint64_t offset, const void *from, size_t len)
{
    off_t at = (off_t)(((uint64_t)block << SIM_BLOCK_SHIFT) + offset);
    while (len) {
        ssize_t put = pwrite(card->data_fd, from, len, at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put ? errno : EIO;
        from = (const char *)from + put, at += put, len -= (size_t)put;
    }
    return 0;
}

int sim_card_zero(struct sim_card *card, uint32_t block, uint64_t offset, size_t len)
{
    static const char zeros[1 << 16];
    off_t at = (off_t)(((uint64_t)block << SIM_BLOCK_SHIFT) + offset);
    if (!fallocate(card->data_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, (off_t)len))
        return 0;
    while (len) {
        size_t part = len < sizeof zeros ? len : sizeof zeros;
        int why = sim_card_write(card, block, offset, zeros, part);
        if (why)
            return why;
        offset += part, len -= part;
    }
    return 0;
}
