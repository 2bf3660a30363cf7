// One thread's operations on mutexes of all kinds, for the trace: prints each lock's letter and address, then, in
// brackets, what the trace has to say: `A+` acquired, `A-` released, `sleep` idle for 3 ms, `work` computed for 2 ms.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t shared, robust;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_cond_t own_cond = PTHREAD_COND_INITIALIZER, shared_cond;

static long thread_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void work(void) {
  for (long start = thread_us(); thread_us() - start < 2000;) continue;
}

static struct timespec soon(void) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  at.tv_nsec += 3000000;
  if (at.tv_nsec >= 1000000000) at.tv_sec++, at.tv_nsec -= 1000000000;
  return at;
}

static void init(void) {
  pthread_mutexattr_t of_mutex;
  pthread_mutexattr_init(&of_mutex);
  pthread_mutexattr_setpshared(&of_mutex, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&shared, &of_mutex);
  pthread_mutexattr_init(&of_mutex);
  pthread_mutexattr_setrobust(&of_mutex, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&robust, &of_mutex);
  pthread_condattr_t of_cond;
  pthread_condattr_init(&of_cond);
  pthread_condattr_setpshared(&of_cond, PTHREAD_PROCESS_SHARED);
  pthread_cond_init(&shared_cond, &of_cond);
  pthread_spin_init(&spin, 0);
}

int main(void) {
  init();
  errno = 77;
  // Hand over hand.
  pthread_mutex_lock(&a);
  pthread_mutex_lock(&b);
  pthread_mutex_unlock(&a);
  pthread_mutex_unlock(&b);
  // Held twice is held.
  pthread_mutex_lock(&recursive);
  assert(pthread_mutex_trylock(&recursive) == 0);
  pthread_mutex_unlock(&recursive);
  work();
  pthread_mutex_unlock(&recursive);
  // What fails is not recorded, but for the time that it took.
  pthread_mutex_lock(&checking);
  assert(pthread_mutex_lock(&checking) == EDEADLK);
  assert(pthread_mutex_trylock(&checking) == EBUSY);
  pthread_mutex_unlock(&checking);
  assert(pthread_mutex_unlock(&checking) == EPERM);
  struct timespec at = soon();
  assert(pthread_mutex_timedlock(&a, &at) == 0);
  at = soon();
  assert(pthread_mutex_timedlock(&a, &at) == ETIMEDOUT);
  // Waiting for a condition variable, ours or glibc's, releases and acquires again.
  at = soon();
  assert(pthread_cond_timedwait(&own_cond, &a, &at) == ETIMEDOUT);
  at = soon();
  assert(pthread_cond_timedwait(&shared_cond, &a, &at) == ETIMEDOUT);
  pthread_mutex_unlock(&a);
  // Mutexes that are glibc's; locks that are not recorded; sleep while one is held.
  pthread_mutex_lock(&shared);
  usleep(3000);
  pthread_mutex_unlock(&shared);
  pthread_mutex_lock(&robust);
  pthread_rwlock_wrlock(&rwlock);
  pthread_rwlock_unlock(&rwlock);
  pthread_spin_lock(&spin);
  pthread_spin_unlock(&spin);
  pthread_mutex_unlock(&robust);
  assert(errno == 77);
  printf("A %p\nB %p\nR %p\nC %p\nS %p\nT %p\n", (void *)&a, (void *)&b, (void *)&recursive,
         (void *)&checking, (void *)&shared, (void *)&robust);
  puts("[A+ B+ A- B- R+ work R- C+ C- A+ sleep A- sleep A+ A- sleep A+ A- S+ sleep S- T+ T-]");
  return 0;
}
