/* A thousand allocations in each of four threads. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *work(void *unused) {
    (void)unused;
    char *held[100] = {0};
    for (int i = 0; i < 1000; i++) {
        size_t bytes = 1 + (size_t)i * 37 % 5000;
        free(held[i % 100]);
        if (!(held[i % 100] = malloc(bytes))) abort();
        memset(held[i % 100], i, bytes);
    }
    for (int i = 0; i < 100; i++) free(held[i]);
    return NULL;
}

int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
