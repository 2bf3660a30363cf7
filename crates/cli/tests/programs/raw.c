// Waits by the system call itself, as locks of its own would: twenty times, a millisecond each, unless the compiler is told otherwise.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef WAITS
#define WAITS 20
#define NS 1000000
#endif

int main(void) {
  static int word;
  struct timespec wait = {0, NS};
  for (int i = 0; i < WAITS; i++) syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &wait, NULL, 0);
  return 0;
}
