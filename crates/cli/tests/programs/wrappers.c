// A lock that users take by functions of the program's own, as large programs do. LOCK, UNLOCK: their names. DEEP: by two of them, one
// above the other. It says `ready` once its threads run, and ends with its input.
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#ifndef LOCK
#define LOCK my_mutex_lock
#define UNLOCK my_mutex_unlock
#endif

#define APART __attribute__((noinline))

struct my_mutex {
    pthread_mutex_t native;
    unsigned long taken, failed;
};

static struct my_mutex table = {.native = PTHREAD_MUTEX_INITIALIZER};
static volatile int stop;
static volatile long sum;

// They do something before and after, and have a frame.
APART int LOCK(struct my_mutex *mutex, const char *file, int line) {
    volatile char told[48];
    told[line % 48] = file[0];
    int error = pthread_mutex_lock(&mutex->native);
    if (error) mutex->failed += told[0];
    mutex->taken++;
    return error;
}

APART int UNLOCK(struct my_mutex *mutex, const char *file, int line) {
    volatile char told[48];
    told[line % 48] = file[0];
    int error = pthread_mutex_unlock(&mutex->native);
    if (error) sum += told[0];
    return error;
}

#ifdef DEEP
APART void table_lock(struct my_mutex *mutex, int mode) {
    volatile int modes[4];
    modes[mode & 3] = mode;
    if (LOCK(mutex, __FILE__, __LINE__)) sum += modes[0];
    sum++;
}
APART void table_unlock(struct my_mutex *mutex, int mode) {
    volatile int modes[4];
    modes[mode & 3] = mode;
    if (UNLOCK(mutex, __FILE__, __LINE__)) sum += modes[0];
    sum++;
}
#define TAKE() table_lock(&table, 1)
#define GIVE() table_unlock(&table, 1)
#else
#define TAKE() LOCK(&table, __FILE__, __LINE__)
#define GIVE() UNLOCK(&table, __FILE__, __LINE__)
#endif

static void sleep_us(long us) { nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL); }

APART void hoard(void) {
    TAKE();
    sleep_us(2000); // so that others wait, on any machine
    GIVE();
    sum++;
}

APART void quick(void) {
    TAKE();
    sum++;
    GIVE();
    sum++;
}

#ifdef WALLET
// Its name ends like a wrapper's, but it has the whole section.
APART int wallet_unlock(long us) {
    int error = pthread_mutex_lock(&table.native);
    sleep_us(us);
    if (pthread_mutex_unlock(&table.native)) error++;
    return error;
}
APART void shop(long us) {
    if (wallet_unlock(us)) sum++;
    sum++;
}
#define hoard() shop(2000)
#define quick() shop(10)
#endif

static void *slowly(void *unused) {
    while (!stop) {
        hoard();
        sleep_us(500);
    }
    return unused;
}

static void *quickly(void *unused) {
    while (!stop) {
        quick();
        sleep_us(100);
    }
    return unused;
}

int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, i ? quickly : slowly, NULL);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {}
    stop = 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}
