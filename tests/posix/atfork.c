// pthread_atfork handlers that take the locks before the fork and release them on both sides.
#include "check.h"

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t two = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static _Atomic bool stop;
static long a, b;

static void prepare(void)
{
    OK(pthread_mutex_lock(&one));
    OK(pthread_mutex_lock(&two));
    OK(pthread_rwlock_wrlock(&rw));
}

static void parent(void)
{
    OK(pthread_rwlock_unlock(&rw));
    OK(pthread_mutex_unlock(&two));
    OK(pthread_mutex_unlock(&one));
}

static void child(void)
{
    /* The holder's thread id has changed. glibc lets the child unlock a normal mutex; the others are usually
     * initialised anew. */
    pthread_mutexattr_t attr;
    OK(pthread_mutexattr_init(&attr));
    OK(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE));
    OK(pthread_rwlock_init(&rw, NULL));
    OK(pthread_mutex_init(&two, &attr));
    OK(pthread_mutex_unlock(&one));
}

static void *contend(void *data)
{
    (void)data;
    while (!stop) {
        OK(pthread_mutex_lock(&one));
        OK(pthread_mutex_lock(&two));
        OK(pthread_rwlock_rdlock(&rw));
        a++;
        b++;
        OK(pthread_rwlock_unlock(&rw));
        OK(pthread_mutex_unlock(&two));
        OK(pthread_mutex_unlock(&one));
    }
    return NULL;
}

int main(void)
{
    OK(pthread_atfork(prepare, parent, child));
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        threads[i] = start(contend, NULL);
    for (int round = 0; round < 60; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            CHECK(a == b);
            pthread_t mine[2];
            for (int i = 0; i < 2; i++)
                mine[i] = start(contend, NULL);
            OK(pthread_mutex_lock(&one));
            OK(pthread_mutex_unlock(&one));
            stop = true;
            for (int i = 0; i < 2; i++)
                join(mine[i]);
            CHECK(a == b);
            _exit(failures != 0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    stop = true;
    for (int i = 0; i < 3; i++)
        join(threads[i]);
    CHECK(a == b);
    return finish();
}
