/* Threads that share no lock and no data: any race that a tool finds between them is in the code that
   serves their locks. */
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 3, ROUNDS = 50 };

static void *work(void *argument)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    pthread_rwlock_t rwlock;
    pthread_spinlock_t spin;
    pthread_rwlock_init(&rwlock, NULL);
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        pthread_cond_signal(&cond);
        pthread_mutex_unlock(&mutex);
        if (pthread_mutex_trylock(&mutex) == 0)
            pthread_mutex_unlock(&mutex);
        pthread_rwlock_rdlock(&rwlock);
        pthread_rwlock_unlock(&rwlock);
        pthread_rwlock_wrlock(&rwlock);
        pthread_rwlock_unlock(&rwlock);
        pthread_spin_lock(&spin);
        pthread_spin_unlock(&spin);
    }
    pthread_spin_destroy(&spin);
    pthread_rwlock_destroy(&rwlock);
    return argument;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
