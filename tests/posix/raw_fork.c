// Children that fork's handlers don't see: the calling thread's id, and so the owner of what it locks, is what glibc has.
#include "check.h"
#include <linux/sched.h>

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive, shared;

static int me(void) { return (int)syscall(SYS_gettid); }

static int owner(pthread_mutex_t *mutex)
{
    OK(pthread_mutex_lock(mutex));
    int owner = mutex->__data.__owner;
    OK(pthread_mutex_unlock(mutex));
    return owner;
}

/* Where glibc keeps the calling thread's id; it tells debuggers the place. */
static int *glibcs_id(void)
{
    const uint32_t *field = dlsym(RTLD_DEFAULT, "_thread_db_pthread_tid");
    return field ? (int *)((char *)pthread_self() + field[2]) : NULL;
}

/* `updates`: does glibc itself update its thread id in such a child? */
static void in_child(const char *how, bool updates)
{
    // A process-shared mutex is glibc's own code.
    CHECK(owner(&plain) == owner(&shared));
    if (updates)
        CHECK(owner(&plain) == me());
    // A wait, if only for a moment: after it, the library has noticed that this is a child.
    struct timespec past = in_ms(CLOCK_REALTIME, -1000);
    EXPECT(pthread_mutex_timedlock(&held, &past), ETIMEDOUT);
    CHECK(owner(&plain) == owner(&shared));
    // Locked twice before the fork. If the fork changes the thread's id, the holder is another thread.
    EXPECT(pthread_mutex_unlock(&recursive), updates ? EPERM : 0);
    EXPECT(pthread_mutex_trylock(&recursive), updates ? EBUSY : 0);
    EXPECT(pthread_mutex_unlock(&recursive), updates ? EPERM : 0);
    EXPECT(pthread_mutex_unlock(&recursive), updates ? EPERM : 0);
    // Chromium's zygote writes the id like this.
    int *id = glibcs_id();
    if (id) {
        *id = me();
        CHECK(owner(&plain) == me());
        CHECK(owner(&shared) == me());
        OK(pthread_mutex_lock(&plain));
        CHECK(plain.__data.__owner == me());
        OK(pthread_mutex_unlock(&plain));
    }
    printf("%s: %s\n", how, failures ? "failed" : "done");
    fflush(stdout);
    _exit(failures != 0);
}

static void report(const char *how, pid_t child)
{
    int status = -1;
    CHECK(child > 0);
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        printf("FAILED %s: status %#x\n", how, status);
        failures++;
    }
    fflush(stdout);
}

static pid_t by_clone(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }

static pid_t by_clone3(void)
{
    struct clone_args arguments = {.exit_signal = SIGCHLD};
    pid_t child = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
    // Some containers block this system call.
    return child < 0 && (errno == ENOSYS || errno == EPERM) ? by_clone() : child;
}

static pid_t by_fork(void)
{
    pid_t (*bare)(void) = (pid_t (*)(void))dlsym(RTLD_DEFAULT, "_Fork");
    return bare ? bare() : fork();
}

static void all(void)
{
    struct {
        const char *how;
        pid_t (*make)(void);
        bool updates;
    } ways[] = {{"clone", by_clone, false},
                {"clone3", by_clone3, false},
                {"_Fork", by_fork, true},
                {"fork", fork, true}};
    OK(pthread_mutex_lock(&held));
    OK(pthread_mutex_lock(&recursive));
    OK(pthread_mutex_lock(&recursive));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        fflush(stdout);
        pid_t child = ways[i].make();
        if (child == 0)
            in_child(ways[i].how, ways[i].updates);
        report(ways[i].how, child);
    }
    OK(pthread_mutex_unlock(&recursive));
    OK(pthread_mutex_unlock(&recursive));
    OK(pthread_mutex_unlock(&held));
}

static void *in_thread(void *data)
{
    all();
    return data;
}

int main(void)
{
    init_kind(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutexattr_t attributes;
    OK(pthread_mutexattr_init(&attributes));
    OK(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    OK(pthread_mutex_init(&shared, &attributes));
    OK(pthread_mutexattr_destroy(&attributes));
    all();
    join(start(in_thread, NULL));
    return finish();
}
