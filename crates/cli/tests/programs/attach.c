// Waits for the tester: a line on stdin is a question. `count`: prints how much was done so far, once all threads have
// done something since the last question. `end`: all threads end, and it says whether what they counted adds up.
//
// Mutexes of all kinds, by all functions that take them; condition variables and readers-writer locks; and what a system
// call must not notice: epoll_wait, poll, nanosleep, sigtimedwait, recv with a timeout. (With an argument it may end with
// EINTR: the command was killed while threads stood still.)
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define CHECK(is)                                              \
  do {                                                         \
    if (!(is)) {                                               \
      printf("line %d: %s (%s)\n", __LINE__, #is, strerror(errno)); \
      fflush(stdout);                                          \
      _exit(1);                                                \
    }                                                          \
  } while (0)

enum { KINDS = 4, HAMMERS = 2, WORKERS = KINDS * HAMMERS + 8 };

static const int kinds[KINDS] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
                                 PTHREAD_MUTEX_ADAPTIVE_NP};
static pthread_mutex_t locks[KINDS];
static long inside[KINDS], by_thread[KINDS][HAMMERS];
static atomic_long done[WORKERS];
static atomic_int ending;
static int may_be_cut_short;

static struct timespec soon(clockid_t clock, long ns) {
  struct timespec at;
  clock_gettime(clock, &at);
  at.tv_nsec += ns;
  at.tv_sec += at.tv_nsec / 1000000000;
  at.tv_nsec %= 1000000000;
  return at;
}

static void work(int count) {
  for (volatile int i = 0; i < count; i++) {}
}

static int take(int kind, unsigned how) {
  struct timespec at;
  switch (how % 8) {
    case 0: return pthread_mutex_trylock(&locks[kind]);
    case 1: at = soon(CLOCK_REALTIME, 2000000); return pthread_mutex_timedlock(&locks[kind], &at);
    case 2: at = soon(CLOCK_MONOTONIC, 2000000); return pthread_mutex_clocklock(&locks[kind], CLOCK_MONOTONIC, &at);
    default: return pthread_mutex_lock(&locks[kind]);
  }
}

static void *hammer(void *number) {
  int worker = (int)(long)number, kind = worker / HAMMERS;
  for (unsigned i = 0; !ending; i++) {
    int error = take(kind, i * 7 + (unsigned)worker);
    CHECK(error == 0 || error == EBUSY || error == ETIMEDOUT);
    done[worker]++;
    if (error) continue;
    long before = inside[kind];
    if (kinds[kind] == PTHREAD_MUTEX_RECURSIVE) CHECK(take(kind, 3) == 0);
    if (kinds[kind] == PTHREAD_MUTEX_ERRORCHECK) CHECK(take(kind, 3) == EDEADLK);
    work(100);
    if (i % 1024 == 0) usleep(200);  // somebody sleeps behind us
    inside[kind] = before + 1;
    by_thread[kind][worker % HAMMERS]++;
    if (kinds[kind] == PTHREAD_MUTEX_RECURSIVE) CHECK(pthread_mutex_unlock(&locks[kind]) == 0);
    CHECK(pthread_mutex_unlock(&locks[kind]) == 0);
    if (kinds[kind] == PTHREAD_MUTEX_ERRORCHECK) CHECK(pthread_mutex_unlock(&locks[kind]) == EPERM);
    work(200);
  }
  return NULL;
}

// A ball between two threads. `mtx_t` and `cnd_t`, and timed waits now and then.
static mtx_t table;
static cnd_t played;
static int turn;
static void *play(void *number) {
  int worker = (int)(long)number, me = worker % 2;
  while (!ending) {
    CHECK(mtx_lock(&table) == thrd_success);
    while (turn != me && !ending) {
      struct timespec at = soon(CLOCK_REALTIME, 5000000);
      int answer = done[worker] % 3 ? cnd_wait(&played, &table) : cnd_timedwait(&played, &table, &at);
      CHECK(answer == thrd_success || answer == thrd_timedout);
    }
    turn = !me;
    done[worker]++;
    CHECK(cnd_signal(&played) == thrd_success);
    CHECK(mtx_unlock(&table) == thrd_success);
  }
  cnd_broadcast(&played);
  return NULL;
}

// Readers and writers.
static pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
static long left, right;
static void *share(void *number) {
  int worker = (int)(long)number;
  for (unsigned i = 0; !ending; i++, done[worker]++) {
    if (i % 4 == 0) {
      CHECK(pthread_rwlock_wrlock(&shared) == 0);
      left++, work(20), right++;
    } else {
      CHECK(pthread_rwlock_rdlock(&shared) == 0);
      CHECK(left == right);
    }
    CHECK(pthread_rwlock_unlock(&shared) == 0);
    work(200);
  }
  return NULL;
}

// Short lives of mutexes: also of those that are held while the program is attached to.
static void *destroy(void *number) {
  int worker = (int)(long)number;
  while (!ending) {
    pthread_mutex_t mine;
    CHECK(pthread_mutex_init(&mine, NULL) == 0);
    CHECK(pthread_mutex_lock(&mine) == 0);
    usleep(500);
    CHECK(pthread_mutex_unlock(&mine) == 0);
    CHECK(pthread_mutex_lock(&mine) == 0);
    CHECK(pthread_mutex_unlock(&mine) == 0);
    CHECK(pthread_mutex_destroy(&mine) == 0);
    done[worker]++;
  }
  return NULL;
}

static int cut_short(void) {
  return may_be_cut_short && errno == EINTR;
}

// System calls that must not end because the thread stood still.
static void *wait_for_events(void *number) {
  int worker = (int)(long)number, poller = epoll_create1(0), pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  struct timeval limit = {.tv_usec = 20000};
  CHECK(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
  sigset_t none;
  sigemptyset(&none);
  sigaddset(&none, SIGUSR2);
  while (!ending) {
    struct epoll_event event;
    struct pollfd about = {.fd = pair[0], .events = POLLIN};
    struct timespec nap = {.tv_nsec = 20000000};
    char byte;
    CHECK(epoll_wait(poller, &event, 1, 20) == 0 || cut_short());
    CHECK(poll(&about, 1, 20) == 0 || cut_short());
    CHECK((recv(pair[0], &byte, 1, 0) == -1 && errno == EAGAIN) || cut_short());
    CHECK(nanosleep(&nap, NULL) == 0 || cut_short());
    CHECK((sigtimedwait(&none, NULL, &nap) == -1 && errno == EAGAIN) || cut_short());
    done[worker]++;
  }
  return NULL;
}

// Floating-point registers across a wait, in the thread that is most likely to load the library.
static void *compute(void *number) {
  int worker = (int)(long)number;
  double sum = 0;
  long rounds = 0;
  int pipes[2];
  CHECK(pipe(pipes) == 0);
  while (!ending) {
    struct pollfd about = {.fd = pipes[0], .events = POLLIN};
    for (int i = 1; i <= 1000; i++) sum += 1.0 / i;
    rounds++;
    CHECK(poll(&about, 1, 5) == 0 || cut_short());
    CHECK(sum / rounds > 7.485 && sum / rounds < 7.486);
    done[worker]++;
  }
  return NULL;
}

static void *(*const jobs[WORKERS - KINDS * HAMMERS])(void *) = {play, play, share, share, destroy, wait_for_events,
                                                                 compute, destroy};

static void count(void) {
  long before[WORKERS], sum = 0;
  for (int i = 0; i < WORKERS; i++) before[i] = done[i];
  for (int i = 0; i < WORKERS; i++) {
    for (int tries = 0; done[i] == before[i]; tries++) {
      if (tries == 60000) printf("worker %d stands still; ", i);
      if (tries == 60000) break;
      usleep(1000);
    }
    sum += done[i];
  }
  printf("%ld\n", sum);
  fflush(stdout);
}

int main(int argc, char **argv) {
  (void)argv;
  may_be_cut_short = argc > 1;
  pthread_t threads[WORKERS];
  char line[16];
  sigset_t usr2;
  sigemptyset(&usr2);
  sigaddset(&usr2, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &usr2, NULL);
  mtx_init(&table, mtx_plain);
  cnd_init(&played);
  for (int i = 0; i < KINDS; i++) {
    pthread_mutexattr_t about;
    pthread_mutexattr_init(&about);
    pthread_mutexattr_settype(&about, kinds[i]);
    pthread_mutex_init(&locks[i], &about);
  }
  for (long i = 0; i < WORKERS; i++) {
    void *(*job)(void *) = i < KINDS * HAMMERS ? hammer : jobs[i - KINDS * HAMMERS];
    CHECK(pthread_create(&threads[i], NULL, job, (void *)i) == 0);
  }
  while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n") != 0) count();
  ending = 1;
  for (int i = 0; i < WORKERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  for (int kind = 0; kind < KINDS; kind++) {
    long sum = 0;
    for (int i = 0; i < HAMMERS; i++) sum += by_thread[kind][i];
    CHECK(sum == inside[kind] && sum > 0);
    CHECK(pthread_mutex_destroy(&locks[kind]) == 0);
  }
  CHECK(left == right);
  puts("it adds up");
  return 0;
}
