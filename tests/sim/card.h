/*
 * A card: a fixed number of 2 MiB physical blocks, shared by every process that names the same
 * directory. This part knows nothing of contexts or of CUDA and serves libnvidia-ml as well.
 *
 * Kill-safety: one word per block says who owns it (nobody, a client slot, or a shared object). A
 * client holds an open-file-description lock on the byte of its slot, so the kernel itself says who
 * is alive; blocks of slots without a lock are swept. Whatever instruction a process dies at, every
 * word is true by itself.
 */
#ifndef SIM_CARD_H
#define SIM_CARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SIM_BLOCK_SHIFT 21
#define SIM_BLOCK ((uint64_t)1 << SIM_BLOCK_SHIFT)

static inline uint64_t sim_blocks_of(uint64_t bytes)
{
    return (bytes >> SIM_BLOCK_SHIFT) + ((bytes & (SIM_BLOCK - 1)) != 0);
}

struct sim_card;

/* The directory of the card files: SIMGPU_DIR, or /tmp/simgpu-<uid>. Read once. */
const char *sim_card_dir(void);

/* The card of that index in the spec, opened (and created) at the first call. NULL when its files cannot be
 * had; one line on stderr then said why. */
struct sim_card *sim_card(unsigned index);

/* Forgets every card in a forked child, so that the child's life does not keep the parent's memory. */
void sim_cards_after_fork(void);

unsigned sim_card_index(const struct sim_card *card);
uint64_t sim_card_total(struct sim_card *card);           /* bytes */
uint64_t sim_card_free(struct sim_card *card);            /* bytes, after sweeping the dead */
uint64_t sim_card_process_bytes(struct sim_card *card);   /* bytes that this process holds or shares */

struct sim_card_client {
    pid_t pid;
    uint64_t bytes; /* its own blocks and the shared ones that it holds */
};

/* The living clients of a card, at most `max` of them into `out`; returns how many there are. */
size_t sim_card_clients(struct sim_card *card, struct sim_card_client *out, size_t max);

/* Takes `count` blocks for this process, all or none, and lists them in `blocks`. */
bool sim_card_take(struct sim_card *card, size_t count, uint32_t *blocks);
/* The same, but only as a loan: any process that finds the card full may take the blocks away. */
bool sim_card_borrow(struct sim_card *card, size_t count, uint32_t *blocks);
/* Whether a borrowed block is still ours. */
bool sim_card_borrowed(struct sim_card *card, uint32_t block);
/* Gives blocks back; their bytes read as zero afterwards. Borrowed ones that were taken away are skipped. */
void sim_card_give(struct sim_card *card, size_t count, const uint32_t *blocks);

/* Moves bytes of one block to or from host memory. Returns 0 or an errno. */
int sim_card_read(struct sim_card *card, uint32_t block, uint64_t offset, void *to, size_t len);
int sim_card_write(struct sim_card *card, uint32_t block, uint64_t offset, const void *from, size_t len);
/* Makes `len` bytes of one block zero without storing them. */
int sim_card_zero(struct sim_card *card, uint32_t block, uint64_t offset, size_t len);

/*
 * Shared objects: blocks that several processes hold together (IPC, exported handles). They are gone
 * when the last holder is: a process that holds a reference, or an open export descriptor.
 */
struct sim_share {
    uint32_t id;
    uint32_t generation;
    uint64_t count;
};

/* Turns blocks of this process into a shared object that this process holds. */
bool sim_share_create(struct sim_card *card, size_t count, const uint32_t *blocks, struct sim_share *share);
/* A descriptor that names the object and keeps it alive; -1 with errno. */
int sim_share_export(struct sim_card *card, const struct sim_share *share);
/* Which card and object a descriptor names; false when it names none. */
bool sim_share_of_fd(int fd, unsigned *card_index, struct sim_share *share);
/* Joins the holders; `blocks` has room for share->count. False when the object is gone. */
bool sim_share_join(struct sim_card *card, const struct sim_share *share, uint32_t *blocks);
/* Leaves the holders: called once by a process, when its last use ends. */
void sim_share_leave(struct sim_card *card, const struct sim_share *share);

#endif
