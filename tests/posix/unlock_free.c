// The last thread to get a mutex may unmap it at once: unlock must not touch the mutex after it has released it.
// limit: 90
#include "check.h"

enum { ROUNDS = 20000, USERS = 3 };

struct object {
    pthread_mutex_t mutex;
    int references;
};

static _Atomic(struct object *) current;
static pthread_barrier_t barrier;
static _Atomic long freed;

static void *use(void *data)
{
    (void)data;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&barrier);
        struct object *object = current;
        OK(pthread_mutex_lock(&object->mutex));
        bool last = --object->references == 0;
        OK(pthread_mutex_unlock(&object->mutex));
        if (last) {
            /* POSIX asks for a destroy, but programs forget it. Every other round does as POSIX asks. */
            if (round % 2)
                OK(pthread_mutex_destroy(&object->mutex));
            CHECK(munmap(object, 4096) == 0);
            freed++;
        }
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(void)
{
    OK(pthread_barrier_init(&barrier, NULL, USERS + 1));
    pthread_t threads[USERS];
    for (int i = 0; i < USERS; i++)
        threads[i] = start(use, NULL);
    int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK};
    for (int round = 0; round < ROUNDS; round++) {
        struct object *object =
            mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        init_kind(&object->mutex, kinds[round % 3]);
        object->references = USERS;
        current = object;
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
    }
    for (int i = 0; i < USERS; i++)
        join(threads[i]);
    printf("%ld freed\n", freed);
    CHECK(freed == ROUNDS);
    return finish();
}
