/* Starts a program, its other arguments, behind a filter that kills it for a system call that a program needs
 * neither to be loaded nor to lock. The first argument is what the program preloads. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KILL(number)                                                                                                    \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

int main(int count, char **arguments)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        KILL(SYS_sched_getaffinity),
        KILL(SYS_getdents64),
        KILL(SYS_readlinkat),
#ifdef SYS_readlink
        KILL(SYS_readlink),
#endif
        KILL(SYS_fcntl),
        KILL(SYS_getrusage),
        KILL(SYS_statx),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (count < 3)
        return 3;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
        fprintf(stderr, "no seccomp: nothing is fenced\n");
    if (arguments[1][0] != '\0')
        setenv("LD_PRELOAD", arguments[1], 1);
    execv(arguments[2], arguments + 2);
    return 4;
}
