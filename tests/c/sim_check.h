/* What the programs that test the simulator by itself share. Each ends at its first broken expectation, naming it. */
#ifndef SIM_CHECK_H
#define SIM_CHECK_H

#include "cuda_api.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

#define EXPECT(call, wanted)                                                                                          \
    do {                                                                                                              \
        long long got_ = (long long)(call), wanted_ = (long long)(wanted);                                            \
        if (got_ != wanted_) {                                                                                        \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #call, got_, wanted_);               \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)
#define OK(call) EXPECT(call, CUDA_SUCCESS)
#define HOLDS(condition) EXPECT(!!(condition), 1)

/* Bytes of the current card that are in use, by anybody. */
static inline size_t used(void)
{
    size_t have, all;
    OK(cuMemGetInfo_v2(&have, &all));
    return all - have;
}

/* Initialises the driver and makes the primary context of device 0 current. */
static inline CUcontext start(void)
{
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    return context;
}

#endif
