/* Images of code, read for one thing: what their variables take. Any image is accepted. */
#define _GNU_SOURCE
#include "module.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_global(const char *name) { return !strncmp(name, ".nv.global", 10); }

/* The sections of an ELF file that hold variables, which the file need not contain. */
static uint64_t of_elf(const unsigned char *image)
{
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + header.e_shoff);
    if (!header.e_shoff || header.e_shentsize != sizeof *sections || header.e_shstrndx >= header.e_shnum)
        return 0;
    const char *names = (const char *)image + sections[header.e_shstrndx].sh_offset;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < header.e_shnum; i++)
        if (is_global(names + sections[i].sh_name))
            bytes += sections[i].sh_size;
    return bytes;
}

/* Arrays such as ".global .align 4 .b8 name[4096];" in the text of PTX. */
static uint64_t of_text(const char *text)
{
    uint64_t bytes = 0;
    for (const char *at = strstr(text, ".global "); at; at = strstr(at + 1, ".global ")) {
        const char *end = at + strcspn(at, ";{}"), *count = memchr(at, '[', (size_t)(end - at));
        const char *width = memmem(at, (size_t)(end - at), " .b", 3);
        if (count && width && width < count)
            bytes += strtoull(count + 1, NULL, 10) * strtoull(width + 3, NULL, 10) / 8;
    }
    return bytes;
}

enum { FAT_WRAPPER = 0x466243b1 };
static const uint32_t FAT = 0xba55ed50;

/* What the first ELF file takes that a fat binary contains as it is. */
static uint64_t of_fat(const unsigned char *image)
{
    struct {
        uint32_t magic;
        uint16_t version, header;
        uint64_t bytes;
    } fat;
    struct {
        uint16_t kind, version;
        uint32_t header;
        uint64_t bytes;
    } entry;
    memcpy(&fat, image, sizeof fat);
    for (uint64_t at = fat.header, end = at + fat.bytes; at < end; at += entry.header + entry.bytes) {
        memcpy(&entry, image + at, sizeof entry);
        if (entry.bytes >= sizeof(Elf64_Ehdr) && !memcmp(image + at + entry.header, ELFMAG, SELFMAG))
            return of_elf(image + at + entry.header);
    }
    return 0;
}

uint64_t sim_image_globals(const void *image)
{
    const unsigned char *bytes = image;
    uint32_t magic;
    if (bytes[0] == (FAT_WRAPPER & 0xff) || bytes[0] == (FAT & 0xff)) {
        memcpy(&magic, bytes, sizeof magic);
        if (magic == FAT_WRAPPER)
            memcpy(&bytes, bytes + 8, sizeof bytes);
        return magic == FAT_WRAPPER || magic == FAT ? of_fat(bytes) : 0;
    }
    if (!memcmp(bytes, ELFMAG, 1))
        return !memcmp(bytes, ELFMAG, SELFMAG) && bytes[EI_CLASS] == ELFCLASS64 ? of_elf(bytes) : 0;
    bool text = bytes[0] == '.' || bytes[0] == '/' || bytes[0] == ' ' || bytes[0] == '\n';
    return text ? of_text(image) : 0;
}

void *sim_image_read(const char *path)
{
    FILE *file = fopen(path, "re");
    long size = file && !fseek(file, 0, SEEK_END) ? ftell(file) : -1;
    char *bytes = size >= 0 && size < 1l << 30 ? calloc(1, (size_t)size + 1) : NULL;
    if (bytes && (fseek(file, 0, SEEK_SET) || fread(bytes, 1, (size_t)size, file) != (size_t)size)) {
        free(bytes);
        bytes = NULL;
    }
    if (file)
        fclose(file);
    return bytes;
}
