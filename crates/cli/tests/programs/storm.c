// An mmap storm: threads that map memory, touch it and unmap it again, `storm [ROUNDS [THREADS]]`. All of them need the
// process's mmap_lock all the time.
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { LENGTH = 64 << 10, MOST = 64 };

static long rounds = 4000;

static void *storm(void *unused) {
  for (long round = 0; round < rounds; round++) {
    char *memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    memory[0] = 1;
    munmap(memory, LENGTH);
  }
  return unused;
}

int main(int argc, char **argv) {
  int count = 4;
  if (argc > 1) rounds = atol(argv[1]);
  if (argc > 2) count = atoi(argv[2]);
  if (count < 1 || count > MOST) return 2;
  pthread_t threads[MOST];
  for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, storm, NULL);
  for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
  return 0;
}
