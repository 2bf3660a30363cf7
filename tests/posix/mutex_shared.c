// Process-shared mutexes and condition variables, between two processes.
#include "check.h"

struct shared {
    pthread_mutex_t mutex, private;
    pthread_cond_t filled, emptied;
    pthread_rwlock_t rwlock;
    pthread_barrier_t barrier;
    long value, sum, count;
};

enum { ROUNDS = 3000 };

static void produce(struct shared *s)
{
    for (long i = 1; i <= ROUNDS; i++) {
        OK(pthread_mutex_lock(&s->mutex));
        while (s->value)
            OK(pthread_cond_wait(&s->emptied, &s->mutex));
        s->value = i;
        OK(pthread_cond_signal(&s->filled));
        OK(pthread_mutex_unlock(&s->mutex));
    }
}

static void consume(struct shared *s)
{
    for (long i = 1; i <= ROUNDS; i++) {
        OK(pthread_mutex_lock(&s->mutex));
        while (!s->value)
            OK(pthread_cond_wait(&s->filled, &s->mutex));
        CHECK(s->value == i);
        s->sum += s->value;
        s->value = 0;
        OK(pthread_cond_broadcast(&s->emptied));
        OK(pthread_mutex_unlock(&s->mutex));
    }
}

static void count(struct shared *s)
{
    for (int i = 0; i < 20000; i++) {
        OK(pthread_mutex_lock(&s->mutex));
        s->count++;
        OK(pthread_mutex_unlock(&s->mutex));
    }
}

/* A process-shared condition variable with a process-private mutex. */
static struct shared *both;
static int turn;

static void *other_turn(void *data)
{
    (void)data;
    for (int i = 0; i < ROUNDS; i++) {
        OK(pthread_mutex_lock(&both->private));
        while (turn != 1)
            OK(pthread_cond_wait(&both->filled, &both->private));
        turn = 0;
        OK(pthread_cond_signal(&both->emptied));
        OK(pthread_mutex_unlock(&both->private));
    }
    return NULL;
}

int main(void)
{
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attr;
    OK(pthread_mutexattr_init(&attr));
    OK(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
    EXPECT(pthread_mutex_init(&s->mutex, &attr), 0);
    OK(pthread_mutex_init(&s->private, NULL));
    pthread_condattr_t cond_attr;
    OK(pthread_condattr_init(&cond_attr));
    OK(pthread_condattr_setpshared(&cond_attr, PTHREAD_PROCESS_SHARED));
    EXPECT(pthread_cond_init(&s->filled, &cond_attr), 0);
    EXPECT(pthread_cond_init(&s->emptied, &cond_attr), 0);
    pthread_barrierattr_t barrier_attr;
    OK(pthread_barrierattr_init(&barrier_attr));
    OK(pthread_barrierattr_setpshared(&barrier_attr, PTHREAD_PROCESS_SHARED));
    EXPECT(pthread_barrier_init(&s->barrier, &barrier_attr, 2), 0);
    pthread_rwlockattr_t rw_attr;
    OK(pthread_rwlockattr_init(&rw_attr));
    OK(pthread_rwlockattr_setpshared(&rw_attr, PTHREAD_PROCESS_SHARED));
    EXPECT(pthread_rwlock_init(&s->rwlock, &rw_attr), 0);

    OK(pthread_mutex_lock(&s->mutex));
    OK(pthread_rwlock_wrlock(&s->rwlock));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        CHECK(pthread_mutex_trylock(&s->mutex) == EBUSY);
        CHECK(pthread_rwlock_tryrdlock(&s->rwlock) == EBUSY);
        struct timespec soon = in_ms(CLOCK_REALTIME, 30);
        CHECK(pthread_mutex_timedlock(&s->mutex, &soon) == ETIMEDOUT);
        pthread_barrier_wait(&s->barrier);
        OK(pthread_rwlock_rdlock(&s->rwlock));
        OK(pthread_rwlock_unlock(&s->rwlock));
        count(s);
        pthread_barrier_wait(&s->barrier);
        consume(s);
        _exit(failures != 0);
    }
    pthread_barrier_wait(&s->barrier);
    sleep_ms(20);
    OK(pthread_rwlock_unlock(&s->rwlock));
    OK(pthread_mutex_unlock(&s->mutex));
    count(s);
    pthread_barrier_wait(&s->barrier);
    CHECK(s->count == 40000);
    produce(s);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(s->sum == (long)ROUNDS * (ROUNDS + 1) / 2);

    both = s;
    pthread_t thread = start(other_turn, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        OK(pthread_mutex_lock(&s->private));
        turn = 1;
        OK(pthread_cond_signal(&s->filled));
        while (turn != 0)
            OK(pthread_cond_wait(&s->emptied, &s->private));
        OK(pthread_mutex_unlock(&s->private));
    }
    join(thread);
    EXPECT(pthread_cond_destroy(&s->filled), 0);
    EXPECT(pthread_cond_destroy(&s->emptied), 0);
    EXPECT(pthread_mutex_destroy(&s->mutex), 0);
    EXPECT(pthread_mutex_destroy(&s->private), 0);
    return finish();
}
