/* Calls a function that two libraries define, twice from each of eight threads. */
#include <pthread.h>
#include <stdio.h>

extern const char *chain(void);

static void *twice(void *unused) {
    (void)unused;
    for (int i = 0; i < 2; i++) printf("%s\n", chain());
    return NULL;
}

int main(void) {
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, twice, NULL);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    return 0;
}
