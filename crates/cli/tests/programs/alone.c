// One thread that nobody may disturb: it computes (BUSY), or waits in a signal handler (HANDLER).
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

int main(void) {
#ifdef HANDLER
  signal(SIGUSR1, begin);
  raise(SIGUSR1);
#else
  begin(0);
#endif
}
