// Linked without libc, so that its references have no version. The condvar's memory is not zero: the function that
// initialises it must be of the same version as the one that waits on it.
typedef unsigned long words[8];
extern int pthread_mutex_init(void *, const void *), pthread_mutex_lock(void *), pthread_mutex_unlock(void *);
extern int pthread_cond_init(void *, const void *), pthread_cond_wait(void *, void *);
extern int pthread_cond_signal(void *), pthread_cond_broadcast(void *), pthread_cond_destroy(void *);
extern int pthread_create(unsigned long *, const void *, void *(*)(void *), void *);
extern int pthread_join(unsigned long, void **);

static words mutex, cond;
static int posted;

static void *post(void *all)
{
    pthread_mutex_lock(mutex);
    posted = 1;
    if (all)
        pthread_cond_broadcast(cond);
    else
        pthread_cond_signal(cond);
    pthread_mutex_unlock(mutex);
    return 0;
}

/* Waits for a thread, `rounds` times. Each round finds the condvar's memory as the last one left it. */
int bare_waits(int rounds);
int bare_waits(int rounds)
{
    int answers = pthread_mutex_init(mutex, 0);
    for (int i = 0; i < 8; i++)
        cond[i] = 0x0101010101010101;
    for (int round = 0; round < rounds; round++) {
        unsigned long thread;
        answers |= pthread_cond_init(cond, 0);
        posted = 0;
        pthread_mutex_lock(mutex);
        answers |= pthread_create(&thread, 0, post, round % 2 ? cond : 0);
        while (!posted)
            answers |= pthread_cond_wait(cond, mutex);
        pthread_mutex_unlock(mutex);
        answers |= pthread_join(thread, 0);
        answers |= pthread_cond_destroy(cond);
    }
    return answers;
}
