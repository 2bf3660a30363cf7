// A forked child uses condition variables on which its parent's threads wait. The child's threads are woken, its
// deadlines pass, and the parent goes on as if nothing had happened. The forking thread itself does not wait.
// limit: 90
// counted: yes
#include "check.h"

enum { FORKS = 8, PARENTS = 3, CHILDREN = 3 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER, busy = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t busy_mutex = PTHREAD_MUTEX_INITIALIZER;
static int waiting, turn;
static atomic_bool stop;

static void *wait_for_turn(void *data)
{
    int mine = (int)(intptr_t)data;
    OK(pthread_mutex_lock(&mutex));
    waiting++;
    while (turn < mine)
        OK(pthread_cond_wait(&cond, &mutex));
    OK(pthread_mutex_unlock(&mutex));
    return NULL;
}

/* Keeps the condvar's list of waiters changing, so that a fork comes amid an edit. */
static void *keep_busy(void *data)
{
    (void)data;
    while (!stop) {
        struct timespec soon = in_ms(CLOCK_REALTIME, 1);
        OK(pthread_mutex_lock(&busy_mutex));
        int code = pthread_cond_timedwait(&busy, &busy_mutex, &soon);
        CHECK(code == 0 || code == ETIMEDOUT);
        OK(pthread_mutex_unlock(&busy_mutex));
        OK(pthread_cond_signal(&busy));
    }
    return NULL;
}

static void until_waiting(int count)
{
    UNTIL(({
        OK(pthread_mutex_lock(&mutex));
        bool all = waiting == count;
        OK(pthread_mutex_unlock(&mutex));
        all;
    }));
}

static void child(int number, bool ours)
{
    alarm(10);
    waiting = turn = 0;
    pthread_t threads[CHILDREN];
    for (int i = 0; i < CHILDREN; i++)
        threads[i] = start(wait_for_turn, (void *)1);
    until_waiting(CHILDREN);
    OK(pthread_mutex_lock(&mutex));
    turn = 1;
    if (number % 2)
        OK(pthread_cond_broadcast(&cond));
    for (int i = 0; i < CHILDREN && !(number % 2); i++)
        OK(pthread_cond_signal(&cond));
    OK(pthread_mutex_unlock(&mutex));
    for (int i = 0; i < CHILDREN; i++)
        join(threads[i]);
    struct timespec soon = in_ms(CLOCK_REALTIME, 2);
    OK(pthread_mutex_lock(&mutex));
    CHECK(pthread_cond_timedwait(&cond, &mutex, &soon) == ETIMEDOUT);
    OK(pthread_mutex_unlock(&mutex));
    if (ours) {
        /* glibc's own condvar can't stand this: it waits for the parent's waiters. */
        OK(pthread_cond_signal(&busy));
        OK(pthread_cond_broadcast(&busy));
        OK(pthread_cond_destroy(&busy));
        OK(pthread_cond_destroy(&cond));
    }
    fflush(stdout);
    _exit(failures != 0);
}

int main(void)
{
    bool ours = dlsym(RTLD_DEFAULT, "lockwright_preloaded");
    pthread_t waiters[PARENTS], busy_ones[2];
    for (int i = 0; i < PARENTS; i++)
        waiters[i] = start(wait_for_turn, (void *)(intptr_t)(i + 1));
    for (int i = 0; i < 2; i++)
        busy_ones[i] = start(keep_busy, NULL);
    until_waiting(PARENTS);
    for (int i = 0; i < FORKS; i++) {
        sleep_ms(i % 4);
        OK(pthread_mutex_lock(&mutex)); /* so that the child's copy is consistent */
        pid_t pid = fork();
        OK(pthread_mutex_unlock(&mutex));
        if (pid == 0)
            child(i, ours);
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    for (int i = 0; i < PARENTS; i++) {
        OK(pthread_mutex_lock(&mutex));
        turn = i + 1;
        OK(pthread_cond_broadcast(&cond));
        OK(pthread_mutex_unlock(&mutex));
        join(waiters[i]);
    }
    stop = true;
    for (int i = 0; i < 2; i++)
        join(busy_ones[i]);
    EXPECT(pthread_cond_destroy(&cond), 0);
    EXPECT(pthread_cond_destroy(&busy), 0);
    return finish();
}
