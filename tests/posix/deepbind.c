// A library opened with RTLD_DEEPBIND shares a mutex and a condvar with the program: each side waits for the other.
// beside: lib_deep
// whole: yes
// flag: -rdynamic
#include "check.h"

#define ROUNDS 2000

struct shared {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int turn;
    long counter;
};

static struct shared ours = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};
static void (*deep_turns)(struct shared *, int, int);

static void turns(struct shared *s, int me, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        OK(pthread_mutex_lock(&s->mutex));
        while (s->turn != me) {
            if (i % 2) {
                OK(pthread_cond_wait(&s->cond, &s->mutex));
            } else {
                struct timespec late = in_ms(CLOCK_REALTIME, 100000);
                OK(pthread_cond_timedwait(&s->cond, &s->mutex, &late));
            }
        }
        s->turn = !me;
        s->counter++;
        if (i % 3)
            OK(pthread_cond_signal(&s->cond));
        else
            OK(pthread_cond_broadcast(&s->cond));
        OK(pthread_mutex_unlock(&s->mutex));
    }
}

static void *here(void *data)
{
    turns(data, 0, ROUNDS);
    return NULL;
}

static void *there(void *data)
{
    deep_turns(data, 1, ROUNDS);
    return NULL;
}

static void *find(void *library, const char *name)
{
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    return found;
}

static void run(const char *path, int how)
{
    void *library = dlopen(path, how | RTLD_DEEPBIND);
    if (!library) {
        printf("FAILED: %s\n", dlerror());
        exit(1);
    }
    deep_turns = (void (*)(struct shared *, int, int))find(library, "deep_turns");
    struct shared *theirs = find(library, "deep_shared");
    struct shared *both[] = {&ours, theirs};
    for (int i = 0; i < 2; i++) {
        pthread_t one = start(here, both[i]), two = start(there, both[i]);
        join(one);
        join(two);
        printf("counter %ld\n", both[i]->counter);
    }
    // A thread of the library has waited since the library's constructor ran.
    int (*deep_wake)(void) = (int (*)(void))find(library, "deep_wake");
    CHECK(deep_wake() == 1);
    // In everything else, the library is isolated.
    int (*deep_which)(void) = (int (*)(void))find(library, "deep_which");
    printf("isolated: %d\n", deep_which());
    CHECK(dlclose(library) == 0);
}

int which(void);
int which(void) { return 1; }

int main(int argc, char **argv)
{
    (void)argc;
    char path[4096];
    snprintf(path, sizeof path, "%s", argv[0]);
    char *slash = strrchr(path, '/');
    CHECK(slash != NULL);
    strcpy(slash ? slash + 1 : path, "lib_deep.so");
    run(path, RTLD_LAZY);
    run(path, RTLD_NOW);
    return finish();
}
