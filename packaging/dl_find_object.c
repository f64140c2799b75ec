/*
 * _dl_find_object for C libraries before glibc 2.35, where compilers' unwinders of today expect it. Finds the unwind
 * table of the object that holds an address, by dl_iterate_phdr, which is older than any glibc that is still met.
 */
#define _GNU_SOURCE
#include <link.h>
#include <stddef.h>
#include <stdint.h>

/* The layout that glibc 2.35 fixed. */
struct found {
    unsigned long long flags;
    void *map_start;
    void *map_end;
    struct link_map *link_map;
    void *eh_frame;
    unsigned long long reserved[7];
};

struct search {
    uintptr_t address;
    struct found *found;
};

static int visit(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct search *search = data;
    uintptr_t start = 0, end = 0, table = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && search->address >= at && search->address - at < segment->p_memsz) {
            start = at;
            end = at + segment->p_memsz;
        }
        if (segment->p_type == PT_GNU_EH_FRAME) table = at;
    }
    if (!end || !table) return 0;
    search->found->flags = 0;
    search->found->map_start = (void *)start;
    search->found->map_end = (void *)end;
    search->found->link_map = NULL;
    search->found->eh_frame = (void *)table;
    return 1;
}

/* By another name in C, for headers that declare the real one. */
__attribute__((visibility("hidden"))) int find_object(void *address, struct found *found) __asm__("_dl_find_object");

int find_object(void *address, struct found *found) {
    struct search search = {(uintptr_t)address, found};
    return dl_iterate_phdr(visit, &search) == 1 ? 0 : -1;
}
