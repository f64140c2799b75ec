/*
 * The card between processes: memory is back after any kill, shared memory stays until its last holder
 * is gone, a forked child owns nothing. Run with a number: so many rounds of the kill test.
 */
#define _GNU_SOURCE
#include "sim_check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *self;

/* Starts this program again in a role of its own, with a pipe at its descriptor 1 that we read. */
static pid_t spawn(const char *role, const char *argument, int *out)
{
    int ends[2];
    HOLDS(!pipe2(ends, O_CLOEXEC));
    pid_t pid = fork();
    if (!pid) {
        dup2(ends[1], 1);
        execl(self, self, role, argument, NULL);
        _exit(127);
    }
    close(ends[1]);
    *out = ends[0];
    return pid;
}

static int ended(pid_t pid)
{
    int status;
    HOLDS(waitpid(pid, &status, 0) == pid);
    return status;
}

static void read_all(int fd, void *to, size_t bytes)
{
    for (char *at = to; bytes;) {
        ssize_t got = read(fd, at, bytes);
        HOLDS(got > 0);
        at += got, bytes -= (size_t)got;
    }
}

/* ---- killed at random ------------------------------------------------------------------------------- */

static CUmemAllocationProp exportable = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                         .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

/* One of everything that takes or gives blocks, for ever. */
static void victim(void)
{
    unsigned seed = (unsigned)getpid();
    CUcontext context, extra;
    CUdeviceptr ptr[64] = {0}, managed;
    start();
    OK(cuCtxGetCurrent(&context));
    OK(cuMemAllocManaged(&managed, 256 * MIB, CU_MEM_ATTACH_GLOBAL));
    for (;;) {
        int i = rand_r(&seed) % 64;
        CUmemGenericAllocationHandle handle;
        CUipcMemHandle ipc;
        int fd;
        switch (rand_r(&seed) % 8) {
        case 0:
            if (cuMemCreate(&handle, 32 * MIB, &exportable, 0))
                break;
            OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
            OK(cuMemRelease(handle));
            close(fd);
            break;
        case 1:
            if (ptr[i])
                OK(cuIpcGetMemHandle(&ipc, ptr[i]));
            break;
        case 2:
            OK(cuMemPrefetchAsync(managed, 128 * MIB, 0, NULL));
            OK(cuMemPrefetchAsync(managed, 64 * MIB, CU_DEVICE_CPU, NULL));
            break;
        case 3:
            if (cuCtxCreate_v2(&extra, 0, 0) == CUDA_SUCCESS)
                OK(cuCtxDestroy_v2(extra));
            break;
        default:
            if (ptr[i])
                OK(cuMemFree_v2(ptr[i]));
            ptr[i] = 0;
            size_t bytes = (size_t)(rand_r(&seed) % 60 + 1) * (rand_r(&seed) % 3 ? MIB : KIB);
            if (cuMemAlloc_v2(&ptr[i], bytes))
                ptr[i] = 0;
            else
                OK(cuMemcpyHtoD_v2(ptr[i], "mine", 4));
        }
    }
}

static void back_after_kills(int rounds, size_t base)
{
    enum { VICTIMS = 3 };
    unsigned seed = 7;
    size_t all;
    OK(cuMemGetInfo_v2(NULL, &all));
    for (int round = 0; round < rounds; round++) {
        pid_t pid[VICTIMS];
        int out;
        for (int i = 0; i < VICTIMS; i++) {
            pid[i] = spawn("victim", "", &out);
            close(out);
        }
        usleep((useconds_t)(rand_r(&seed) % 30000));
        for (int i = 0; i < VICTIMS; i++)
            kill(pid[i], SIGKILL);
        for (int i = 0; i < VICTIMS; i++)
            EXPECT(WTERMSIG(ended(pid[i])), SIGKILL);
        EXPECT(used(), base);
        /* All of it, and clean. */
        CUdeviceptr ptr;
        char out_bytes[4] = "????";
        OK(cuMemAlloc_v2(&ptr, all - base));
        OK(cuMemcpyDtoH_v2(out_bytes, ptr + ((size_t)rand_r(&seed) % 64) * 2 * MIB, 4));
        EXPECT(memcmp(out_bytes, "\0\0\0\0", 4), 0);
        OK(cuMemFree_v2(ptr));
    }
}

/* ---- sharing ------------------------------------------------------------------------------------------- */

/* Exports 6 MiB and a small piece by handle, says so, and waits to be killed. */
static void exporter(void)
{
    CUdeviceptr large, small;
    CUipcMemHandle handles[2];
    start();
    OK(cuMemAlloc_v2(&large, 6 * MIB));
    OK(cuMemAlloc_v2(&small, 1000));
    OK(cuMemAlloc_v2(&small, 1000)); /* not the first in its block */
    OK(cuMemcpyHtoD_v2(large + 5 * MIB, "large one", 10));
    OK(cuMemcpyHtoD_v2(small, "small one", 10));
    OK(cuIpcGetMemHandle(&handles[0], large));
    OK(cuIpcGetMemHandle(&handles[1], small));
    EXPECT(cuIpcOpenMemHandle_v2(&large, handles[0], 1), CUDA_ERROR_INVALID_CONTEXT); /* its own */
    HOLDS(write(1, handles, sizeof handles) == sizeof handles);
    pause();
}

static void shared_memory(size_t base, size_t context_bytes)
{
    int out;
    char text[10];
    CUipcMemHandle handles[2];
    CUdeviceptr large, again, small;
    pid_t pid = spawn("exporter", "", &out);
    read_all(out, handles, sizeof handles);
    size_t with_exporter = base + context_bytes + 8 * MIB;
    EXPECT(used(), with_exporter);
    OK(cuIpcOpenMemHandle_v2(&large, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuIpcOpenMemHandle(&again, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    EXPECT(large, again);
    OK(cuIpcOpenMemHandle_v2(&small, handles[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    EXPECT(used(), with_exporter); /* shared, not copied */
    EXPECT(simgpu_process_bytes(0), context_bytes + 8 * MIB);
    OK(cuMemcpyDtoH_v2(text, large + 5 * MIB, 10));
    EXPECT(strcmp(text, "large one"), 0);
    OK(cuMemcpyDtoH_v2(text, small, 10));
    EXPECT(strcmp(text, "small one"), 0);
    EXPECT(cuMemFree_v2(large), CUDA_ERROR_INVALID_VALUE); /* not ours to free */
    kill(pid, SIGKILL);
    ended(pid);
    EXPECT(used(), base + 8 * MIB); /* we hold it */
    OK(cuMemcpyDtoH_v2(text, large + 5 * MIB, 10));
    EXPECT(strcmp(text, "large one"), 0);
    OK(cuIpcCloseMemHandle(large));
    EXPECT(used(), base + 8 * MIB);
    OK(cuIpcCloseMemHandle(again));
    EXPECT(used(), base + 2 * MIB);
    OK(cuIpcCloseMemHandle(small));
    EXPECT(used(), base);
    EXPECT(cuIpcCloseMemHandle(small), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuIpcOpenMemHandle_v2(&large, handles[0], 1), CUDA_ERROR_MAP_FAILED);
    close(out);
}

/* Imports the descriptor that it inherited, maps it, reads what is there, and waits to be killed. */
static void importer(const char *descriptor)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    char text[12];
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    int fd = atoi(descriptor);
    start();
    OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    OK(cuMemAddressReserve(&at, 4 * MIB, 0, 0, 0));
    OK(cuMemMap(at, 4 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(at, 4 * MIB, &access, 1));
    OK(cuMemRelease(handle));
    OK(cuMemcpyDtoH_v2(text, at + 2 * MIB - 6, 12));
    HOLDS(write(1, text, 12) == 12);
    pause();
}

static void exported_handles(size_t base, size_t context_bytes)
{
    CUmemGenericAllocationHandle handle;
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;
    int fd, out;
    char text[12], descriptor[16];
    OK(cuMemCreate(&handle, 4 * MIB, &exportable, 0));
    OK(cuMemAddressReserve(&at, 4 * MIB, 0, 0, 0));
    OK(cuMemMap(at, 4 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(at, 4 * MIB, &access, 1));
    OK(cuMemcpyHtoD_v2(at + 2 * MIB - 6, "over there!", 12));
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    fcntl(fd, F_SETFD, 0);
    snprintf(descriptor, sizeof descriptor, "%d", fd);
    pid_t pid = spawn("importer", descriptor, &out);
    read_all(out, text, 12);
    EXPECT(strcmp(text, "over there!"), 0);
    EXPECT(used(), base + context_bytes + 4 * MIB);
    OK(cuMemUnmap(at, 4 * MIB));
    OK(cuMemRelease(handle));
    EXPECT(used(), base + context_bytes + 4 * MIB);
    kill(pid, SIGKILL);
    ended(pid);
    EXPECT(used(), base + 4 * MIB); /* the descriptor is still open here */
    close(fd);
    EXPECT(used(), base);
    OK(cuMemAddressFree(at, 4 * MIB));
    close(out);
}

/* ---- threads and forks --------------------------------------------------------------------------------------- */

static CUcontext primary;
static _Atomic(bool) stop;

static void *churn(void *number)
{
    unsigned seed = (unsigned)(uintptr_t)number;
    OK(cuCtxSetCurrent(primary));
    for (int i = 0; number ? !stop : i < 2000; i++) {
        CUdeviceptr a, b;
        uint32_t in = rand_r(&seed), out = 0;
        OK(cuMemAlloc_v2(&a, 2 * MIB));
        OK(cuMemAlloc_v2(&b, (size_t)(rand_r(&seed) % 5000 + 8)));
        OK(cuMemsetD32_v2(b, in, 2));
        OK(cuMemcpyDtoD_v2(a, b, 8));
        OK(cuMemcpyDtoH_v2(&out, a + 4, 4));
        EXPECT(out, in);
        OK(cuMemFree_v2(b));
        OK(cuMemFree_v2(a));
    }
    return NULL;
}

static void threads(size_t base)
{
    pthread_t thread[8];
    for (int i = 0; i < 8; i++)
        pthread_create(&thread[i], NULL, churn, NULL);
    for (int i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
    EXPECT(used(), base);
    EXPECT(simgpu_live_allocations(), 0);
}

static void forks(size_t base)
{
    pthread_t thread[8];
    CUdeviceptr ptr;
    OK(cuMemAlloc_v2(&ptr, 2 * GIB));
    stop = false;
    for (int i = 0; i < 8; i++)
        pthread_create(&thread[i], NULL, churn, (void *)(uintptr_t)(i + 1));
    for (int i = 0; i < 200; i++) {
        pid_t pid = fork();
        if (!pid) {
            alarm(5);
            if (cuMemGetInfo_v2(NULL, NULL) != CUDA_ERROR_NOT_INITIALIZED || cuInit(0) != CUDA_ERROR_NOT_INITIALIZED)
                _exit(9);
            if (i % 4 == 0)
                exit(0);
            if (i % 4 == 1)
                _exit(0);
            if (i % 4 == 2)
                raise(SIGKILL);
            execl("/bin/true", "true", NULL);
            _exit(8);
        }
        int status = ended(pid);
        HOLDS(i % 4 == 2 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0);
    }
    stop = true;
    for (int i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
    EXPECT(used() - base, 2 * GIB);
    OK(cuMemFree_v2(ptr));
}

/* Killed while a forked child of it lives on: the child does not keep the memory. */
static void parent_of_survivor(void)
{
    start();
    CUdeviceptr ptr;
    OK(cuMemAlloc_v2(&ptr, 3 * GIB));
    pid_t pid = fork();
    if (!pid) {
        pid = getpid();
        HOLDS(write(1, &pid, sizeof pid) == sizeof pid);
        sleep(30);
        _exit(0);
    }
    pause();
}

static void child_outlives_parent(size_t base)
{
    int out;
    pid_t grandchild, pid = spawn("parent", "", &out);
    read_all(out, &grandchild, sizeof grandchild);
    HOLDS(used() > base + 3 * GIB);
    kill(pid, SIGKILL);
    ended(pid);
    EXPECT(used(), base);
    HOLDS(!kill(grandchild, 0));
    kill(grandchild, SIGKILL);
    close(out);
}

int main(int argc, char **argv)
{
    self = "/proc/self/exe";
    const char *role = argc > 1 ? argv[1] : "10";
    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(role, "victim"))
        victim();
    else if (!strcmp(role, "exporter"))
        exporter();
    else if (!strcmp(role, "importer"))
        importer(argv[2]);
    else if (!strcmp(role, "parent"))
        parent_of_survivor();
    if (atoi(role) <= 0)
        return 1;
    primary = start();
    size_t base = used();
    shared_memory(base, base);
    exported_handles(base, base);
    threads(base);
    forks(base);
    child_outlives_parent(base);
    back_after_kills(atoi(role), base);
    EXPECT(used(), base);
    puts("memory goes with its last holder");
    return 0;
}
