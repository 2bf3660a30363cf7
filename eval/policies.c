// Threads share a lock, for `eval/policies.py`. policies SHAPE THREADS FILE: FILE gets the sections, the waiting time and the lock time of each
// thread (64 bits each, ns), while it runs. It ends with its input.
//
// SHAPE is `flat`: sections of 10 us; `long-first`: the first thread's take 100 us; `nest`: half of the threads take it under another lock,
// which they share.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BETWEEN_NS = 1000, SHORT_NS = 10000, LONG_NS = 100000 };

struct counts {
  volatile uint64_t sections, waited, held;
};

pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t g_outer = PTHREAD_MUTEX_INITIALIZER;
static struct counts *all;
static const char *shape;
static long threads;

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void work(uint64_t ns) {
  for (uint64_t begun = now(); now() - begun < ns;) {
  }
}

static void *run(void *argument) {
  long own = (long)argument;
  char name[16];
  snprintf(name, sizeof name, own ? "other%ld" : "first", own);
  pthread_setname_np(pthread_self(), name);
  int nests = !strcmp(shape, "nest") && own < threads / 2;
  uint64_t length = !strcmp(shape, "long-first") && own == 0 ? LONG_NS : SHORT_NS;
  struct counts *counts = &all[own];
  for (;;) {
    uint64_t asked = now();
    if (nests) pthread_mutex_lock(&g_outer);
    pthread_mutex_lock(&g_lock);
    uint64_t taken = now();
    work(length);
    uint64_t done = now();
    pthread_mutex_unlock(&g_lock);
    if (nests) pthread_mutex_unlock(&g_outer);
    counts->sections++;
    counts->waited += taken - asked;
    counts->held += done - taken;
    work(BETWEEN_NS);
  }
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  shape = argv[1];
  threads = atol(argv[2]);
  size_t size = threads * sizeof *all;
  int file = open(argv[3], O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ftruncate(file, size) != 0) return 1;
  all = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (all == MAP_FAILED) return 1;
  for (long i = 0; i < threads; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, (void *)i) != 0) return 1;
  }
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
  return 0;
}
