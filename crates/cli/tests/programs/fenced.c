/* Threads use a lock through functions of their own, long enough to be told of these; then the program confines
 * itself without libc's prctl: from then on the kernel kills it for a call that a profiler might make. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static volatile int stop;
static volatile long steps;

#define OUTER __attribute__((noinline, noclone))

OUTER static void my_mutex_lock(void) { pthread_mutex_lock(&table); __asm__ volatile(""); }
OUTER static void my_mutex_unlock(void) { pthread_mutex_unlock(&table); __asm__ volatile(""); }

/* At each depth the stack's pages begin elsewhere. */
OUTER static void work(int depth)
{
    volatile char room[256];
    room[0] = 0;
    if (depth > 0) {
        work(depth - 1);
    } else {
        my_mutex_lock();
        for (int i = 0; i < 5000; i++)
            steps++;
        my_mutex_unlock();
    }
    steps += room[0];
}

static void *contend(void *unused)
{
    for (int i = 0; !stop; i++)
        work(i % 20);
    return unused;
}

static int confine(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_getaffinity, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    return syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                   SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

int main(void)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, contend, NULL) != 0)
            return 1;
    usleep(1500 * 1000);
    puts(confine() ? "confined" : "no seccomp");
    fflush(stdout);
    usleep(1500 * 1000);
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    puts("fine");
    return 0;
}
