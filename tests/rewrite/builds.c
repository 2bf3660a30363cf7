// converted: add get
// refused: waits_in_one: an #if begins or ends in the middle of it
// refused: left_out: leaves in a part that #if leaves out here
// refused: through: another build of the file has no such section
/* One file, two builds: a library with threads, and a program without, which makes nothing of its mutexes. */
#include <stdio.h>

#ifdef WITHOUT_THREADS
#define pthread_mutex_lock(mutex)
#define pthread_mutex_unlock(mutex)
#define lock_own()
#define unlock_own()
#else
#include <pthread.h>
static void lock_own(void);
static void unlock_own(void);
#endif

struct counter {
#ifndef WITHOUT_THREADS
    pthread_mutex_t mutex;
#endif
    long count;
};

static void add(struct counter *counter, long n)
{
    pthread_mutex_lock(&counter->mutex);
    counter->count += n;
    pthread_mutex_unlock(&counter->mutex);
}

static long get(struct counter *counter)
{
    pthread_mutex_lock(&counter->mutex);
    if (counter->count < 0) {
        pthread_mutex_unlock(&counter->mutex);
        return -1;
    }
    long count = counter->count;
    pthread_mutex_unlock(&counter->mutex);
    return count;
}

#ifndef WITHOUT_THREADS
static struct counter counter = {PTHREAD_MUTEX_INITIALIZER, 0};
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;

static void lock_own(void)
{
    pthread_mutex_lock(&counter.mutex);
}

static void unlock_own(void)
{
    pthread_mutex_unlock(&counter.mutex);
}
#else
static struct counter counter;
#endif

static void through(void)
{
    lock_own();
    counter.count++;
    unlock_own();
}

static void waits_in_one(void)
{
    pthread_mutex_lock(&counter.mutex);
#ifndef WITHOUT_THREADS
    while (counter.count < 0)
        pthread_cond_wait(&filled, &counter.mutex);
#endif
    counter.count += 0;
    pthread_mutex_unlock(&counter.mutex);
}

static int left_out(void)
{
    pthread_mutex_lock(&counter.mutex);
#ifdef WITHOUT_THREADS
    if (counter.count < 0)
        return -1;
#endif
    counter.count += 0;
    pthread_mutex_unlock(&counter.mutex);
    return 0;
}

static void *run(void *arg)
{
    (void)arg;
    for (int i = 0; i < 1000; i++) {
        add(&counter, 1);
        through();
        waits_in_one();
        if (get(&counter) < 2 || left_out())
            return &counter;
    }
    return NULL;
}

int main(void)
{
    void *wrong = NULL;
#ifdef WITHOUT_THREADS
    wrong = run(NULL);
    long all = 2000;
#else
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, run, NULL))
            return 1;
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong = result ? result : wrong;
    }
    long all = 8000;
#endif
    if (wrong || get(&counter) != all)
        return 1;
    add(&counter, -2 * all);
    if (get(&counter) != -1)
        return 1;
    puts("ok");
    return 0;
}
