/* Code as programs bring it along: a kernel that does nothing, and a variable of a size. */
#ifndef HARNESS_IMAGE_H
#define HARNESS_IMAGE_H

#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Writes PTX whose variables take `bytes`. */
static const char *image_with(char *text, size_t room, size_t bytes) {
    char variable[80] = "";
    if (bytes) snprintf(variable, sizeof variable, ".visible .global .align 4 .b8 data[%zu];\n", bytes);
    snprintf(text, room, ".version 7.0\n.target sm_75\n.address_size 64\n%s.visible .entry work()\n{\n    ret;\n}\n",
             variable);
    return text;
}

/* An ELF file as for a card, whose only variable takes `bytes` and is not in the file. */
struct elf_image {
    Elf64_Ehdr header;
    Elf64_Shdr sections[3];
    char names[32];
};

static inline const void *elf_with(struct elf_image *image, size_t bytes) {
    static const char names[] = "\0.shstrtab\0.nv.global";
    *image = (struct elf_image){
        .header = {.e_type = ET_EXEC, .e_machine = 190, .e_version = EV_CURRENT, .e_ehsize = sizeof(Elf64_Ehdr),
                   .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = 3, .e_shstrndx = 1,
                   .e_shoff = offsetof(struct elf_image, sections)},
        .sections = {{0},
                     {.sh_name = 1, .sh_type = SHT_STRTAB, .sh_offset = offsetof(struct elf_image, names),
                      .sh_size = sizeof names},
                     {.sh_name = 11, .sh_type = SHT_NOBITS, .sh_size = bytes}},
    };
    memcpy(image->header.e_ident, ELFMAG, SELFMAG);
    image->header.e_ident[EI_CLASS] = ELFCLASS64;
    image->header.e_ident[EI_DATA] = ELFDATA2LSB;
    memcpy(image->names, names, sizeof names);
    return image;
}

/* The same in a fat binary, behind the wrapper that the compiler makes. */
struct fat_image {
    uint32_t wrapper_magic, wrapper_version;
    const void *data, *unused;
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
    uint16_t kind, entry_version;
    uint32_t entry_header_bytes;
    uint64_t entry_bytes;
    unsigned char rest_of_entry[48];
    struct elf_image elf;
};

static inline const void *fat_with(struct fat_image *image, size_t bytes) {
    *image = (struct fat_image){
        .wrapper_magic = 0x466243b1, .wrapper_version = 1, .data = &image->magic,
        .magic = 0xba55ed50, .version = 1, .header_bytes = 16, .bytes = 64 + sizeof image->elf,
        .kind = 2, .entry_version = 0x101, .entry_header_bytes = 64, .entry_bytes = sizeof image->elf,
    };
    elf_with(&image->elf, bytes);
    return image;
}

#endif
