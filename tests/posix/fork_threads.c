// Children that have two threads before the library has noticed that they are children: no fork handler of ours runs (`_Fork`, fork
// by its number), or one that came before ours starts a thread. One thread waits for a condition variable, and the other signals it.
// limit: 90
#include "check.h"

#define ROUNDS 400

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER, unused = PTHREAD_COND_INITIALIZER;
static atomic_int ready, waits;
static bool go, by_handler;
static int delay;
static pthread_t early;

static void meet(void)
{
    atomic_fetch_add(&ready, 1);
    // Awake, so that both go on at the same time.
    for (int looks = 0; atomic_load(&ready) < 2; looks++)
        if (looks > 1000000)
            sched_yield();
}

static void *waiter(void *data)
{
    meet();
    OK(pthread_mutex_lock(&m));
    waits = 1;
    while (!go)
        OK(pthread_cond_wait(&c, &m));
    OK(pthread_mutex_unlock(&m));
    return data;
}

static void *signaller(void *data)
{
    struct timespec past = {0, 1};
    meet();
    for (volatile int i = 0; i < delay; i++)
        ;
    OK(pthread_mutex_lock(&other));
    CHECK(pthread_cond_timedwait(&unused, &other, &past) == ETIMEDOUT);
    OK(pthread_mutex_unlock(&other));
    while (!atomic_load(&waits))
        sched_yield();
    OK(pthread_mutex_lock(&m));
    go = true;
    OK(pthread_cond_signal(&c));
    OK(pthread_mutex_unlock(&m));
    return data;
}

static void in_child(void)
{
    if (by_handler)
        OK(pthread_create(&early, NULL, waiter, NULL));
}

/* Before the library's constructor registers its handlers. */
__attribute__((constructor)) static void first(void) { pthread_atfork(NULL, NULL, in_child); }

static pid_t by_number(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }

static pid_t by_fork(void)
{
    pid_t (*bare)(void) = (pid_t (*)(void))dlsym(RTLD_DEFAULT, "_Fork");
    return bare ? bare() : fork();
}

static void rounds(const char *how, pid_t (*make)(void))
{
    int bad = 0;
    for (int i = 0; i < ROUNDS && bad == 0; i++) {
        delay = i * 7 % 600;
        pid_t child = make();
        if (child == 0) {
            alarm(20);
            if (!by_handler)
                early = start(waiter, NULL);
            join(start(signaller, NULL));
            join(early);
            _exit(failures != 0);
        }
        int status = -1;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    printf("%s: %s\n", how, bad ? "hung" : "done");
    failures += bad;
}

int main(void)
{
    // The parent has used the condition variable: it carries an era.
    struct timespec past = {0, 1};
    OK(pthread_mutex_lock(&m));
    EXPECT(pthread_cond_timedwait(&c, &m, &past), ETIMEDOUT);
    OK(pthread_mutex_unlock(&m));
    fflush(stdout);
    rounds("_Fork", by_fork);
    rounds("clone", by_number);
    by_handler = true;
    rounds("fork, a handler starts a thread", fork);
    return finish();
}
