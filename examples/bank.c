// A bank: a transfer should take at most 100 us, and an audit at most 5 ms. Each SLO takes three lines.
//
//     cc -O2 -pthread -I include examples/bank.c -o bank
//     ./bank                                            the program as it is
//     lockwright run --lock asl --stats -- ./bank       with its SLOs kept, and a report on them
//
// It prints the same with and without lockwright: no money is lost.

#include "lockwright.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ACCOUNTS = 64, DEPOSIT = 1000 };
enum { TRANSFER = 1, AUDIT = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long account[ACCOUNTS];
static long transfers = 20000;

static unsigned dice(unsigned *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 16;
}

static void transfer(unsigned *seed)
{
    unsigned from = dice(seed) % ACCOUNTS, to = dice(seed) % ACCOUNTS;

    lw_epoch_start(TRANSFER);
    pthread_mutex_lock(&lock);
    long amount = account[from] / 10;
    account[from] -= amount;
    account[to] += amount;
    pthread_mutex_unlock(&lock);
    lw_epoch_end(TRANSFER, 100 * 1000);
}

// Adds up all accounts, and makes a transfer, too: during the transfer the inner epoch's SLO counts.
static long audit(unsigned *seed)
{
    long sum = 0;

    lw_epoch_start(AUDIT);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ACCOUNTS; i++)
        sum += account[i];
    pthread_mutex_unlock(&lock);
    transfer(seed);
    lw_epoch_end(AUDIT, 5 * 1000 * 1000);
    return sum;
}

static void *clerk(void *number)
{
    unsigned seed = (unsigned)(size_t)number;

    for (long i = 0; i < transfers; i++) {
        transfer(&seed);
        if (i % 100 == 0 && audit(&seed) != ACCOUNTS * DEPOSIT)
            abort();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread[4];
    unsigned seed = 0;

    if (argc > 1)
        transfers = atol(argv[1]);
    lw_epoch_name(TRANSFER, "transfer");
    lw_epoch_name(AUDIT, "audit");
    lw_epoch_percentile(AUDIT, 95);
    for (int i = 0; i < ACCOUNTS; i++)
        account[i] = DEPOSIT;
    for (size_t i = 0; i < 4; i++)
        if (pthread_create(&thread[i], NULL, clerk, (void *)(i + 1)))
            abort();
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    printf("%ld\n", audit(&seed));
    return 0;
}
