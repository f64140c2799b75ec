/* closed_streams FILE: opens FILE until it is descriptor 2, writes a line to it, and calls the driver. */
#include <fcntl.h>
#include <unistd.h>

#include "harness/driver.h"

int main(int argc, char **argv) {
    if (argc != 2) return 3;
    int descriptor;
    do descriptor = open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0600);
    while (descriptor >= 0 && descriptor < 2);
    if (descriptor != 2 || write(2, "mine\n", 5) != 5) return 4;
    return reach_driver("dlsym").init(0) == CUDA_ERROR_NOT_PERMITTED ? 0 : 5;
}
