/* Opening and laying out the files of a card. */
#define _GNU_SOURCE
#include "card_file.h"
#include "spec.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CARD_MAGIC 0x31647261436d6953ull /* "SimCard1" */

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_card *cards[CARD_MAX];

const char *sim_card_dir(void)
{
    static char dir[PATH_MAX - 64];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!dir[0]) {
        const char *named = getenv("SIMGPU_DIR");
        if (named && named[0])
            snprintf(dir, sizeof dir, "%s", named);
        else
            snprintf(dir, sizeof dir, "/tmp/simgpu-%u", (unsigned)getuid());
    }
    pthread_mutex_unlock(&lock);
    return dir;
}

int card_open_fd(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0666);
    if (fd < 0 || fd > 2)
        return fd;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    int why = errno;
    close(fd);
    errno = why;
    return high;
}

/* Users of any kind share a card; the umask has no say in that. Only the owner may change a mode: others need not. */
static int open_shared(const char *path)
{
    int fd = card_open_fd(path, O_RDWR | O_CREAT);
    if (fd >= 0)
        (void)fchmod(fd, 0666);
    return fd;
}

static int lock_use(int fd, short type, bool wait)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = LOCK_USE, .l_len = 1};
    int result;
    do
        result = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &range);
    while (result && errno == EINTR);
    return result;
}

/* Makes the file fit the card, which only works while nobody else has it open. */
static bool lay_out(struct sim_card *card, uint64_t bytes, uint64_t file_bytes)
{
    struct stat st;
    struct {
        uint64_t magic, bytes;
    } head = {0, 0};
    bool alone = !lock_use(card->file_fd, F_WRLCK, false);
    if (!alone && lock_use(card->file_fd, F_RDLCK, true))
        return false;
    if (fstat(card->file_fd, &st) || pread(card->file_fd, &head, sizeof head, 0) < 0)
        return false;
    bool fits = head.magic == CARD_MAGIC && head.bytes == bytes && (uint64_t)st.st_size == file_bytes;
    if (!fits && !alone) {
        fprintf(stderr,
                "simgpu: card %u in %s is in use with %llu MiB, SIMGPU_SPEC gives it %llu MiB: "
                "use another SIMGPU_DIR or the same sizes\n",
                card->index, sim_card_dir(), (unsigned long long)(head.bytes >> 20), (unsigned long long)(bytes >> 20));
        errno = EBUSY;
        return false;
    }
    if (!fits) {
        head.magic = CARD_MAGIC;
        head.bytes = bytes;
        /* The head comes last: a process killed before that leaves a file that the next one lays out again. */
        if (ftruncate(card->file_fd, 0) || ftruncate(card->file_fd, (off_t)file_bytes) ||
            ftruncate(card->data_fd, 0) || ftruncate(card->data_fd, (off_t)bytes) ||
            pwrite(card->file_fd, &head, sizeof head, 0) != sizeof head)
            return false;
    }
    return !alone || !lock_use(card->file_fd, F_RDLCK, true);
}

struct sim_card *card_open(unsigned index, uint64_t bytes)
{
    char path[PATH_MAX];
    struct sim_card *card = calloc(1, sizeof *card);
    if (!card)
        return NULL;
    uint64_t file_bytes = sizeof(struct card_file) + (bytes >> SIM_BLOCK_SHIFT) * sizeof(uint32_t);
    card->index = index;
    card->slot = -1;
    card->blocks = (uint32_t)(bytes >> SIM_BLOCK_SHIFT);
    card->file_fd = card->data_fd = -1;
    pthread_mutex_init(&card->lock, NULL);

    if (!mkdir(sim_card_dir(), 0777))
        (void)chmod(sim_card_dir(), 0777);
    snprintf(path, sizeof path, "%s/card%u.data", sim_card_dir(), index);
    if ((card->data_fd = open_shared(path)) < 0)
        goto failed;
    snprintf(path, sizeof path, "%s/card%u.meta", sim_card_dir(), index);
    if ((card->file_fd = open_shared(path)) < 0 || !lay_out(card, bytes, file_bytes))
        goto failed;
    card->file = mmap(NULL, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, card->file_fd, 0);
    /* A mapping keeps its file open, and with it the locks: a forked child must not keep its parent's alive. */
    if (card->file != MAP_FAILED && !madvise(card->file, file_bytes, MADV_DONTFORK))
        return card;
failed:
    if (errno != EBUSY)
        fprintf(stderr, "simgpu: cannot use %s: %s; name a writable directory in SIMGPU_DIR\n", path, strerror(errno));
    if (card->file_fd >= 0)
        close(card->file_fd);
    if (card->data_fd >= 0)
        close(card->data_fd);
    free(card);
    return NULL;
}

struct sim_card *sim_card(unsigned index)
{
    const struct sim_spec *spec = sim_spec();
    if (!spec || index >= spec->cards || index >= CARD_MAX)
        return NULL;
    pthread_mutex_lock(&open_lock);
    if (!cards[index])
        cards[index] = card_open(index, spec->card_bytes[index]);
    struct sim_card *card = cards[index];
    pthread_mutex_unlock(&open_lock);
    return card;
}

void sim_cards_after_fork(void)
{
    /* Another thread may have held the lock when the process forked. */
    open_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (unsigned i = 0; i < CARD_MAX; i++) {
        if (!cards[i])
            continue;
        close(cards[i]->file_fd);
        close(cards[i]->data_fd);
        cards[i] = NULL; /* the struct stays: another thread's stack may still name it; the mapping was not inherited */
    }
}
