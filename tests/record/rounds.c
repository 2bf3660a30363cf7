// `rounds HOW THREADS ROUNDS`: each thread locks and unlocks `one`, and `two` inside it, ROUNDS times. Then the
// program ends as HOW says: `return`, `_exit`, `kill` (SIGKILL while the threads hold `two` no more), or `fork`: a
// child does the same again, with one thread, before its parent returns.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, two = PTHREAD_MUTEX_INITIALIZER;
static volatile long count;
static long rounds;

static void *run(void *argument) {
  for (long round = 0; round < rounds; round++) {
    pthread_mutex_lock(&one);
    pthread_mutex_lock(&two);
    count++;
    pthread_mutex_unlock(&two);
    pthread_mutex_unlock(&one);
  }
  return argument;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  int threads = atoi(argv[2]);
  rounds = atol(argv[3]);
  pthread_t all[64];
  for (int i = 0; i < threads; i++) pthread_create(&all[i], NULL, run, NULL);
  for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
  if (count != threads * rounds) return 3;
  if (strcmp(argv[1], "kill") == 0) raise(SIGKILL);
  if (strcmp(argv[1], "_exit") == 0) _exit(7);
  if (strcmp(argv[1], "fork") == 0) {
    pid_t child = fork();
    run(NULL);
    int status = 0;
    if (child == 0) return 5;
    if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 5) return 4;
  }
  return 7;
}
