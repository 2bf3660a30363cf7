// Two threads that compete for a mutex, each pinned to a CPU of its own. Each acquisition with what is done
// meanwhile is an epoch if annotated. Arguments: SECONDS; `annotated` (the second thread computes 3 times as
// long, as on a slower core), `even` (annotated too, both alike) or `plain`; then `exit CODE` or `signal NUMBER`
// if wanted.
#define _GNU_SOURCE
#include "lockwright.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EPOCH = 3, SLO_NS = 1000000, CS_NS = 2000, GAP_NS = 300 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double end;
static int annotated, even;
static long count;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

static void compute(int ns) {
  for (double until = now() + ns * 1e-9; now() < until;) {}
}

__attribute__((noinline)) void work(int slowness) {
  pthread_mutex_lock(&lock);
  compute(CS_NS * slowness);
  count++;
  pthread_mutex_unlock(&lock);
}

static void *run(void *argument) {
  int cpu = (int)(intptr_t)argument;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
  // At least once, however late this thread starts.
  do {
    if (annotated) lw_epoch_start(EPOCH);
    work(cpu == 0 || even ? 1 : 3);
    if (annotated) lw_epoch_end(EPOCH, SLO_NS);
    compute(GAP_NS);
  } while (now() < end);
  return NULL;
}

int main(int argc, char **argv) {
  end = now() + atof(argv[1]);
  even = strcmp(argv[2], "even") == 0;
  annotated = even || strcmp(argv[2], "annotated") == 0;
  lw_epoch_name(EPOCH, "work");
  pthread_t threads[2];
  for (intptr_t cpu = 0; cpu < 2; cpu++) pthread_create(&threads[cpu], NULL, run, (void *)cpu);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  printf("%ld\n", count);
  fflush(stdout);
  if (argc > 4 && strcmp(argv[3], "signal") == 0) raise(atoi(argv[4]));
  return argc > 4 ? atoi(argv[4]) : 0;
}
