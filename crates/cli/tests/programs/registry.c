/* A library whose every look-up takes readers-writer locks, as OpenSSL 3's EVP_MD_fetch does. Several steps lie between its function and its locks. */
#include <pthread.h>
#include <string.h>

static pthread_rwlock_t names = PTHREAD_RWLOCK_INITIALIZER, methods = PTHREAD_RWLOCK_INITIALIZER;
static const char *const known[] = {"MD5", "SHA1", "SHA256"};

static __attribute__((noinline)) void registry_read_lock(pthread_rwlock_t *lock)
{
    pthread_rwlock_rdlock(lock);
}

static __attribute__((noinline)) void registry_unlock(pthread_rwlock_t *lock)
{
    pthread_rwlock_unlock(lock);
}

static __attribute__((noinline)) int number(const char *name)
{
    int found = -1;
    registry_read_lock(&names);
    for (int i = 0; i < 3; i++)
        if (strcmp(known[i], name) == 0)
            found = i;
    registry_unlock(&names);
    return found;
}

static __attribute__((noinline)) int method(int number)
{
    registry_read_lock(&methods);
    int found = number + 1;
    __asm__ volatile("" : "+r"(found));
    registry_unlock(&methods);
    return found;
}

int registry_find(const char *name)
{
    int found = method(number(name));
    __asm__ volatile("" : "+r"(found));
    return found;
}
