// Asks whether ThreadSanitizer is there, as our own static library does: which does not make it so.
#include <pthread.h>

extern void __tsan_init(void) __attribute__((weak));

int main(void) {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  pthread_mutex_unlock(&lock);
  return __tsan_init != 0;
}
