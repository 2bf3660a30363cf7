//! The functions that send sections home: libc's names.

/// Gives `$macro!` all the names.
macro_rules! with_hooks {
    ($macro:ident) => {
        $macro! {
            pthread_mutex_lock pthread_mutex_trylock pthread_mutex_timedlock pthread_mutex_clocklock
            mtx_lock mtx_timedlock
            pthread_cond_wait pthread_cond_timedwait pthread_cond_clockwait cnd_wait cnd_timedwait
            pthread_rwlock_rdlock pthread_rwlock_wrlock pthread_rwlock_timedrdlock pthread_rwlock_timedwrlock
            pthread_rwlock_clockrdlock pthread_rwlock_clockwrlock
            pthread_barrier_wait pthread_spin_lock
            sem_wait sem_timedwait sem_clockwait
            pthread_create pthread_exit pthread_join pthread_tryjoin_np pthread_timedjoin_np pthread_clockjoin_np
            pthread_cancel pthread_testcancel pthread_setcancelstate pthread_setcanceltype pthread_kill pthread_sigqueue
            pthread_sigmask sigprocmask sigaltstack sigwait sigwaitinfo sigtimedwait sigsuspend sigpause pause raise
        sigaction __sigaction signal bsd_signal sysv_signal __sysv_signal sigset sighold sigrelse sigignore sigblock sigsetmask siggetmask
        sigpending __sigsuspend __sigpause __sigsetjmp getcontext swapcontext setcontext siglongjmp __longjmp_chk
            thrd_create thrd_exit thrd_join thrd_sleep
            fork vfork _Fork __fork __libc_fork __vfork daemon forkpty clone posix_spawn posix_spawnp system popen pclose
            execve execv execvp execvpe execl execlp execle execveat fexecve
            exit quick_exit wait waitpid waitid wait3 wait4
            nanosleep clock_nanosleep usleep sleep
            read write readv writev pread pwrite pread64 pwrite64 preadv pwritev
            recv recvfrom recvmsg recvmmsg send sendto sendmsg sendmmsg accept accept4 connect
            poll ppoll select pselect epoll_wait epoll_pwait
            open open64 openat openat64 fsync fdatasync fcntl flock lockf ioctl sendfile splice
            msgrcv msgsnd semop semtimedop mq_receive mq_send eventfd_read
            __poll_chk __ppoll_chk __read_chk __pread_chk __pread64_chk __recv_chk __recvfrom_chk __open_2 __open64_2 __openat_2 __openat64_2
        __poll __read __write __select __nanosleep __connect __send __fcntl __wait __waitpid fcntl64 lockf64 creat creat64 epoll_pwait2
        mq_timedsend mq_timedreceive preadv64 pwritev64 preadv2 pwritev2 sendfile64 tcdrain msync aio_suspend vmsplice tee copy_file_range
        pthread_getname_np sched_rr_get_interval __sched_getparam __sched_getscheduler __sched_setscheduler ssignal kill
        gettid syscall prctl setns unshare capset personality clock_gettime getrusage timer_create
            sched_getaffinity sched_getparam sched_getscheduler getpriority
        sched_setaffinity sched_setscheduler sched_setparam sched_setattr setpriority nice
            pthread_setaffinity_np pthread_setschedparam pthread_setschedprio pthread_setname_np
            setuid setgid seteuid setegid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid
        }
    };
}
pub(crate) use with_hooks;

macro_rules! list {
    ($($name:ident)*) => {
        /// A function that sends sections home.
        #[expect(non_camel_case_types, reason = "libc's names")]
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum Hook { $($name),* }

        /// How many there are.
        pub(crate) const HOOKS: usize = [$(stringify!($name)),*].len();

        /// What they are called, each with a 0 behind.
        pub(crate) const NAMES: [&[u8]; HOOKS] = [$(concat!(stringify!($name), "\0").as_bytes()),*];

        /// The hooks by number.
        pub(crate) const ALL: [Hook; HOOKS] = [$(Hook::$name),*];
    };
}

with_hooks!(list);
