// Threads that take locks in orders that may, or can't, lead to a deadlock; which, says the argument. None of them waits for
// another forever, but in "stuck": one thread comes after the other.

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t third = PTHREAD_MUTEX_INITIALIZER, gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t reader = PTHREAD_RWLOCK_INITIALIZER, other = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

static void both(pthread_mutex_t *outer, pthread_mutex_t *inner) {
    pthread_mutex_lock(outer); /* outer */
    pthread_mutex_lock(inner); /* inner */
    pthread_mutex_unlock(inner);
    pthread_mutex_unlock(outer);
}

// They do something afterwards, so that no compiler jumps to `both`.
static volatile int done;

static void *forwards(void *unused) {
    both(&first, &second); /* forwards */
    done++;
    return unused;
}

static void *backwards(void *unused) {
    both(&second, &first); /* backwards */
    done++;
    return unused;
}

static void *gated_forwards(void *unused) {
    pthread_mutex_lock(&gate);
    both(&first, &second);
    pthread_mutex_unlock(&gate);
    return unused;
}

static void *gated_backwards(void *unused) {
    pthread_mutex_lock(&gate);
    both(&second, &first);
    pthread_mutex_unlock(&gate);
    return unused;
}

static void *tries_backwards(void *unused) {
    pthread_mutex_lock(&second);
    if (pthread_mutex_trylock(&first) == 0)
        pthread_mutex_unlock(&first);
    pthread_mutex_unlock(&second);
    return unused;
}

static void *second_to_third(void *unused) {
    both(&second, &third);
    return unused;
}

static void *third_to_first(void *unused) {
    both(&third, &first);
    return unused;
}

static void read_then(pthread_rwlock_t *outer, int (*lock)(pthread_rwlock_t *), pthread_rwlock_t *inner) {
    pthread_rwlock_rdlock(outer);
    lock(inner);
    pthread_rwlock_unlock(inner);
    pthread_rwlock_unlock(outer);
}

static void *reads_forwards(void *unused) {
    read_then(&reader, pthread_rwlock_rdlock, &other);
    return unused;
}

static void *reads_backwards(void *unused) {
    read_then(&other, pthread_rwlock_rdlock, &reader);
    return unused;
}

static void *writes_forwards(void *unused) {
    read_then(&reader, pthread_rwlock_wrlock, &other);
    return unused;
}

static void *writes_backwards(void *unused) {
    read_then(&other, pthread_rwlock_wrlock, &reader);
    return unused;
}

// Waits with `first`, which it asks for again while it holds `second`.
static void *waits(void *unused) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    pthread_mutex_lock(&first);
    pthread_mutex_lock(&second);
    pthread_cond_timedwait(&never, &first, &now);
    pthread_mutex_unlock(&second);
    pthread_mutex_unlock(&first);
    return unused;
}

static void one_after_another(void *(*one)(void *), void *(*two)(void *)) {
    void *(*bodies[])(void *) = {one, two};
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, bodies[i], NULL) != 0)
            exit(2);
        pthread_join(thread, NULL);
    }
}

// Two mutexes, in memory that has had others before.
static struct pair {
    pthread_mutex_t one, two;
} place;

static void *place_forwards(void *unused) {
    both(&place.one, &place.two);
    return unused;
}

static void *place_backwards(void *unused) {
    both(&place.two, &place.one);
    return unused;
}

static atomic_int holds, asks;
static atomic_int ids[2];

static void *gets_stuck(void *number) {
    int own = (int)(long)number;
    atomic_store(&ids[own], (int)syscall(SYS_gettid));
    pthread_mutex_lock(own == 0 ? &first : &second);
    atomic_fetch_add(&holds, 1);
    while (atomic_load(&holds) < 2)
        usleep(1000);
    atomic_fetch_add(&asks, 1);
    pthread_mutex_lock(own == 0 ? &second : &first);
    return NULL;
}

static int sleeps(int thread) {
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(text, sizeof text, file) == NULL)
        exit(2);
    fclose(file);
    const char *state = strrchr(text, ')');
    return state != NULL && state[2] == 'S';
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "inversion";
    if (strcmp(what, "inversion") == 0) {
        one_after_another(forwards, backwards);
    } else if (strcmp(what, "killed") == 0) {
        one_after_another(forwards, backwards);
        raise(SIGKILL);
    } else if (strcmp(what, "forked") == 0) {
        if (fork() == 0) {
            one_after_another(forwards, backwards);
            _exit(0);
        }
        wait(NULL);
    } else if (strcmp(what, "gate") == 0) {
        one_after_another(gated_forwards, gated_backwards);
    } else if (strcmp(what, "half-gate") == 0) {
        one_after_another(gated_forwards, backwards);
    } else if (strcmp(what, "try") == 0) {
        one_after_another(forwards, tries_backwards);
    } else if (strcmp(what, "three") == 0) {
        one_after_another(forwards, second_to_third);
        one_after_another(third_to_first, third_to_first);
    } else if (strcmp(what, "alone") == 0) {
        forwards(NULL);
        backwards(NULL);
    } else if (strcmp(what, "readers") == 0) {
        one_after_another(reads_forwards, reads_backwards);
    } else if (strcmp(what, "writers") == 0) {
        one_after_another(writes_forwards, writes_backwards);
    } else if (strcmp(what, "condition") == 0) {
        one_after_another(waits, waits);
    } else if (strcmp(what, "destroyed") == 0) {
        // Of the type NORMAL, which has no room for our mark.
        pthread_mutexattr_t type;
        pthread_mutexattr_init(&type);
        pthread_mutexattr_settype(&type, PTHREAD_MUTEX_NORMAL);
        for (int i = 0; i < 2; i++) {
            pthread_mutex_init(&place.one, &type);
            pthread_mutex_init(&place.two, &type);
            pthread_t thread;
            if (pthread_create(&thread, NULL, i == 0 ? place_forwards : place_backwards, NULL) != 0)
                exit(2);
            pthread_join(thread, NULL);
            pthread_mutex_destroy(&place.one);
            pthread_mutex_destroy(&place.two);
        }
    } else if (strcmp(what, "reused") == 0) {
        // As C++ does: the mutex ends with its memory.
        one_after_another(place_forwards, place_forwards);
        memset(&place, 0, sizeof place);
        one_after_another(place_backwards, place_backwards);
    } else if (strcmp(what, "stuck") == 0) {
        pthread_t threads[2];
        for (long i = 0; i < 2; i++)
            if (pthread_create(&threads[i], NULL, gets_stuck, (void *)i) != 0)
                exit(2);
        while (atomic_load(&asks) < 2)
            usleep(1000);
        for (int seen = 0; seen < 100;) {
            seen = sleeps(atomic_load(&ids[0])) && sleeps(atomic_load(&ids[1])) ? seen + 1 : 0;
            usleep(1000);
        }
        raise(SIGKILL);
    } else {
        return 2;
    }
    puts("done");
    return 0;
}
