/* Uses the driver if it is there, as its weak references tell. Exit status 0 in every case. */
#include <stdio.h>

#include "cuda_abi.h"

extern CUresult cuInit(unsigned) __attribute__((weak));
extern CUresult cuMemAlloc_v2(CUdeviceptr *, size_t) __attribute__((weak));

CUresult (*volatile table[])(unsigned) = {cuInit};

int main(void) {
    printf("cuInit %s, cuMemAlloc_v2 %s, table %s\n", cuInit ? "there" : "absent", cuMemAlloc_v2 ? "there" : "absent",
           table[0] ? "there" : "absent");
    return 0;
}
