// Signal handlers run epochs in the middle of epochs' own operations, in several threads.
#include "lockwright.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile sig_atomic_t stop;
static long handled;

static void handler(int signal)
{
    (void)signal;
    lw_epoch_start(900);
    lw_epoch_start(901);
    lw_epoch_end(901, 1);
    lw_epoch_end(900, 1000000);
    __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

static void *work(void *unused)
{
    unsigned id = 0;
    while (!stop) {
        id = (id + 1) % 800;
        lw_epoch_start((int)id);
        lw_epoch_start((int)id + 1);
        lw_epoch_end((int)id + 1, 1000);
        lw_epoch_end((int)id, 1000);
    }
    // A lost entry would still be on the stack: 64 more could not be told apart.
    for (int i = 0; i < 60; i++)
        lw_epoch_start(i);
    for (int i = 59; i >= 0; i--)
        lw_epoch_end(i, 1);
    return unused;
}

int main(void)
{
    pthread_t thread[4];
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    struct timespec pause = { 0, 20000 };

    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 4; i++)
        if (pthread_create(&thread[i], NULL, work, NULL))
            abort();
    // Signals to a thread that does not run are one: where the CPUs have other work, it takes more of them.
    for (int i = 0; i < 4000 || (i < 400000 && __atomic_load_n(&handled, __ATOMIC_RELAXED) <= 100); i++) {
        pthread_kill(thread[i % 4], SIGUSR1);
        nanosleep(&pause, NULL);
    }
    stop = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    puts(handled > 100 ? "handled" : "hardly handled");
    return 0;
}
