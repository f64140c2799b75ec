/*
 * Blocks that several processes hold together. The blocks' words name the object; its record in the
 * card's file says which slots hold it; and a small file beside the card lists its blocks in order.
 * An exported descriptor is that file, with a read lock on it for as long as the descriptor is open
 * anywhere: it keeps the object alive even when every process that held it has died.
 */
#define _GNU_SOURCE
#include "card_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARE_MAGIC 0x317261685336696dull

struct share_head {
    uint64_t magic;
    uint32_t card, id, generation, padding;
    uint64_t count;
};

static void share_path(struct sim_card *card, uint32_t id, uint32_t generation, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/card%u.share%u.%u", sim_card_dir(), card->index, id, generation);
}

/* Whether some exported descriptor of the object is still open. */
static bool exported(const char *path)
{
    int fd = card_open_fd(path, O_RDWR);
    if (fd < 0)
        return false;
    struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    bool locked = !fcntl(fd, F_OFD_GETLK, &asked) && asked.l_type != F_UNLCK;
    close(fd);
    return locked;
}

static bool held(struct card_share *share)
{
    for (int i = 0; i < CLIENT_MAX / 64; i++) {
        if (share->holders[i])
            return true;
    }
    return false;
}

/* Frees the object if nobody is left. */
static void share_settle(struct sim_card *card, uint32_t id)
{
    struct card_share *share = &card->file->share[id];
    char path[PATH_MAX];
    share_path(card, id, share->generation, path);
    if (held(share) || exported(path))
        return;
    for (uint32_t block = 0, run; block < card->blocks; block += run + 1) {
        for (run = 0; block + run < card->blocks && card->file->owner[block + run] == (OWNER_SHARE | id); run++)
            ;
        if (!run)
            continue;
        card_discard(card, block, run);
        for (uint32_t i = 0; i < run; i++)
            card->file->owner[block + i] = 0;
    }
    (void)unlink(path);
    share->live = 0;
}

void share_sweep(struct sim_card *card, const uint64_t dead[CLIENT_MAX / 64])
{
    uint32_t end = card->file->share_end, live_end = 0;
    for (uint32_t id = 0; id < end && id < SHARE_MAX; id++) {
        struct card_share *share = &card->file->share[id];
        if (!share->live)
            continue;
        for (int i = 0; i < CLIENT_MAX / 64; i++) {
            if (dead[i])
                share->holders[i] &= ~dead[i];
        }
        if (!held(share))
            share_settle(card, id);
        if (share->live)
            live_end = id + 1;
    }
    if (live_end < end)
        card->file->share_end = live_end;
}

static bool write_list(struct sim_card *card, const char *path, const struct share_head *head, const uint32_t *blocks)
{
    int fd = card_open_fd(path, O_RDWR | O_CREAT | O_TRUNC);
    if (fd < 0)
        return false;
    (void)fchmod(fd, 0666);
    size_t len = head->count * sizeof *blocks;
    bool written = pwrite(fd, blocks, len, sizeof *head) == (ssize_t)len &&
                   pwrite(fd, head, sizeof *head, 0) == (ssize_t)sizeof *head;
    close(fd);
    (void)card;
    return written;
}

bool sim_share_create(struct sim_card *card, size_t count, const uint32_t *blocks, struct sim_share *out)
{
    char path[PATH_MAX];
    bool made = false;
    card_lock(card);
    for (uint32_t id = 0; card->slot >= 0 && id < SHARE_MAX; id++) {
        struct card_share *share = &card->file->share[id];
        if (share->live)
            continue;
        struct share_head head = {SHARE_MAGIC, card->index, id, share->generation + 1, 0, count};
        share_path(card, id, head.generation, path);
        share->generation = head.generation;
        if (!write_list(card, path, &head, blocks)) {
            (void)unlink(path);
            break;
        }
        share->count = count;
        for (int i = 0; i < CLIENT_MAX / 64; i++)
            share->holders[i] = 0;
        share->holders[card->slot / 64] = (uint64_t)1 << (card->slot % 64);
        if (card->file->share_end <= id)
            card->file->share_end = id + 1;
        share->live = 1;
        /* Killed from here on, the words still naming the slot and those naming the object are swept alike. */
        for (size_t i = 0; i < count; i++)
            card->file->owner[blocks[i]] = OWNER_SHARE | id;
        *out = (struct sim_share){id, head.generation, count};
        made = true;
        break;
    }
    card_unlock(card);
    return made;
}

int sim_share_export(struct sim_card *card, const struct sim_share *share)
{
    char path[PATH_MAX];
    share_path(card, share->id, share->generation, path);
    int fd = card_open_fd(path, O_RDWR);
    struct flock alive = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    if (fd >= 0 && fcntl(fd, F_OFD_SETLK, &alive)) {
        int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

bool sim_share_of_fd(int fd, unsigned *card_index, struct sim_share *share)
{
    struct share_head head;
    if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head || head.magic != SHARE_MAGIC || head.id >= SHARE_MAX)
        return false;
    *card_index = head.card;
    *share = (struct sim_share){head.id, head.generation, head.count};
    return true;
}

bool sim_share_join(struct sim_card *card, const struct sim_share *named, uint32_t *blocks)
{
    char path[PATH_MAX];
    bool joined = false;
    card_lock(card);
    struct card_share *share = &card->file->share[named->id % SHARE_MAX];
    if (named->id < SHARE_MAX && share->live && share->generation == named->generation &&
        share->count == named->count && card_slot(card)) {
        share_path(card, named->id, named->generation, path);
        int fd = card_open_fd(path, O_RDONLY);
        size_t len = named->count * sizeof *blocks;
        joined = fd >= 0 && pread(fd, blocks, len, sizeof(struct share_head)) == (ssize_t)len;
        for (size_t i = 0; joined && i < named->count; i++)
            joined = blocks[i] < card->blocks && card->file->owner[blocks[i]] == (OWNER_SHARE | named->id);
        if (fd >= 0)
            close(fd);
        if (joined)
            share->holders[card->slot / 64] |= (uint64_t)1 << (card->slot % 64);
    }
    card_unlock(card);
    return joined;
}

void sim_share_leave(struct sim_card *card, const struct sim_share *named)
{
    card_lock(card);
    struct card_share *share = &card->file->share[named->id];
    if (card->slot >= 0 && share->live && share->generation == named->generation) {
        share->holders[card->slot / 64] &= ~((uint64_t)1 << (card->slot % 64));
        share_settle(card, named->id);
    }
    card_unlock(card);
}
