/* Code as programs bring it along: a kernel that does nothing, and a variable of a size. */
#ifndef HARNESS_IMAGE_H
#define HARNESS_IMAGE_H

#include <stdio.h>

/* Writes PTX whose variables take `bytes`. */
static const char *image_with(char *text, size_t room, size_t bytes) {
    char variable[80] = "";
    if (bytes) snprintf(variable, sizeof variable, ".visible .global .align 4 .b8 data[%zu];\n", bytes);
    snprintf(text, room, ".version 7.0\n.target sm_75\n.address_size 64\n%s.visible .entry work()\n{\n    ret;\n}\n",
             variable);
    return text;
}

#endif
