// Spin locks.
// counted: yes
#include "check.h"

static pthread_spinlock_t s;
static long counter;

static int try_spin(void *data)
{
    (void)data;
    int code = pthread_spin_trylock(&s);
    if (code == 0)
        OK(pthread_spin_unlock(&s));
    return code;
}

static void *count(void *data)
{
    (void)data;
    for (int i = 0; i < 50000; i++) {
        if (i % 4 || pthread_spin_trylock(&s))
            OK(pthread_spin_lock(&s));
        counter++;
        OK(pthread_spin_unlock(&s));
    }
    return NULL;
}

int main(void)
{
    for (int shared = 0; shared < 2; shared++) {
        EXPECT(pthread_spin_init(&s, shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE), 0);
        EXPECT(pthread_spin_lock(&s), 0);
        EXPECT(pthread_spin_trylock(&s), EBUSY);
        EXPECT(elsewhere(try_spin, NULL), EBUSY);
        EXPECT(pthread_spin_unlock(&s), 0);
        EXPECT(elsewhere(try_spin, NULL), 0);
        pthread_t threads[4];
        counter = 0;
        for (int i = 0; i < 4; i++)
            threads[i] = start(count, NULL);
        for (int i = 0; i < 4; i++)
            join(threads[i]);
        printf("%ld\n", counter);
        CHECK(counter == 200000);
        EXPECT(pthread_spin_destroy(&s), 0);
    }

    /* Between processes, and with the bytes that glibc uses. */
    struct { pthread_spinlock_t lock; long value; } *both =
        mmap(NULL, sizeof *both, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    OK(pthread_spin_init(&both->lock, PTHREAD_PROCESS_SHARED));
    fflush(stdout);
    pid_t child = fork();
    for (int i = 0; i < 50000; i++) {
        OK(pthread_spin_lock(&both->lock));
        both->value++;
        OK(pthread_spin_unlock(&both->lock));
    }
    if (child == 0)
        _exit(0);
    CHECK(waitpid(child, NULL, 0) == child);
    printf("%ld\n", both->value);
    CHECK(both->value == 100000);
    return finish();
}
