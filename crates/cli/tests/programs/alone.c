// One thread that nobody may disturb: it computes (BUSY), or waits in a signal handler (HANDLER). With SMALL, a second
// thread waits, on a stack of 64 KiB.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static void begin(int signal) {
  (void)signal;
  puts("begun");
  fflush(stdout);
#ifdef BUSY
  for (volatile unsigned i = 0;; i++) {}
#endif
  for (;;) pause();
}

#ifdef SMALL
static void *wait(void *none) {
  pause();
  return none;
}
#endif

int main(void) {
#ifdef SMALL
  pthread_t thread;
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 64 * 1024);
  pthread_create(&thread, &small, wait, NULL);
#endif
#ifdef HANDLER
  signal(SIGUSR1, begin);
  raise(SIGUSR1);
#else
  begin(0);
#endif
}
