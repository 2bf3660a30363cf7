// C11's mtx_* and cnd_*: the same memory, mixed with threads made either way.
// whole: yes
// limit: 240
#include "check.h"

static mtx_t m;
static cnd_t c;
static long counter;
static int turn;
static once_flag once = ONCE_FLAG_INIT;
static int initialised;

static void initialise(void) { initialised++; }

static int try_mtx(void *data)
{
    (void)data;
    int code = mtx_trylock(&m);
    if (code == thrd_success)
        mtx_unlock(&m);
    return code;
}

static int count(void *data)
{
    (void)data;
    call_once(&once, initialise);
    for (int i = 0; i < 20000; i++) {
        CHECK(mtx_lock(&m) == thrd_success);
        counter++;
        CHECK(mtx_unlock(&m) == thrd_success);
    }
    return 7;
}

static void *count_posix(void *data) { return (void *)(intptr_t)count(data); }

static int player(void *data)
{
    int me = (int)(intptr_t)data;
    for (int i = 0; i < 2000; i++) {
        mtx_lock(&m);
        while (turn != me)
            CHECK(cnd_wait(&c, &m) == thrd_success);
        turn = !me;
        CHECK((i % 2 ? cnd_signal(&c) : cnd_broadcast(&c)) == thrd_success);
        mtx_unlock(&m);
    }
    return 0;
}

static const char *name(int code)
{
    return code == thrd_success    ? "success"
           : code == thrd_busy     ? "busy"
           : code == thrd_timedout ? "timedout"
           : code == thrd_error    ? "error"
                                   : "?";
}

#define SHOW(call) (printf("%s = %s\n", #call, name(call)), fflush(stdout))

static int elsewhere_c11(void)
{
    thrd_t thread;
    int code;
    CHECK(thrd_create(&thread, try_mtx, NULL) == thrd_success);
    CHECK(thrd_join(thread, &code) == thrd_success);
    return code;
}

int main(void)
{
    int types[] = {mtx_plain, mtx_timed, mtx_recursive, mtx_timed | mtx_recursive};
    for (int i = 0; i < 4; i++) {
        printf("-- type %d\n", types[i]);
        SHOW(mtx_init(&m, types[i]));
        SHOW(mtx_lock(&m));
        SHOW(elsewhere_c11());
        if (types[i] & mtx_recursive) {
            SHOW(mtx_trylock(&m));
            SHOW(mtx_unlock(&m));
        } else {
            SHOW(mtx_trylock(&m));
        }
        if (types[i] == mtx_timed) {
            struct timespec soon = in_ms(CLOCK_REALTIME, 30);
            SHOW(mtx_timedlock(&m, &soon));
            CHECK(has_passed(CLOCK_REALTIME, soon));
        }
        SHOW(mtx_unlock(&m));
        SHOW(elsewhere_c11());
        thrd_t threads[3];
        counter = 0;
        pthread_t other = start(count_posix, NULL);
        for (int t = 0; t < 3; t++)
            CHECK(thrd_create(&threads[t], count, NULL) == thrd_success);
        int code;
        for (int t = 0; t < 3; t++)
            CHECK(thrd_join(threads[t], &code) == thrd_success && code == 7);
        CHECK((intptr_t)join(other) == 7);
        CHECK(counter == 80000);
        if (!(types[i] & mtx_recursive)) {
            SHOW(cnd_init(&c));
            struct timespec soon = in_ms(CLOCK_REALTIME, 30);
            mtx_lock(&m);
            SHOW(cnd_timedwait(&c, &m, &soon));
            CHECK(has_passed(CLOCK_REALTIME, soon));
            mtx_unlock(&m);
            thrd_t one, two;
            thrd_create(&one, player, (void *)0);
            thrd_create(&two, player, (void *)1);
            thrd_join(one, NULL);
            thrd_join(two, NULL);
            cnd_destroy(&c);
        }
        mtx_destroy(&m);
    }
    printf("initialised %d\n", initialised);
    CHECK(initialised == 1);
    return finish();
}
