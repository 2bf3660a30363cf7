// libfoo.so: a function that takes a lock, for server.c.
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int keys;

int leveldb_get(int key) {
    pthread_mutex_lock(&lock);
    keys += key;
    pthread_mutex_unlock(&lock);
    return key;
}
