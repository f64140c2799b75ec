/*
 * holders COMMAND...: processes that hold memory together. "P VERB ..." has process number P (started when first named) do
 * something, and prints what the driver answered; what they hand to each other ("tokens") goes through this process.
 *
 *   P alloc NAME SIZE   P free NAME      P get NAME TOKEN       P open NAME TOKEN      P close NAME
 *   P create NAME SIZE  P release NAME   P export NAME TOKEN    P import NAME TOKEN    P map NAME     P unmap NAME
 *   P pool NAME         P take NAME POOL SIZE                   P export-pool NAME TOKEN
 *   P import-pool NAME TOKEN             P point NAME TOKEN     P import-point NAME POOL TOKEN
 *   P external NAME SIZE                 P destroy NAME         P reset    P exit      P kill
 *   Process 7 is one of another container, whose state is in HOLDERS_NEIGHBOUR.
 *   drop TOKEN: this process closes the descriptor that it still has
 *   used: what the container uses and what the card has lost, less what contexts cost, once both have settled
 *   left: whether all that the budget has left, and not a block more, can be had
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/driver.h"
#include "harness/sizes.h"

enum { PROCESSES = 8, NEIGHBOUR = 7, THINGS = 64, BLOCK = 2 << 20 };

static struct driver cu;

static void connect_to_driver(void) {
    CUcontext context;
    cu = reach_driver("dlsym");
    if (cu.init(0) || cu.primary_retain(&context, 0) || cu.ctx_set(context)) exit(3);
}

/* What goes between this process and the others, with a descriptor beside it now and then. */
struct message {
    char line[96];
    CUresult code;
    int has_token;
    unsigned char token[64];
};

static int send_message(int to, const struct message *message, int fd) {
    struct iovec part = {(void *)message, sizeof *message};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr whole = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        whole.msg_control = control.room;
        whole.msg_controllen = sizeof control.room;
        control.head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    }
    return sendmsg(to, &whole, 0) == sizeof *message;
}

static int receive_message(int from, struct message *message, int *fd) {
    struct iovec part = {message, sizeof *message};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr whole = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control};
    *fd = -1;
    if (recvmsg(from, &whole, MSG_CMSG_CLOEXEC) != sizeof *message) return 0;
    if (CMSG_FIRSTHDR(&whole)) memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&whole)), sizeof *fd);
    return 1;
}

/* ---- the processes ------------------------------------------------------------------------------------------------- */

static struct thing {
    char name[16];
    unsigned long long value, place;
    size_t bytes;
} things[THINGS];

static struct thing *find(const char *name) {
    int at = 0;
    while (at < THINGS - 1 && *things[at].name && strcmp(things[at].name, name)) at++;
    strncpy(things[at].name, name, sizeof things[at].name - 1);
    return &things[at];
}

static CUmemAllocationProp exportable(void) {
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return properties;
}

/* Does one thing; a descriptor to hand out is left in `*fd`. */
static CUresult obey(char **w, struct message *message, int *fd) {
    struct thing *thing = w[1] ? find(w[1]) : things;
    const char *verb = w[0];
    CUipcMemHandle handle;
    CUresult code = CUDA_ERROR_UNKNOWN;
    int given = *fd;
    memcpy(&handle, message->token, sizeof handle);
    *fd = -1;
#define IS(name) (!strcmp(verb, name))
    if (IS("alloc")) code = cu.alloc(&thing->value, parse_size(w[2]));
    else if (IS("free")) code = cu.free(thing->value);
    else if (IS("get")) {
        code = cu.ipc_get(&handle, thing->value);
        memcpy(message->token, &handle, sizeof handle);
        message->has_token = 1;
    } else if (IS("open")) code = cu.ipc_open(&thing->value, handle, 1);
    else if (IS("close")) code = cu.ipc_close(thing->value);
    else if (IS("create")) {
        CUmemAllocationProp properties = exportable();
        thing->bytes = parse_size(w[2]);
        code = cu.create(&thing->value, thing->bytes, &properties, 0);
    } else if (IS("release")) code = cu.release(thing->value);
    else if (IS("export")) code = cu.export_handle(fd, thing->value, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    else if (IS("import"))
        code = cu.import_handle(&thing->value, (void *)(intptr_t)given, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    else if (IS("map")) {
        if (!(code = cu.address_reserve(&thing->place, BLOCK, 0, 0, 0)))
            code = cu.map(thing->place, BLOCK, 0, thing->value, 0);
    } else if (IS("unmap")) {
        if (!(code = cu.unmap(thing->place, BLOCK))) code = cu.address_free(thing->place, BLOCK);
    } else if (IS("pool")) {
        CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        code = cu.pool_create((CUmemoryPool *)&thing->value, &properties);
    } else if (IS("take"))
        code = cu.alloc_from_pool(&thing->value, parse_size(w[3]), (CUmemoryPool)find(w[2])->value, NULL);
    else if (IS("export-pool"))
        code = cu.pool_export(fd, (CUmemoryPool)thing->value, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    else if (IS("import-pool"))
        code = cu.pool_import((CUmemoryPool *)&thing->value, (void *)(intptr_t)given,
                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    else if (IS("point")) {
        code = cu.pool_export_pointer((CUmemPoolPtrExportData *)message->token, thing->value);
        message->has_token = 1;
    } else if (IS("import-point"))
        code = cu.pool_import_pointer(&thing->value, (CUmemoryPool)find(w[2])->value,
                                      (CUmemPoolPtrExportData *)message->token);
    else if (IS("external")) {
        int memory = memfd_create("external", MFD_CLOEXEC);
        CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                                                        .size = parse_size(w[2])};
        description.handle.fd = memory;
        code = cu.external_import((CUexternalMemory *)&thing->value, &description);
        if (code) close(memory);
    } else if (IS("destroy")) code = cu.external_destroy((CUexternalMemory)thing->value);
    else if (IS("reset")) code = cu.primary_reset(0);
    else if (IS("exit")) exit(0);
    else {
        fprintf(stderr, "holders: unknown command '%s'\n", verb);
        exit(3);
    }
    if (given >= 0 && (code || !IS("external"))) close(given);
    return code;
}

static int split(char *line, char **w) {
    char *save = NULL;
    int n = 0;
    for (char *word = strtok_r(line, " ", &save); word && n < 8; word = strtok_r(NULL, " ", &save)) w[n++] = word;
    return n;
}

static int serve(int parent) {
    struct message message;
    int fd;
    connect_to_driver();
    while (receive_message(parent, &message, &fd)) {
        char *w[9] = {0};
        split(message.line, w);
        message.has_token = 0;
        message.code = obey(w, &message, &fd);
        if (!send_message(parent, &message, fd)) return 3;
        if (fd >= 0) close(fd);
    }
    return 0;
}

/* ---- this process -------------------------------------------------------------------------------------------------- */

static struct {
    pid_t pid;
    int socket;
} processes[PROCESSES];

static struct token {
    char name[16];
    unsigned char bytes[64];
    int fd;
} tokens[THINGS];

static struct token *token_of(const char *name) {
    int at = 0;
    while (at < THINGS - 1 && *tokens[at].name && strcmp(tokens[at].name, name)) at++;
    if (!*tokens[at].name) tokens[at].fd = -1;
    strncpy(tokens[at].name, name, sizeof tokens[at].name - 1);
    return &tokens[at];
}

static void start(int number) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) exit(3);
    pid_t pid = fork();
    if (!pid) {
        char text[16];
        if (number == NEIGHBOUR) setenv("CUQUOTA_STATE", getenv("HOLDERS_NEIGHBOUR"), 1);
        snprintf(text, sizeof text, "%d", fcntl(ends[1], F_DUPFD, 64));
        execl("/proc/self/exe", "holders", "serve", text, NULL);
        _exit(127);
    }
    close(ends[1]);
    processes[number].pid = pid;
    processes[number].socket = ends[0];
}

static void ended(int number) {
    close(processes[number].socket);
    waitpid(processes[number].pid, NULL, 0);
    processes[number].pid = 0;
}

static size_t context_bytes;

/* What is taken by anything but contexts. */
static void look(long long *container, long long *card) {
    unsigned long long (*card_used)(int) = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "simgpu_card_used");
    size_t free, total;
    int contexts = 1;
    for (int i = 0; i < PROCESSES; i++) contexts += processes[i].pid != 0;
    if (cu.mem_info(&free, &total)) exit(3);
    int here = contexts - (processes[NEIGHBOUR].pid != 0);
    *container = (long long)(total - free) - here * (long long)context_bytes;
    *card = (card_used ? (long long)card_used(0) : 0) - contexts * (long long)context_bytes;
}

/* Until nothing has changed for as long as it takes others to be swept; a quarter of a second and more. */
static void say_used(void) {
    long long container, card, now, seen;
    int calm = 0;
    look(&container, &card);
    for (int i = 0; calm < 10 && i < 80; i++) {
        usleep(25000);
        look(&now, &seen);
        calm = now == container && seen == card ? calm + 1 : 0;
        container = now, card = seen;
    }
    printf("used %lldMiB card %lldMiB\n", container >> 20, card >> 20);
}

static void say_left(void) {
    size_t free, total;
    CUdeviceptr all, more;
    CUresult had, beyond;
    if (cu.mem_info(&free, &total)) exit(3);
    had = cu.alloc(&all, free);
    beyond = cu.alloc(&more, BLOCK);
    if (!had) cu.free(all);
    if (!beyond) cu.free(more);
    printf("left %zuMiB -> %d, a block more -> %d\n", free >> 20, had, beyond);
}

static void command(const char *text) {
    struct message message = {0};
    char copy[96], *w[9] = {0};
    int fd = -1;
    snprintf(copy, sizeof copy, "%s", text);
    int n = split(copy, w);
    if (!strcmp(w[0], "used")) return say_used();
    if (!strcmp(w[0], "left")) return say_left();
    if (!strcmp(w[0], "drop")) {
        close(token_of(w[1])->fd);
        return;
    }
    int number = atoi(w[0]);
    if (!processes[number].pid) start(number);
    if (!strcmp(w[1], "kill")) {
        kill(processes[number].pid, SIGKILL);
        return ended(number);
    }
    static const char *const with_token[] = {"get", "open", "export", "import", "export-pool", "import-pool", "point", "import-point"};
    struct token *token = NULL;
    for (size_t i = 0; i < sizeof with_token / sizeof *with_token; i++)
        if (!strcmp(w[1], with_token[i])) token = token_of(w[n - 1]);
    if (token) memcpy(message.token, token->bytes, sizeof token->bytes);
    int given = token && !strncmp(w[1], "import", 6) && strcmp(w[1], "import-point") ? token->fd : -1;
    snprintf(message.line, sizeof message.line, "%s", strchr(text, ' ') + 1);
    if (!send_message(processes[number].socket, &message, given)) exit(3);
    if (!strcmp(w[1], "exit")) return ended(number);
    if (!receive_message(processes[number].socket, &message, &fd)) exit(4);
    if (token && message.has_token) memcpy(token->bytes, message.token, sizeof token->bytes);
    if (token && fd >= 0) token->fd = fd;
    printf("%s -> %d\n", text, message.code);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "serve")) return serve(atoi(argv[2]));
    setvbuf(stdout, NULL, _IOLBF, 0);
    connect_to_driver();
    size_t free, total;
    if (cu.mem_info(&free, &total)) return 3;
    context_bytes = total - free;
    for (int i = 1; i < argc; i++) command(argv[i]);
    for (int i = 0; i < PROCESSES; i++)
        if (processes[i].pid) ended(i);
    return 0;
}
