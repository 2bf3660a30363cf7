// A library in a namespace of its own, with its own copy of libc, locks the program's mutex.
// beside: lib_namespace
// says: lib_namespace.so' is opened in a namespace of its own
// limit: 120
#include "check.h"

#define ROUNDS 2000
#define THREADS 4

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static long counter;

static void count(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        OK(pthread_mutex_lock(&m));
        counter++;
        OK(pthread_mutex_unlock(&m));
    }
}

static void *count_here(void *data)
{
    count();
    return data;
}

static void *nothing(void *data) { return data; }

int main(int argc, char **argv)
{
    (void)argc;
    char path[4096];
    snprintf(path, sizeof path, "%s", argv[0]);
    char *slash = strrchr(path, '/');
    CHECK(slash != NULL);
    strcpy(slash ? slash + 1 : path, "lib_namespace.so");
    void *library = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
    if (!library) {
        printf("FAILED: %s\n", dlerror());
        return 1;
    }
    int (*begin)(void (*)(void)) = (int (*)(void (*)(void)))dlsym(library, "namespace_begin");
    int (*end)(void) = (int (*)(void))dlsym(library, "namespace_end");
    void (*lock)(pthread_mutex_t *, long *, int) =
        (void (*)(pthread_mutex_t *, long *, int))dlsym(library, "namespace_count");
    CHECK(begin && end && lock);
    // The library's thread calls the program's code, and the library's code runs here, all on one mutex.
    // Each copy of libc takes the process for single-threaded until it has started a thread itself.
    join(start(nothing, NULL));
    OK(begin(count));
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(count_here, NULL);
    lock(&m, &counter, ROUNDS);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    OK(end());
    printf("counter %ld\n", counter);
    CHECK(dlclose(library) == 0);
    return finish();
}
