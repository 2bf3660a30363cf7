// Waits for the tester: each line on stdin is one step, for which threads sleep as the step before left them.
//
//   begin   the main thread holds the mutexes, a thread sleeps for each, and one waits for the condition variable
//   step    the main thread releases them; the sleepers get them. It signals; the waiter returns. Then as `begin`
//
// The tester attaches and detaches between the steps.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { KINDS = 4 };
static const int kinds[KINDS] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
                                 PTHREAD_MUTEX_ADAPTIVE_NP};
static pthread_mutex_t locks[KINDS], waits = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_t threads[KINDS + 1];
static atomic_int ids[KINDS + 1], got;
static int signalled;

static void *sleeper(void *number) {
  long kind = (long)number;
  ids[kind] = (int)syscall(SYS_gettid);
  pthread_mutex_lock(&locks[kind]);
  got++;
  pthread_mutex_unlock(&locks[kind]);
  return NULL;
}

static void *waiter(void *nothing) {
  pthread_mutex_lock(&waits);
  ids[KINDS] = (int)syscall(SYS_gettid);
  while (!signalled) pthread_cond_wait(&cond, &waits);
  got++;
  pthread_mutex_unlock(&waits);
  return nothing;
}

/* Until the thread sleeps in a futex. */
static void await_sleep(int id) {
  char name[64], text[32] = "";
  snprintf(name, sizeof name, "/proc/self/task/%d/syscall", id);
  while (strncmp(text, "202 ", 4) != 0) {
    usleep(1000);
    FILE *file = fopen(name, "r");
    if (file) {
      if (!fgets(text, sizeof text, file)) text[0] = 0;
      fclose(file);
    }
  }
}

static void begin(void) {
  got = signalled = 0;
  for (int i = 0; i <= KINDS; i++) ids[i] = 0;
  for (long i = 0; i < KINDS; i++) {
    pthread_mutex_lock(&locks[i]);
    if (kinds[i] == PTHREAD_MUTEX_RECURSIVE) pthread_mutex_lock(&locks[i]);
    pthread_create(&threads[i], NULL, sleeper, (void *)i);
  }
  pthread_create(&threads[KINDS], NULL, waiter, NULL);
  for (int i = 0; i <= KINDS; i++) {
    while (!ids[i]) usleep(1000);
    await_sleep(ids[i]);
  }
}

static int step(void) {
  int errors = 0;
  for (int i = 0; i < KINDS; i++) {
    if (kinds[i] == PTHREAD_MUTEX_RECURSIVE) errors += pthread_mutex_unlock(&locks[i]) != 0;
    errors += pthread_mutex_unlock(&locks[i]) != 0;
  }
  pthread_mutex_lock(&waits);
  signalled = 1;
  pthread_cond_signal(&cond);
  pthread_mutex_unlock(&waits);
  for (int i = 0; i <= KINDS; i++) errors += pthread_join(threads[i], NULL) != 0;
  return errors;
}

int main(void) {
  char line[16];
  for (int i = 0; i < KINDS; i++) {
    pthread_mutexattr_t about;
    pthread_mutexattr_init(&about);
    pthread_mutexattr_settype(&about, kinds[i]);
    pthread_mutex_init(&locks[i], &about);
  }
  begin();
  puts("begun");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    int errors = step();
    printf("%d errors, %d of %d woken\n", errors, got, KINDS + 1);
    fflush(stdout);
    begin();
  }
  int errors = step();
  for (int i = 0; i < KINDS; i++) errors += pthread_mutex_destroy(&locks[i]) != 0;
  printf("%d errors\n", errors);
}
