// Waits for a thread, in the C library and not in a lock.
#include <pthread.h>
#include <unistd.h>

static void *run(void *argument) {
  // Until main surely waits.
  usleep(1500000);
  return argument;
}

int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, run, NULL);
  return pthread_join(thread, NULL);
}
