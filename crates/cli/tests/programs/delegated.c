/* Four threads that send their sections to one table, until the program's input ends. */
#include "pause.h"
#include <lockwright_sync.h>

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static lw_delegated_t g_table = LW_DELEGATED_INIT;
static long table[64];
static int is_over;

static void count(void *context)
{
    (void)context;
    for (int i = 0; i < 64; i += 8)
        table[i]++;
}

static void *work(void *context)
{
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
        lw_execute(&g_table, count, context);
        pause_at_times();
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[4];
    char byte;
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, work, NULL))
            return 1;
    puts("begun");
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    puts(table[0] == table[56] ? "done" : "torn");
    return 0;
}
