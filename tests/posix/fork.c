// fork while threads hold, wait and sleep: the child can unlock what its thread held, destroy and initialise anew,
// and contend with new threads. The parent goes on as if nothing had happened.
// limit: 90
#include "check.h"

static pthread_mutex_t m, used_by_child;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static long counter;
static _Atomic bool stop;
static int waiting, token;

static void *contend(void *data)
{
    (void)data;
    while (!stop) {
        OK(pthread_mutex_lock(&m));
        counter++;
        OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

static void *wait_for_token(void *data)
{
    (void)data;
    OK(pthread_mutex_lock(&m));
    waiting++;
    while (!token)
        OK(pthread_cond_wait(&c, &m));
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static void *count(void *data)
{
    pthread_mutex_t *mutex = data;
    for (int i = 0; i < 3000; i++) {
        OK(pthread_mutex_lock(mutex));
        counter++;
        OK(pthread_mutex_unlock(mutex));
    }
    return NULL;
}

static void contend_with_new_threads(pthread_mutex_t *mutex)
{
    counter = 0;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = start(count, mutex);
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    CHECK(counter == 12000);
}

static void child(int kind)
{
    alarm(30);
    /* We hold it. The parent's other threads wait for it, but don't exist here. */
    if (kind != PTHREAD_MUTEX_RECURSIVE && kind != PTHREAD_MUTEX_ERRORCHECK)
        OK(pthread_mutex_unlock(&m));
    else
        pthread_mutex_unlock(&m);
    OK(pthread_mutex_init(&m, NULL));
    contend_with_new_threads(&m);
    OK(pthread_mutex_destroy(&m));
    init_kind(&m, kind);
    contend_with_new_threads(&m);
    /* Never used before the fork. */
    contend_with_new_threads(&used_by_child);
    OK(pthread_mutex_destroy(&used_by_child));
    /* A condition variable on which threads of the parent wait, initialised anew. */
    OK(pthread_cond_init(&c, NULL));
    waiting = token = 0;
    pthread_t thread = start(wait_for_token, NULL);
    UNTIL(waiting == 1);
    OK(pthread_mutex_lock(&m));
    token = 1;
    OK(pthread_cond_signal(&c));
    OK(pthread_mutex_unlock(&m));
    join(thread);
    OK(pthread_cond_destroy(&c));
    fflush(stdout);
    _exit(failures != 0);
}

int main(void)
{
    int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_RECURSIVE,
                   PTHREAD_MUTEX_ADAPTIVE_NP};
    for (int k = 0; k < 4; k++) {
        init_kind(&m, kinds[k]);
        init_kind(&used_by_child, kinds[k]);
        stop = false;
        waiting = token = 0;
        pthread_t contenders[3], waiter = start(wait_for_token, NULL);
        UNTIL(({
            OK(pthread_mutex_lock(&m));
            bool waits = waiting == 1;
            OK(pthread_mutex_unlock(&m));
            waits;
        }));
        for (int i = 0; i < 3; i++)
            contenders[i] = start(contend, NULL);
        for (int round = 0; round < 15; round++) {
            OK(pthread_mutex_lock(&m));
            /* Long enough for all three to queue; in other rounds, long enough to fall asleep. */
            if (round % 3)
                sleep_ms(round % 3 == 1 ? 1 : 10);
            pid_t pid = fork();
            if (pid == 0)
                child(kinds[k]);
            OK(pthread_mutex_unlock(&m));
            int status;
            CHECK(waitpid(pid, &status, 0) == pid);
            if (!WIFEXITED(status) || WEXITSTATUS(status)) {
                printf("FAILED: kind %d round %d: the child ended with status %#x\n", kinds[k], round, status);
                failures++;
            }
        }
        stop = true;
        for (int i = 0; i < 3; i++)
            join(contenders[i]);
        OK(pthread_mutex_lock(&m));
        token = 1;
        OK(pthread_cond_broadcast(&c));
        OK(pthread_mutex_unlock(&m));
        join(waiter);
        EXPECT(pthread_mutex_destroy(&m), 0);
    }
    return finish();
}
