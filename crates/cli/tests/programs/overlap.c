// Two readers of an rwlock overlap for ever, unless a writer gets in: one of them leaves only while the other one is in, and that one stays
// until the first is back. After a byte of input, or its end, it no longer waits so long for a reader that steps aside.
// With `nested`, a thread reads, and reads again while a writer waits.
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

pthread_rwlock_t g_table = PTHREAD_RWLOCK_INITIALIZER;
static atomic_int inside, turn, wrote, may_go;

// In units of 100 us: less than the patience of a reader that steps aside.
enum { STEPS = 30 };

static void *reads(void *data) {
    int me = (int)(intptr_t)data, step = 0;
    pthread_rwlock_rdlock(&g_table);
    inside++;
    while (!wrote) {
        // Until it is this one's turn, and the other one is in.
        for (step = 0; (turn != me || inside < 2) && !wrote && !(may_go && step > STEPS); step++)
            usleep(100);
        inside--;
        pthread_rwlock_unlock(&g_table);
        pthread_rwlock_rdlock(&g_table);
        inside++;
        turn = 1 - me;
    }
    pthread_rwlock_unlock(&g_table);
    return data;
}

static void *writes(void *data) {
    pthread_rwlock_wrlock(&g_table);
    wrote = 1;
    pthread_rwlock_unlock(&g_table);
    return data;
}

static void *hears(void *data) {
    getchar();
    may_go = 1;
    return data;
}

// glibc counts waiting writers there, too.
static int writer_waits(void) {
    return __atomic_load_n(&g_table.__data.__writers, __ATOMIC_RELAXED) != 0;
}

int main(int count, char **words) {
    pthread_t writer, readers[2], other;
    if (count > 1 && strcmp(words[1], "nested") == 0) {
        pthread_rwlock_rdlock(&g_table);
        pthread_create(&writer, NULL, writes, NULL);
        while (!writer_waits())
            usleep(100);
        pthread_rwlock_rdlock(&g_table);
        puts(wrote ? "the writer is in, too" : "again");
        pthread_rwlock_unlock(&g_table);
        pthread_rwlock_unlock(&g_table);
        pthread_join(writer, NULL);
        return 0;
    }
    for (int i = 0; i < 2; i++)
        pthread_create(&readers[i], NULL, reads, (void *)(intptr_t)i);
    while (inside < 2)
        usleep(100);
    pthread_create(&writer, NULL, writes, NULL);
    while (!writer_waits() && !wrote)
        usleep(100);
    puts("waits");
    fflush(stdout);
    pthread_create(&other, NULL, hears, NULL);
    pthread_join(writer, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(readers[i], NULL);
    puts("wrote");
    return 0;
}
