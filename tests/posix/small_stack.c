/* Threads with the smallest stack that is allowed, in a program that can open no more files. A thread that waits for a lock
 * looks at the machine now and then: that must take little stack, and do without what it can't open. */
#include "check.h"
#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>

enum {
    THREADS = 4,
    UNTOUCHED = 0xa5,
    /* Bytes of stack that a thread may use for waiting, beyond what a thread that never waits uses. */
    MOST = 4096,
};

static pthread_mutex_t wanted = PTHREAD_MUTEX_INITIALIZER, unwanted = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool stop;
static size_t size;

static void *run(void *mutex)
{
    do {
        pthread_mutex_lock(mutex);
        for (volatile int i = 0; i < 2000; i++)
            ;
        sched_yield();
        pthread_mutex_unlock(mutex);
    } while (!stop);
    return NULL;
}

static unsigned char *new_stack(void)
{
    /* Below the stack lies a guard page. */
    size_t page = sysconf(_SC_PAGESIZE);
    size = (PTHREAD_STACK_MIN + page - 1) / page * page;
    unsigned char *low =
        mmap(NULL, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(low != MAP_FAILED);
    OK(mprotect(low, page, PROT_NONE));
    return memset(low + page, UNTOUCHED, size);
}

static pthread_t start_on(unsigned char *stack, pthread_mutex_t *mutex)
{
    pthread_t thread;
    pthread_attr_t attr;
    OK(pthread_attr_init(&attr));
    OK(pthread_attr_setstack(&attr, stack, size));
    OK(pthread_create(&thread, &attr, run, mutex));
    OK(pthread_attr_destroy(&attr));
    return thread;
}

static size_t used(const unsigned char *stack)
{
    size_t left = 0;
    while (left < size && stack[left] == UNTOUCHED)
        left++;
    return size - left;
}

int main(void)
{
    /* The dynamic linker uses stack too, when a function is called for the first time: get that over with. */
    stop = true;
    run(&unwanted);
    stop = false;
    unsigned char *stacks[THREADS], *alone_stack = new_stack();
    pthread_t threads[THREADS], alone = start_on(alone_stack, &unwanted);
    for (int i = 0; i < THREADS; i++) {
        stacks[i] = new_stack();
        threads[i] = start_on(stacks[i], &wanted);
    }
    /* A waiter soon takes its first look, while files can still be opened; then it looks once a second. */
    sleep_ms(200);
    struct rlimit limit;
    OK(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = 0;
    OK(setrlimit(RLIMIT_NOFILE, &limit));
    CHECK(open("/proc/self/stat", O_RDONLY) == -1 && errno == EMFILE);
    for (int i = 0; i < 11; i++)
        sleep_ms(100);
    stop = true;
    join(alone);
    for (int i = 0; i < THREADS; i++) {
        join(threads[i]);
        if (used(stacks[i]) > used(alone_stack) + MOST)
            printf("%zu bytes of stack, %zu without waiting\n", used(stacks[i]), used(alone_stack));
        CHECK(used(stacks[i]) <= used(alone_stack) + MOST);
    }
    return finish();
}
