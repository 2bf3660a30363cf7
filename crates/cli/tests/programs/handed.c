// A mutex that is handed on through a condition variable. With `dropped` the program gives up root's rights first, as servers do.
// The locks are pthread's; with -DC11 those of C11, with -DLINKED lockwright_sync.h's. With -DTIMED all waits have deadlines, which
// are far away.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined LINKED
#include <lockwright_sync.h>
typedef lw_mutex_t mutex;
typedef lw_cond_t cond;
#define INIT LW_COND_INIT
#define unlock lw_mutex_unlock
#define broadcast lw_cond_broadcast
#define lock(m) (TIMED ? lw_mutex_timedlock(m, CLOCK_REALTIME, &late) : lw_mutex_lock(m))
#define wait(c, m) (TIMED ? lw_cond_timedwait(c, m, CLOCK_REALTIME, &late) : lw_cond_wait(c, m))
#elif defined C11
#include <threads.h>
typedef mtx_t mutex;
typedef cnd_t cond;
#define INIT {{0}}
#define unlock mtx_unlock
#define broadcast cnd_broadcast
#define lock(m) (TIMED ? mtx_timedlock(m, &late) : mtx_lock(m))
#define wait(c, m) (TIMED ? cnd_timedwait(c, m, &late) : cnd_wait(c, m))
#else
typedef pthread_mutex_t mutex;
typedef pthread_cond_t cond;
#define INIT PTHREAD_COND_INITIALIZER
#define unlock pthread_mutex_unlock
#define broadcast pthread_cond_broadcast
#define lock(m) (TIMED ? pthread_mutex_timedlock(m, &late) : pthread_mutex_lock(m))
#define wait(c, m) (TIMED ? pthread_cond_timedwait(c, m, &late) : pthread_cond_wait(c, m))
#endif
#ifndef TIMED
#define TIMED 0
#endif

enum { THREADS = 4, ROUNDS = 2000 };
// So large that its end lies in no page of the program's file.
static struct {
    char room[1 << 16];
    mutex lock;
} table;
static cond turn = INIT;
static int whose;
static struct timespec late;

__attribute__((noinline)) static void take_turn(int me) {
    lock(&table.lock);
    while (whose != me) wait(&turn, &table.lock);
    whose = (whose + 1) % THREADS;
    // The woken find it taken.
    broadcast(&turn);
    if (me == 0) usleep(50);
    unlock(&table.lock);
}

static void *play(void *number) {
    for (int round = 0; round < ROUNDS; round++) take_turn((int)(long)number);
    return NULL;
}

int main(int count, char **words) {
    if (count > 1 && strcmp(words[1], "dropped") == 0 && (setgid(65534) || setuid(65534))) return 1;
    late.tv_sec = time(NULL) + 3600;
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, play, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
