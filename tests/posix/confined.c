/* A program that confines itself: from then on the kernel kills it if it opens a file, maps memory, or asks for its
 * CPUs. Waiting for a lock must do none of these. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#ifndef SYS_readlink // ARM has only the other
#define SYS_readlink SYS_readlinkat
#endif

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool go, stop;

static void *contend(void *unused)
{
    while (!go)
        sched_yield();
    while (!stop) {
        pthread_mutex_lock(&mutex);
        for (volatile int i = 0; i < 2000; i++)
            ;
        sched_yield();
        pthread_mutex_unlock(&mutex);
    }
    return unused;
}

static int confine(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_readlink, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getdents64, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_getaffinity, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
#ifdef CONFINES_ITSELF_RAW
    int is_ready = syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
#else
    int is_ready = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
#endif
    /* As libseccomp does. On a kernel without seccomp there is nothing to test. */
    return is_ready &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                   SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

int main(void)
{
    pthread_t threads[4];
    /* The library's prctl still does what prctl does. */
    char name[16] = "";
    EXPECT(prctl(PR_SET_NAME, "confined"), 0);
    EXPECT(prctl(PR_GET_NAME, name), 0);
    CHECK(strcmp(name, "confined") == 0);
    errno = 0;
    EXPECT(prctl(-1, 0, 0, 0, 0) == -1 ? errno : 0, EINVAL);

    for (int i = 0; i < 4; i++)
        OK(pthread_create(&threads[i], NULL, contend, NULL));
    if (!confine())
        fprintf(stderr, "no seccomp: nothing is confined\n");
    go = true;
    /* The library looks at the machine once a second at most. */
    for (int i = 0; i < 12; i++)
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
    stop = true;
    for (int i = 0; i < 4; i++)
        OK(pthread_join(threads[i], NULL));
    return failures != 0;
}
