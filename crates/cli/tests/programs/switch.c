// Waits for the tester: each line on stdin is one round, in which three threads queue for a mutex that the main thread
// holds. Then it says on which kind of lock they do, counts under it, and says the count.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 3, ROUNDS = 2000 };

pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t g_other = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static long count;

static void *queue(void *lock) {
  for (int round = 0; round < ROUNDS; round++) {
    pthread_mutex_lock(lock);
    count++;
    pthread_mutex_unlock(lock);
    if (round == 0) pthread_barrier_wait(&barrier);
  }
  return NULL;
}

/* By the traces that our library leaves in a mutex: there is one as soon as a thread queues. */
static const char *kind(pthread_mutex_t *lock) {
  uintptr_t words[5];
  for (int tries = 0; tries < 60000; tries++) {
    memcpy(words, lock, sizeof words);
    if (words[3] != 0) return "a line";      // the line's tail
    if (words[4] != 0) return "a textbook lock";  // its room
    usleep(1000);
  }
  return "neither";
}

static const char *round_of(pthread_mutex_t *lock) {
  pthread_t threads[THREADS];
  pthread_mutex_lock(lock);
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, queue, lock);
  const char *seen = kind(lock);
  pthread_mutex_unlock(lock);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  return seen;
}

int main(void) {
  char line[16];
  pthread_barrier_init(&barrier, NULL, THREADS);
  while (fgets(line, sizeof line, stdin)) {
    count = 0;
    const char *seen = round_of(&g_lock), *other = round_of(&g_other);
    printf("%s, %s, %ld\n", seen, other, count);
    fflush(stdout);
  }
  return 0;
}
