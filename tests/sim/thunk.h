/* The jump thunks that procaddr=inner hands out: one instruction each, at an address that no export has. */
#ifndef SIM_THUNK_H
#define SIM_THUNK_H

#if defined __x86_64__
#define SIM_JUMP "jmp"
#elif defined __aarch64__
#define SIM_JUMP "b"
#else
#error "procaddr=inner: write the jump instruction of this processor here"
#endif

/* Defines the hidden function sim_inner_<number>, which goes on to `target`. */
#define SIM_THUNK(number, target)                                                                                     \
    asm(".pushsection .text\n"                                                                                        \
        ".balign 16\n"                                                                                                \
        ".globl sim_inner_" #number "\n"                                                                              \
        ".hidden sim_inner_" #number "\n"                                                                             \
        ".type sim_inner_" #number ", %function\n"                                                                    \
        "sim_inner_" #number ":\n" SIM_JUMP " " #target "\n"                                                          \
        ".size sim_inner_" #number ", .-sim_inner_" #number "\n"                                                      \
        ".popsection");

#endif
