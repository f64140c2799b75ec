/* The layout of a card's file and the locks on it: shared by card.c, card_open.c and share.c alone. */
#ifndef SIM_CARD_FILE_H
#define SIM_CARD_FILE_H

#include "card.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    CARD_MAX = 32,
    CLIENT_MAX = 1024, /* processes on one card at once */
    SHARE_MAX = 4096,
};

/* What a block's word says besides 0 (free): */
#define OWNED_BY(slot) ((uint32_t)(slot) + 1)
#define OWNER_LOAN 0x40000000u  /* owned, but whoever needs it may take it */
#define OWNER_SHARE 0x80000000u /* | id of a shared object */

/* Bytes of the file that locks are taken on; they guard nothing of the content by position. */
enum {
    LOCK_CHANGE = 0, /* write: changing words, for the length of one operation */
    LOCK_USE = 1,    /* read: the file is mapped by somebody; write: being laid out */
    LOCK_CLIENT = 16 /* write: + slot, for as long as the client lives */
};

struct card_client {
    _Atomic(uint32_t) in_use; /* a lock may exist on the slot, words may name it */
    _Atomic(uint32_t) pid;
};

struct card_share {
    _Atomic(uint32_t) live;
    _Atomic(uint32_t) generation;
    _Atomic(uint64_t) count;
    _Atomic(uint64_t) holders[CLIENT_MAX / 64];
};

struct card_file {
    uint64_t magic;
    uint64_t bytes;
    _Atomic(uint32_t) share_end; /* no live share at or beyond this index */
    uint32_t padding;
    struct card_client client[CLIENT_MAX];
    struct card_share share[SHARE_MAX];
    _Atomic(uint32_t) owner[]; /* one word a block */
};

struct sim_card {
    unsigned index;
    int file_fd, data_fd;
    struct card_file *file;
    uint32_t blocks;
    int slot;             /* of this process, -1 before its first block */
    uint32_t next_loan;   /* where the search for loans to take back goes on */
    pthread_mutex_t lock; /* threads of this process; OFD locks do not tell them apart */
};

/* Opens the files of a card of `bytes`; returns NULL after one line on stderr. */
struct sim_card *card_open(unsigned index, uint64_t bytes);
/* open() close-on-exec, never answering descriptors 0 to 2, which belong to the program even when closed. */
int card_open_fd(const char *path, int flags);

void card_lock(struct sim_card *card);
void card_unlock(struct sim_card *card);

/* All of these want the card locked. */
bool card_slot(struct sim_card *card); /* registers this process as a client */
void card_sweep(struct sim_card *card);
void card_discard(struct sim_card *card, uint32_t block, uint32_t count); /* bytes become zero again */
void share_sweep(struct sim_card *card, const uint64_t dead[CLIENT_MAX / 64]);

#endif
