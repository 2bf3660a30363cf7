// Threads that compete for two mutexes; prints how often they had them, then ends as the arguments say:
// `exit CODE`, `signal NUMBER`, or by returning 0. With `rules` it only prints the library's rules.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 3000 };

pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;
static long count;
static volatile int work;

__attribute__((noinline)) static void add(void) {
  pthread_mutex_lock(&own_lock);
  count++;
  // The holder sleeps, so that somebody waits for certain.
  if (count % 256 == 0) usleep(1000);
  pthread_mutex_unlock(&own_lock);
}

static void *run(void *argument) {
  for (int round = 0; round < ROUNDS; round++) {
    pthread_mutex_lock(&g_lock);
    work++;
    pthread_mutex_unlock(&g_lock);
    add();
  }
  return argument;
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "rules") == 0) return puts(getenv("LOCKWRIGHT_RULES")) < 0;
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, run, NULL);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  printf("%ld\n", count);
  fflush(stdout);
  if (argc > 2 && strcmp(argv[1], "signal") == 0) raise(atoi(argv[2]));
  return argc > 2 ? atoi(argv[2]) : 0;
}
