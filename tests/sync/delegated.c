/* lw_execute from C: sections run once each, and see each other's writes; the lock may be used again after its end. */
#include <lockwright_sync.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 16, EACH = 20000 };

static lw_delegated_t lock = LW_DELEGATED_INIT;
static long count;

struct request {
    long before;
};

static void section(void *context)
{
    struct request *request = context;
    request->before = count++;
}

static void *thread(void *arg)
{
    long last = -1;
    (void)arg;
    for (int i = 0; i < EACH; i++) {
        struct request request = {-1};
        lw_execute(&lock, section, &request);
        if (request.before <= last) {
            fprintf(stderr, "sections ran out of order: %ld, %ld\n", last, request.before);
            exit(1);
        }
        last = request.before;
    }
    return NULL;
}

int main(void)
{
    for (int round = 1; round <= 2; round++) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            if (pthread_create(&threads[i], NULL, thread, NULL))
                return 1;
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        if (count != (long)round * THREADS * EACH) {
            fprintf(stderr, "%ld sections ran\n", count);
            return 1;
        }
        lw_delegated_destroy(&lock);
    }
    puts("ok");
    return 0;
}
