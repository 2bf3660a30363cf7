/* lw_execute from C: sections run once each, and see each other's writes, whoever runs them, while that changes; the lock may be
   used again after its end. */
#define _POSIX_C_SOURCE 200809L
#include <lockwright_sync.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 16, EACH = 20000 };

static lw_delegated_t lock = LW_DELEGATED_INIT;
static lw_server_t *servers[2];
static long count;
static int done, is_over, at_work;

struct request {
    long before;
};

static void section(void *context)
{
    struct request *request = context;
    request->before = count++;
}

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void *thread(void *arg)
{
    long last = -1;
    int i;
    for (i = 0; i < EACH && !__atomic_load_n(&is_over, __ATOMIC_RELAXED); i++) {
        struct request request = {-1};
        if (i % 64 == 63) {
            /* Held here. */
            lw_mutex_lock(lw_delegated_mutex(&lock));
            section(&request);
            lw_mutex_unlock(lw_delegated_mutex(&lock));
        } else if (lw_execute(&lock, section, &request)) {
            fail("refused");
        }
        if (request.before <= last)
            fail("sections ran out of order");
        last = request.before;
    }
    *(long *)arg = i;
    __atomic_fetch_sub(&at_work, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void rest(long microseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = microseconds * 1000}, NULL);
}

/* Changes who runs the sections, again and again. */
static void *changes(void *arg)
{
    (void)arg;
    for (int i = 0; !__atomic_load_n(&done, __ATOMIC_RELAXED); i++) {
        if (i % 5 < 3)
            lw_delegated_mode(&lock, i % 5);
        else
            lw_delegated_serve(&lock, servers[i % 5 - 3]);
        rest(500);
    }
    return NULL;
}

/* All sections, or those of one second: on a busy machine a line that is first come, first served runs few. */
static void run(int may_change)
{
    pthread_t threads[THREADS], changer;
    long ran[THREADS], sum = 0;
    __atomic_store_n(&done, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&is_over, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&at_work, THREADS, __ATOMIC_RELAXED);
    if (may_change && pthread_create(&changer, NULL, changes, NULL))
        fail("no thread");
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, thread, &ran[i]))
            fail("no thread");
    for (int i = 0; i < 1000 && __atomic_load_n(&at_work, __ATOMIC_RELAXED); i++)
        rest(1000);
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += ran[i];
    }
    __atomic_store_n(&done, 1, __ATOMIC_RELAXED);
    if (may_change)
        pthread_join(changer, NULL);
    if (count != sum)
        fail("sections were lost, or ran twice");
    count = 0;
    lw_delegated_destroy(&lock);
}

/* A section under the lock that its caller holds. */
static void nested(void *context)
{
    *(int *)context = lw_execute(&lock, section, &(struct request){-1});
}

/* Two locks of one server: one's section waits for a condition variable, until the other's has run. */
static lw_delegated_t waits = LW_DELEGATED_INIT;
static lw_cond_t cond;
static int is_ready;

static int is_waiting;

struct wait {
    pthread_t asker;
    int is_elsewhere, is_over;
};

/* Waits only on the server: that may have been asleep, and then its client runs it. */
static void wait_for_other(void *context)
{
    struct wait *wait = context;
    wait->is_elsewhere = !pthread_equal(wait->asker, pthread_self());
    if (!wait->is_elsewhere)
        return;
    __atomic_store_n(&is_waiting, 1, __ATOMIC_RELAXED);
    while (!is_ready)
        lw_cond_wait(&cond, lw_delegated_mutex(&waits));
    wait->is_over = 1;
}

static void make_ready(void *context)
{
    (void)context;
    is_ready = 1;
    lw_cond_signal(&cond);
}

/* It returns after its section has ended, though others run under the same lock while that waits. */
static void *waiter(void *arg)
{
    struct wait wait = {pthread_self(), 0, 0};
    while (!wait.is_elsewhere)
        lw_execute(&waits, wait_for_other, &wait);
    if (!wait.is_over)
        fail("a section returned while it waited");
    return arg;
}

/* Another section under that lock. */
static void look(void *context) { *(int *)context = is_ready; }

static void wait_in_sections(void)
{
    pthread_t thread;
    lw_cond_init(&cond);
    lw_delegated_serve(&waits, servers[0]);
    if (pthread_create(&thread, NULL, waiter, NULL))
        fail("no thread");
    while (!__atomic_load_n(&is_waiting, __ATOMIC_RELAXED))
        rest(100);
    lw_delegated_serve(&lock, servers[0]);
    for (int i = 0; i < 100; i++) { /* goes on while the other one's section waits */
        int ready = 1;
        lw_execute(&lock, section, &(struct request){-1});
        lw_execute(&waits, look, &ready);
        if (ready)
            fail("the condition came by itself");
    }
    lw_execute(&waits, make_ready, NULL);
    pthread_join(thread, NULL);
    count = 0;
}

/* A child has no server: it runs its own sections. */
static void fork_a_child(void)
{
    lw_execute(&lock, section, &(struct request){-1});
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        for (int i = 0; i < 1000; i++)
            lw_execute(&lock, section, &(struct request){-1});
        _exit(count == 1001 ? 0 : 1);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        fail("the child's sections did not run");
    count = 0;
    lw_delegated_destroy(&lock);
}

/* The end of a lock does not wait for its server, which fell asleep while the lock was held. (If it did, for 4 s each.) */
static void *execute_once(void *other)
{
    lw_execute(other, section, &(struct request){-1});
    return NULL;
}

static void end_locks(void)
{
    for (int i = 0; i < 40; i++) {
        static lw_delegated_t other = LW_DELEGATED_INIT;
        pthread_t thread;
        lw_delegated_serve(&other, servers[0]);
        for (int j = 0; j < 2; j++) /* the first one wakes the server */
            execute_once(&other);
        lw_mutex_lock(lw_delegated_mutex(&other));
        if (pthread_create(&thread, NULL, execute_once, &other))
            fail("no thread");
        for (int j = 0; j < 10; j++)
            rest(500); /* the server looks in vain, and sleeps after 1 ms */
        lw_mutex_unlock(lw_delegated_mutex(&other));
        pthread_join(thread, NULL);
        lw_delegated_destroy(&other);
    }
    count = 0;
}

/* Sections that end their threads. */
static lw_delegated_t ends = LW_DELEGATED_INIT;
static int has_begun, has_ended, is_cancelled;

static void exit_in_it(void *context)
{
    (void)context;
    pthread_exit(NULL);
}

/* It goes on until after the request to cancel its caller. */
static void take_time(void *context)
{
    (void)context;
    __atomic_store_n(&has_begun, 1, __ATOMIC_RELAXED);
    while (!__atomic_load_n(&is_cancelled, __ATOMIC_RELAXED))
        rest(100);
    rest(500); /* a cancellation point */
    has_ended = 1;
}

static void *execute(void *fn)
{
    lw_execute(&ends, *(void (**)(void *))fn, NULL);
    pthread_testcancel();
    return NULL;
}

/* As `execute`, cancelled at any point, but not while others may run its section. */
static void *execute_asynchronously(void *fn)
{
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    return execute(fn);
}

static void cancel_asynchronously(void)
{
    pthread_t thread;
    void (*fn)(void *) = take_time;
    has_begun = has_ended = is_cancelled = 0;
    if (pthread_create(&thread, NULL, execute_asynchronously, &fn))
        fail("no thread");
    while (!__atomic_load_n(&has_begun, __ATOMIC_RELAXED))
        rest(100);
    pthread_cancel(thread);
    __atomic_store_n(&is_cancelled, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    if (!has_ended)
        fail("a thread left before its section had ended");
}

static void end_a_thread(void (*fn)(void *), int cancels)
{
    pthread_t thread;
    void *result = NULL;
    has_begun = has_ended = is_cancelled = 0;
    if (pthread_create(&thread, NULL, execute, &fn))
        fail("no thread");
    while (cancels && !__atomic_load_n(&has_begun, __ATOMIC_RELAXED))
        rest(100);
    if (cancels)
        pthread_cancel(thread);
    __atomic_store_n(&is_cancelled, 1, __ATOMIC_RELAXED);
    pthread_join(thread, &result);
    if (cancels && result != PTHREAD_CANCELED)
        fail("a thread was not cancelled");
    long before = count;
    if (lw_execute(&ends, section, &(struct request){-1}) || count != before + 1)
        fail("no section runs after one has ended its thread");
    count = before;
}

/* A section that ends the thread of a server, and so the other thread that waits for it, can't be helped: a line says so. */
static void end_a_server(void)
{
    int ends_of[2];
    pid_t child = pipe(ends_of) ? -1 : fork();
    if (child == 0) {
        pthread_t thread;
        void (*fn)(void *) = exit_in_it;
        char line[100] = {0};
        alarm(20);
        dup2(ends_of[1], 2);
        if (lw_server_start(&servers[0], 1, -1) || lw_delegated_serve(&ends, servers[0]))
            _exit(2);
        pthread_create(&thread, NULL, execute, &fn);
        _exit(read(ends_of[0], line, sizeof line - 1) > 0 && strstr(line, "pthread_exit") ? 0 : 3);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        fail("nothing is said of a section that ended a server's thread");
}

static void end_threads(void)
{
    lw_delegated_mode(&ends, LW_DELEGATE_NEVER);
    end_a_thread(exit_in_it, 0);
    end_a_thread(take_time, 1);
    if (has_ended)
        fail("a cancellation waited for the section's end");
    lw_delegated_serve(&ends, servers[0]);
    lw_execute(&ends, section, &(struct request){-1}); /* wakes the server */
    rest(1000);
    count = 0;
    end_a_thread(take_time, 1);
    if (!has_ended)
        fail("a section was cancelled that may have run elsewhere");
    cancel_asynchronously();
    end_a_server();
    lw_delegated_destroy(&ends);
}

int main(void)
{
    for (int i = 0; i < 2; i++)
        if (lw_server_start(&servers[i], 2, -1))
            fail("no server");
    if (lw_server_start(&servers[0], 0, -1) != EINVAL || lw_delegated_mode(&lock, 3) != EINVAL)
        fail("nonsense is accepted");
    run(0);
    run(1);
    lw_delegated_serve(&lock, servers[1]);
    run(0);
    lw_delegated_mode(&lock, LW_DELEGATE_ALWAYS);
    run(0);
    int answer = 0;
    lw_execute(&lock, nested, &answer);
    if (answer != EDEADLK)
        fail("a nested section is not refused");
    wait_in_sections();
    end_threads();
    end_locks();
    fork_a_child();
    lw_delegated_serve(&lock, servers[0]);
    lw_server_stop(servers[0]);
    run(0);
    lw_server_stop(servers[1]);
    while (lw_delegated_serve(&lock, NULL) != ESRCH) /* its threads are about to end */
        rest(100);
    puts("ok");
    return 0;
}
