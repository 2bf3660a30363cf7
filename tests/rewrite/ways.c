// converted: once early early_out branches loops nested_block tails moved arrays globals recursive case_of thread_data macro_lock
// converted: wrapped in_macro_argument void_exit label_inside inner_static function_pointer const_parameter outer_and_inner
// converted: pointed_at shared_flag in_an_if put take waits_in_if take_or_stop in_parts
// converted: written_in_wait written_in_parentheses written_by_argument behind_last_case member_name
// converted: void_cast label_at_unlock written_by_macro cast_address macro_statement if_in_tail
// kept: tries
// refused: holds: returns with the mutex locked
// refused: waits: waits for a condition variable (pthread_cond_wait)
// refused: macro_of_two: not unlocked in the same block
// refused: shadowed: 'ready' is used behind it, and its name is used twice
// refused: own_below_macro: the macro 'INNER' is defined in its function
// refused: own_type: 'FOUR' is declared in its function
// refused: hidden_write: 'n' is hidden in a macro
// refused: counts_and_waits: a callee waits for a condition variable: wait_and_count > pthread_cond_wait
// refused: own_macro: the macro 'TWICE' is defined in its function
// refused: waits_twice: waits for a condition variable (pthread_cond_wait)
// refused: waits_late: waits for a condition variable (pthread_cond_wait)
// refused: waits_below: a callee waits for a condition variable: waits_unlocked > pthread_cond_wait
// refused: leaves: leaves a loop or a switch with the mutex locked
// refused: relocks: locked again, or released in between
// refused: some_ways: unlocked on some ways only
// refused: jumps_out: leaves by goto with the mutex locked
// refused: nothing: empty: it waits for others, and does nothing
// refused: local_type: the type of 'pair' is known only there
// refused: continues: leaves a loop or a switch with the mutex locked
// refused: hand_over_hand: holds '&next' beyond its end, or lets go of it
// refused: changes: 'first', by which the mutex is found, may change inside
// refused: who: asks which thread it is (pthread_self)
// refused: own_below: a callee uses its thread's own data: own_of > thread_local own
// refused: named: names its function (__func__)
/* Sections of every shape. Eight threads run them all; each counts, and what they return is checked. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATS_LOCK(s) pthread_mutex_lock(&(s)->mutex)
#define STATS_UNLOCK(s) pthread_mutex_unlock(&(s)->mutex)
#define CHECKED(x) assert((x) >= 0)

struct stats {
    pthread_mutex_t mutex;
    long count;
};

static struct stats stats = {PTHREAD_MUTEX_INITIALIZER, 0};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t next = PTHREAD_MUTEX_INITIALIZER; /* locked behind `mutex` */
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static long count, ready = 1, never, sleeps;
static __thread long own;

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static long own_of(void)
{
    return own;
}

static void own_below(void)
{
    pthread_mutex_lock(&mutex);
    ready += own_of() - own_of();
    pthread_mutex_unlock(&mutex);
}

static void named(void)
{
    pthread_mutex_lock(&mutex);
    if (strcmp(__func__, "named"))
        fail(__func__);
    pthread_mutex_unlock(&mutex);
}

static long once(long n);

static void wrapper_lock(pthread_mutex_t *it)
{
    pthread_mutex_lock(it);
}

static void wrapper_unlock(pthread_mutex_t *it)
{
    pthread_mutex_unlock(it);
}

/* The first section of the file is not in every build. */
#ifndef WITHOUT_IT
static void in_an_if(void)
{
#ifdef __linux__
    wrapper_lock(&mutex);
    count++;
    wrapper_unlock(&mutex);
#endif
}
#else
static void in_an_if(void)
{
    once(1);
}
#endif

/* The comment stays with its function. */
static long once(long n)
{
    long seen;
    pthread_mutex_lock(&mutex);
    count += n; /* a comment,   with its spaces */
    seen = count;
    pthread_mutex_unlock(&mutex);
    return seen;
}

static int early(long n)
{
    pthread_mutex_lock(&mutex);
    if (n < 0) {
        pthread_mutex_unlock(&mutex);
        errno = EINVAL;
        return -1;
    }
    count += n;
    pthread_mutex_unlock(&mutex);
    return 0;
}

static int early_out(long n)
{
    int result = -1;
    pthread_mutex_lock(&mutex);
    if (n < 0) {
        pthread_mutex_unlock(&mutex);
        goto out;
    }
    count += n;
    pthread_mutex_unlock(&mutex);
    result = 0;
out:
    return result;
}

static int branches(long n)
{
    int result = 0;
    pthread_mutex_lock(&mutex);
    if (n & 1) {
        count++;
        pthread_mutex_unlock(&mutex);
        result = 1;
    } else {
        count++;
        pthread_mutex_unlock(&mutex);
        result = 2;
    }
    return result;
}

static int loops(void)
{
    int rounds = 0;
    for (int i = 0; i < 10; i++) {
        pthread_mutex_lock(&mutex);
        if (i == 7) {
            count++;
            pthread_mutex_unlock(&mutex);
            break;
        }
        if (i == 3) {
            pthread_mutex_unlock(&mutex);
            continue;
        }
        rounds++;
        pthread_mutex_unlock(&mutex);
    }
    return rounds;
}

static int nested_block(int n)
{
    if (n > 0) {
        int doubled;
        pthread_mutex_lock(&mutex);
        while (n > 1)
            n--;
        doubled = 2 * n;
        count += n;
        pthread_mutex_unlock(&mutex);
        return doubled;
    }
    return 0;
}

static const char *tails(int n)
{
    const char *name = "none";
    pthread_mutex_lock(&mutex);
    switch (n) {
    case 0:
        name = "zero";
        break;
    default:
        name = "more";
    }
    count++;
    if (n > 5) {
        pthread_mutex_unlock(&mutex);
        return "many";
    }
    pthread_mutex_unlock(&mutex);
    return name;
}

static long moved(void)
{
    pthread_mutex_lock(&mutex);
    long before = count;
    long after;
    count++;
    after = count;
    pthread_mutex_unlock(&mutex);
    return after - before;
}

static int arrays(void)
{
    char text[16] = "";
    int all[4] = {0};
    pthread_mutex_lock(&mutex);
    snprintf(text, sizeof text, "%d", 42);
    for (int i = 0; i < 4; i++)
        all[i] = i;
    count++;
    pthread_mutex_unlock(&mutex);
    return atoi(text) + all[3];
}

static void globals(void)
{
    pthread_mutex_lock(&mutex);
    count++;
    pthread_mutex_unlock(&mutex);
}

static long recursive(long n)
{
    long below = 0;
    pthread_mutex_lock(&other);
    if (n < 0)
        below = recursive(n); /* never */
    pthread_mutex_unlock(&other);
    return n > 0 ? recursive(n - 1) : below;
}

static int case_of(int n)
{
    int result = 0;
    switch (n) {
    case 1:
        pthread_mutex_lock(&mutex);
        count++;
        result = 1;
        pthread_mutex_unlock(&mutex);
        break;
    default:
        result = 7;
    }
    return result;
}

static long thread_data(void)
{
    pthread_mutex_lock(&mutex);
    own++;
    count++;
    pthread_mutex_unlock(&mutex);
    return own;
}

static void macro_lock(struct stats *s)
{
    STATS_LOCK(s);
    s->count++;
    STATS_UNLOCK(s);
}

static void wrapped(void)
{
    wrapper_lock(&mutex);
    count++;
    wrapper_unlock(&mutex);
}

static int in_macro_argument(int n)
{
    int twice = 2 * n;
    pthread_mutex_lock(&mutex);
    CHECKED(twice);
    twice += n;
    count++;
    pthread_mutex_unlock(&mutex);
    return twice;
}

static void void_exit(int n)
{
    pthread_mutex_lock(&mutex);
    if (n)
        pthread_mutex_unlock(&mutex);
    else {
        count++;
        pthread_mutex_unlock(&mutex);
    }
}

static int label_inside(int n)
{
    pthread_mutex_lock(&mutex);
again:
    if (n > 0) {
        n--;
        goto again;
    }
    count++;
    pthread_mutex_unlock(&mutex);
    return n;
}

static int inner_static(void)
{
    int result;
    pthread_mutex_lock(&mutex);
    static int calls;
    calls++;
    result = calls > 0;
    count++;
    pthread_mutex_unlock(&mutex);
    return result;
}

static int function_pointer(int (*compare)(const char *, const char *))
{
    int result;
    pthread_mutex_lock(&mutex);
    result = compare("a", "a");
    count++;
    pthread_mutex_unlock(&mutex);
    return result;
}

static int const_parameter(const int n, char *const words[])
{
    int result = 0;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < n; i++)
        result += (int)strlen(words[i]);
    count++;
    pthread_mutex_unlock(&mutex);
    return result;
}

/* The section reads a variable that it writes through a pointer. */
static int pointed_at(void)
{
    int value = 1, *pointer = &value;
    pthread_mutex_lock(&mutex);
    *pointer += 4;
    count += value == 5;
    pthread_mutex_unlock(&mutex);
    return value;
}

static int shared_flag(void)
{
    volatile int flag = 3;
    int seen;
    pthread_mutex_lock(&mutex);
    seen = flag;
    count++;
    pthread_mutex_unlock(&mutex);
    return seen;
}

static int continues(int n)
{
    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(&other);
        switch (i) {
        case 100: /* never */
            continue;
        default:
            break;
        }
        pthread_mutex_unlock(&other);
    }
    return n;
}

static void hand_over_hand(void)
{
    pthread_mutex_lock(&mutex);
    count++;
    pthread_mutex_lock(&next);
    pthread_mutex_unlock(&mutex);
    pthread_mutex_unlock(&next);
}

static void changes(void)
{
    struct stats one = {PTHREAD_MUTEX_INITIALIZER, 0}, *first = &one;
    pthread_mutex_lock(&first->mutex);
    first = first->count ? NULL : &one;
    pthread_mutex_unlock(&first->mutex);
}

static int tries(void)
{
    if (pthread_mutex_trylock(&mutex) == 0) {
        count++;
        pthread_mutex_unlock(&mutex);
        return 1;
    }
    return 0;
}

static void outer_and_inner(void)
{
    pthread_mutex_lock(&other);
    pthread_mutex_lock(&mutex);
    count++;
    pthread_mutex_unlock(&mutex);
    pthread_mutex_unlock(&other);
}

static int holds(int n)
{
    pthread_mutex_lock(&other);
    if (n > 100)
        return 1; /* never */
    pthread_mutex_unlock(&other);
    return 0;
}

static void waits(void)
{
    pthread_mutex_lock(&mutex);
    while (!ready)
        pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void wait_for(pthread_cond_t *what, pthread_mutex_t *held)
{
    if (pthread_cond_wait(what, held))
        abort();
}

static void wait_and_count(pthread_cond_t *what, pthread_mutex_t *held)
{
    if (sleeps++ < 1000)
        pthread_cond_wait(what, held);
}

static void counts_and_waits(void)
{
    pthread_mutex_lock(&mutex);
    ready += 0;
    while (!ready)
        wait_and_count(&cond, &mutex);
    ready += 0;
    pthread_mutex_unlock(&mutex);
}

/* A bounded queue. */
#define ROOM 4
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t space, filled;
    int first, length, sleepers;
    long items[ROOM], puts, sum;
} queue = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0, {0}, 0, 0};

static long puts_again, sum_again;

static int put(long item)
{
    pthread_mutex_lock(&queue.mutex);
    queue.puts++; /* once, even if it waits */
    while (queue.length == ROOM)
        pthread_cond_wait(&queue.space, &queue.mutex); /* lets go of the mutex */
    if (item < 0) {
        pthread_cond_signal(&queue.space);
        pthread_mutex_unlock(&queue.mutex);
        return -1;
    }
    queue.items[(queue.first + queue.length++) % ROOM] = item;
    pthread_cond_signal(&queue.filled);
    pthread_mutex_unlock(&queue.mutex);
    return 0;
}

static long take(void)
{
    long item;
    pthread_mutex_lock((&queue.mutex));
    while (!queue.length) {
        wait_for(&queue.filled, &queue.mutex);
    }
    item = queue.items[queue.first];
    queue.first = (queue.first + 1) % ROOM;
    queue.length--;
    queue.sum += item;
    pthread_cond_signal(&queue.space);
    pthread_mutex_unlock((&queue.mutex));
    return item;
}

static void waits_in_if(void)
{
    pthread_mutex_lock(&mutex);
    if (!ready)
        pthread_cond_wait(&cond, &mutex);
    ready += 0;
    pthread_mutex_unlock(&mutex);
}

/* One build has a part that another one leaves out. */
static long in_parts(const char *name, long n)
{
    long seen;
    pthread_mutex_lock(&mutex);
#ifndef WITHOUT_IT
    if (strcmp(name, "in_parts"))
        fail(name);
#endif
    seen = ready + n;
    pthread_mutex_unlock(&mutex);
#ifdef WITHOUT_IT
    (void)name;
#endif
    return seen;
}

static long void_cast(long n)
{
    (void)pthread_mutex_lock(&mutex);
    n += ready;
    (void)pthread_mutex_unlock(&mutex);
    return n;
}

static long label_at_unlock(long n)
{
    long seen = -1;
    pthread_mutex_lock(&mutex);
    if (n < 0)
        goto out;
    seen = n + ready;
out:
    pthread_mutex_unlock(&mutex);
    return seen;
}

#define FOR_EACH(it, n) for (it = 0; it < (n); it++)
static long written_by_macro(void)
{
    long it, sum = 0;
    pthread_mutex_lock(&mutex);
    FOR_EACH(it, 3)
        sum += it;
    pthread_mutex_unlock(&mutex);
    return 10 * it + sum;
}

static void set(void *it)
{
    *(long *)it = 4;
}

static long cast_address(void)
{
    long it = 1;
    pthread_mutex_lock(&mutex);
    set((void *)&it);
    pthread_mutex_unlock(&mutex);
    return it;
}

#define OR_ABORT(call) \
    do { \
        int error = (call); \
        if (error) \
            abort(); \
    } while (0)
#define SURE_LOCK(it) OR_ABORT(pthread_mutex_lock(it))
#define SURE_UNLOCK(it) OR_ABORT(pthread_mutex_unlock(it))
static long macro_statement(long n)
{
    SURE_LOCK(&mutex);
    if (n < 0) {
        SURE_UNLOCK(&mutex);
        return -1;
    }
    n += ready;
    SURE_UNLOCK(&mutex);
    return n;
}

static long if_in_tail(long n)
{
    pthread_mutex_lock(&mutex);
    if (n < 0) {
        pthread_mutex_unlock(&mutex);
#ifdef WITHOUT_IT
        fail("another build");
#else
        n -= 2;
        n -= 3;
#endif
        return n;
    }
    ready += 0;
    pthread_mutex_unlock(&mutex);
    return n;
}

/* What its own thread writes while it waits, the rest of the section reads. */
static long written_in_wait(void)
{
    int rc = 0, got = 0;
    struct timespec until = {0, 0};
    pthread_mutex_lock(&mutex);
    while (!never && rc == 0)
        rc = pthread_cond_timedwait(&cond, &mutex, &until);
    if (rc == 0)
        got = 1;
    pthread_mutex_unlock(&mutex);
    return got;
}

static long written_in_parentheses(long n)
{
    pthread_mutex_lock(&mutex);
    (n) += 3;
    set(&(n));
    pthread_mutex_unlock(&mutex);
    return n;
}

#define APPLY(what, it) what(it)
#define INCREASE(it) (it)++
static long written_by_argument(long n)
{
    pthread_mutex_lock(&mutex);
    APPLY(INCREASE, n);
    pthread_mutex_unlock(&mutex);
    return n;
}

#define HIDDEN n
#define NEXT HIDDEN++
static long hidden_write(long n)
{
    pthread_mutex_lock(&mutex);
    NEXT;
    pthread_mutex_unlock(&mutex);
    return n;
}

static int behind_last_case(int n)
{
    pthread_mutex_lock(&mutex);
    switch (n) {
    case 0:
        ready += 0;
        break;
    case 1:
        pthread_mutex_unlock(&mutex);
        return 7;
    }
    ready += 0;
    pthread_mutex_unlock(&mutex);
    return 0;
}

struct chained {
    struct chained *next_one;
    long value;
};
#define NEXT_OF(it, field) ((it)->field)
static long member_name(void)
{
    struct chained last = {NULL, 5}, first = {&last, 1}, *next_one = &first;
    long sum = next_one->value;
    pthread_mutex_lock(&mutex);
    sum += NEXT_OF(&first, next_one)->value;
    pthread_mutex_unlock(&mutex);
    return sum;
}

/* The wake-up would be lost. */
#define WAKE_AND_LOCK(it) \
    do { \
        pthread_cond_signal(&cond); \
        pthread_mutex_lock(it); \
    } while (0)
static void macro_of_two(void)
{
    WAKE_AND_LOCK(&mutex);
    ready += 0;
    pthread_mutex_unlock(&mutex);
}

static long shadowed(long n)
{
    pthread_mutex_lock(&other);
    if (n < 0) {
        long ready = n;
        pthread_mutex_unlock(&other);
        return ready;
    }
    pthread_mutex_unlock(&other);
    return __atomic_load_n(&ready, __ATOMIC_RELAXED);
}

#define INNER 2
#define OUTER INNER
static long own_below_macro(void)
{
    long n;
#undef INNER
#define INNER 6
    pthread_mutex_lock(&mutex);
    n = OUTER;
    pthread_mutex_unlock(&mutex);
    return n;
}

static long own_type(void)
{
    enum { FOUR = 4 };
    long n;
    pthread_mutex_lock(&mutex);
    n = FOUR;
    pthread_mutex_unlock(&mutex);
    return n;
}

static long own_macro(long n)
{
#define TWICE(it) (2 * (it))
    pthread_mutex_lock(&mutex);
    n = TWICE(n) * ready;
    pthread_mutex_unlock(&mutex);
    return n;
}

/* What it does between two looks at the queue is its own thread's, too; so are its ways out. */
static long take_or_stop(int stop)
{
    long item = -1;
    pthread_mutex_lock(&queue.mutex);
    while (!queue.length) {
        queue.sleepers++;
        if (stop) {
            queue.sleepers--;
            pthread_mutex_unlock(&queue.mutex);
            return -2;
        }
        pthread_cond_wait(&queue.filled, &queue.mutex);
        queue.sleepers--;
    }
    if (queue.length > 0) {
        item = queue.items[queue.first];
        queue.first = (queue.first + 1) % ROOM;
        queue.length--;
        queue.sum += item;
        pthread_cond_signal(&queue.space);
        pthread_mutex_unlock(&queue.mutex);
        return item;
    }
    pthread_mutex_unlock(&queue.mutex);
    return -1;
}

/* A condition that writes can't be looked at twice. */
static void waits_twice(void)
{
    int looks = 0;
    pthread_mutex_lock(&mutex);
    if (looks++)
        pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
    if (looks != 1)
        fail("waits_twice");
}

/* What was declared before would be gone. */
static long waits_late(void)
{
    pthread_mutex_lock(&mutex);
    long seen = ready;
    while (seen != ready)
        pthread_cond_wait(&cond, &mutex);
    seen -= ready;
    pthread_mutex_unlock(&mutex);
    return seen;
}

static void waits_unlocked(void)
{
    while (!ready)
        pthread_cond_wait(&cond, &mutex);
}

static void waits_below(void)
{
    pthread_mutex_lock(&mutex);
    waits_unlocked();
    pthread_mutex_unlock(&mutex);
}

static void leaves(void)
{
    for (;;) {
        pthread_mutex_lock(&other);
        if (count >= 0)
            break;
        pthread_mutex_unlock(&other);
    }
    pthread_mutex_unlock(&other);
}

static void relocks(void)
{
    pthread_mutex_lock(&mutex);
    count++;
    if (count < 0) {
        pthread_mutex_unlock(&mutex);
        globals();
        pthread_mutex_lock(&mutex);
    }
    pthread_mutex_unlock(&mutex);
}

static void some_ways(int n)
{
    pthread_mutex_lock(&mutex);
    if (n)
        pthread_mutex_unlock(&mutex);
    if (!n)
        pthread_mutex_unlock(&mutex);
}

static void jumps_out(int n)
{
    pthread_mutex_lock(&mutex);
    if (n)
        goto unlock;
    count++;
    pthread_mutex_unlock(&mutex);
    return;
unlock:
    pthread_mutex_unlock(&mutex);
}

static void nothing(void)
{
    pthread_mutex_lock(&other);
    pthread_mutex_unlock(&other);
}

static int local_type(void)
{
    struct {
        int a, b;
    } pair = {1, 2};
    pthread_mutex_lock(&mutex);
    pair.a++;
    pthread_mutex_unlock(&mutex);
    return pair.a + pair.b;
}

static int who(void)
{
    int result;
    pthread_t me = pthread_self();
    pthread_mutex_lock(&mutex);
    result = pthread_equal(me, pthread_self());
    pthread_mutex_unlock(&mutex);
    return result;
}

enum { THREADS = 8, ROUNDS = 1500, EACH = 29 };

static void *run(void *arg)
{
    char *const words[] = {"a", "bc"};
    long tried = 0;
    for (int i = 0; i < ROUNDS; i++) {
        if (once(1) < 1)
            fail("once");
        errno = 0;
        if (early(-1) != -1 || errno != EINVAL || early(1) != 0)
            fail("early");
        if (early_out(-1) != -1 || early_out(1) != 0)
            fail("early_out");
        if (branches(1) != 1 || branches(2) != 2)
            fail("branches");
        if (loops() != 6)
            fail("loops");
        if (nested_block(3) != 2)
            fail("nested_block");
        if (strcmp(tails(0), "zero") || strcmp(tails(1), "more") || strcmp(tails(6), "many"))
            fail("tails");
        if (moved() != 1)
            fail("moved");
        if (arrays() != 45)
            fail("arrays");
        globals();
        if (recursive(2) != 0)
            fail("recursive");
        if (case_of(1) != 1 || case_of(2) != 7)
            fail("case_of");
        if (thread_data() != i + 1)
            fail("thread_data");
        macro_lock(&stats);
        wrapped();
        if (in_macro_argument(2) != 6)
            fail("in_macro_argument");
        void_exit(0);
        void_exit(1);
        if (label_inside(3) != 0)
            fail("label_inside");
        if (inner_static() != 1)
            fail("inner_static");
        if (function_pointer(strcmp) != 0)
            fail("function_pointer");
        if (const_parameter(2, words) != 3)
            fail("const_parameter");
        if (pointed_at() != 5 || shared_flag() != 3 || continues(2) != 2)
            fail("pointed_at, shared_flag or continues");
        in_an_if();
        hand_over_hand();
        changes();
        tried += tries();
        outer_and_inner();
        holds(1);
        waits();
        waits_in_if();
        waits_twice();
        if (written_by_macro() != 33 || cast_address() != 4 || own_macro(3) != 6)
            fail("written_by_macro, cast_address or own_macro");
        if (written_in_wait() || written_in_parentheses(1) != 4 || written_by_argument(1) != 2 || hidden_write(1) != 2)
            fail("written_in_wait, written_in_parentheses, written_by_argument or hidden_write");
        if (behind_last_case(0) || behind_last_case(1) != 7 || behind_last_case(2) || member_name() != 6)
            fail("behind_last_case or member_name");
        macro_of_two();
        counts_and_waits();
        if (shadowed(-1) != -1 || shadowed(1) != 1 || own_below_macro() != 6 || own_type() != 4)
            fail("shadowed, own_below_macro or own_type");
        if (void_cast(1) != 2 || label_at_unlock(-1) != -1 || label_at_unlock(1) != 2)
            fail("void_cast or label_at_unlock");
        if (macro_statement(-1) != -1 || macro_statement(1) != 2)
            fail("macro_statement");
        if (if_in_tail(-1) != -6 || if_in_tail(1) != 1)
            fail("if_in_tail");
        if (in_parts("in_parts", 2) != 3)
            fail("in_parts");
        long item = take_or_stop(1);
        if (item >= 0) { /* another thread's, which waits for it now */
            __atomic_fetch_add(&puts_again, 1, __ATOMIC_RELAXED);
            __atomic_fetch_add(&sum_again, item, __ATOMIC_RELAXED);
            put(item);
        }
        if (put(i) || take_or_stop(0) < 0)
            fail("take_or_stop");
        if (waits_late())
            fail("waits_late");
        if (put(i) || take() < 0 || put(-1) != -1)
            fail("put or take");
        waits_below();
        leaves();
        relocks();
        some_ways(i & 1);
        jumps_out(0);
        jumps_out(1);
        nothing();
        if (local_type() != 4)
            fail("local_type");
        own_below();
        named();
        if (who() != 1)
            fail("who");
    }
    *(long *)arg = tried;
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    long tried[THREADS], sum = 0;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run, &tried[i]))
            fail("no thread");
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += tried[i];
    }
    if (queue.length || queue.sleepers || queue.puts != 3L * THREADS * ROUNDS + puts_again || queue.sum != (ROUNDS - 1L) * ROUNDS * THREADS + sum_again)
        fail("the queue lost items, or has them twice");
    if (stats.count != (long)THREADS * ROUNDS)
        fail("sections of the macro were lost, or ran twice");
    if (count - sum != (long)THREADS * ROUNDS * EACH) {
        fprintf(stderr, "%ld sections for each round\n", (count - sum) / THREADS / ROUNDS);
        fail("sections were lost, or ran twice");
    }
    puts("ok");
    return 0;
}
