// Programs of the same shape as RCL's applications (J.-P. Lozi et al., USENIX ATC 2012, section 5), for `cargo xtask eval delegation`: the
// same locks around the same kind of work, with inputs made here. They are not Phoenix and SPLASH-2 themselves, which Debian doesn't have.
//
//   histogram, linear-regression, string-match   as in Phoenix 2: map tasks, two at a time, from the scheduler's queue, under its lock;
//                                                 each task adds its results to the totals, under another one
//   raytrace    as in SPLASH-2: rays in bundles from a job pool with a lock; a counter of rays under the statistics' lock for each
//   radiosity   as in SPLASH-2: a task queue with a lock, into which tasks put other tasks; memory from free lists under a lock
//
// usage: shapes SHAPE THREADS UNITS. Prints the result, which does not depend on who did what.
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t totals_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;

static long units, next_unit;
static uint64_t totals[768];

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Takes a number of units from the scheduler's queue; returns how many, the first in *first.
static long take(long most, long *first) {
    long got;
    pthread_mutex_lock(&queue_lock);
    *first = next_unit;
    got = units - next_unit < most ? units - next_unit : most;
    next_unit += got;
    pthread_mutex_unlock(&queue_lock);
    return got;
}

enum { PIXELS = 64 };

static void histogram(long unit) {
    uint16_t own[PIXELS * 3];
    for (int i = 0; i < PIXELS * 3; i++)
        own[i] = (uint16_t)(i % 3 * 256 + (int)(mix((uint64_t)unit * PIXELS * 3 + (uint64_t)i) % 256));
    pthread_mutex_lock(&totals_lock);
    for (int i = 0; i < PIXELS * 3; i++)
        totals[own[i]]++;
    pthread_mutex_unlock(&totals_lock);
}

static void linear_regression(long unit) {
    uint64_t sums[5] = {0};
    for (uint64_t i = 0; i < 128; i++) {
        uint64_t point = mix((uint64_t)unit * 128 + i), x = point % 256, y = point / 256 % 256;
        sums[0] += x;
        sums[1] += y;
        sums[2] += x * x;
        sums[3] += y * y;
        sums[4] += x * y;
    }
    pthread_mutex_lock(&totals_lock);
    for (int i = 0; i < 5; i++)
        totals[i] += sums[i];
    pthread_mutex_unlock(&totals_lock);
}

static void string_match(long unit) {
    char word[17], key[17];
    uint64_t found = 0;
    for (uint64_t i = 0; i < 16; i++) {
        snprintf(word, sizeof word, "%016" PRIx64, mix((uint64_t)unit * 16 + i));
        snprintf(key, sizeof key, "%016" PRIx64, mix(i * 977));
        found += strcmp(word, key) == 0 || word[0] == key[0];
    }
    pthread_mutex_lock(&totals_lock);
    totals[0] += found;
    pthread_mutex_unlock(&totals_lock);
}

static uint64_t trace(uint64_t ray) {
    uint64_t hit = ray;
    for (int depth = 0; depth < 24; depth++)
        hit = mix(hit);
    return hit % 1000;
}

// A bundle of eight rays, each counted by itself.
static void raytrace(long unit) {
    for (uint64_t i = 0; i < 8; i++) {
        uint64_t light = trace((uint64_t)unit * 8 + i);
        pthread_mutex_lock(&totals_lock);
        totals[0]++;
        totals[1] += light;
        pthread_mutex_unlock(&totals_lock);
    }
}

// radiosity: patches that are refined into two halves each, down to a depth.
struct patch {
    struct patch *next;
    uint64_t energy;
    int depth;
};
static struct patch *tasks, *unused;
static long busy;

static struct patch *new_patch(uint64_t energy, int depth) {
    struct patch *patch;
    pthread_mutex_lock(&free_lock);
    patch = unused;
    if (patch)
        unused = patch->next;
    pthread_mutex_unlock(&free_lock);
    if (!patch)
        patch = malloc(sizeof *patch);
    if (!patch)
        abort();
    patch->energy = energy;
    patch->depth = depth;
    return patch;
}

static void put(struct patch *patch) {
    pthread_mutex_lock(&queue_lock);
    patch->next = tasks;
    tasks = patch;
    busy++;
    pthread_mutex_unlock(&queue_lock);
}

// Returns 0 when nothing is left.
static int radiosity(void) {
    struct patch *patch;
    long left;
    uint64_t energy;
    int depth;
    pthread_mutex_lock(&queue_lock);
    patch = tasks;
    if (patch)
        tasks = patch->next;
    left = busy;
    pthread_mutex_unlock(&queue_lock);
    if (!patch)
        return left > 0;
    energy = trace(patch->energy);
    depth = patch->depth;
    if (depth > 0) {
        put(new_patch(2 * patch->energy + 1, depth - 1));
        put(new_patch(2 * patch->energy + 2, depth - 1));
    }
    pthread_mutex_lock(&free_lock);
    patch->next = unused;
    unused = patch;
    totals[0]++;
    totals[1] += energy;
    pthread_mutex_unlock(&free_lock);
    pthread_mutex_lock(&queue_lock);
    busy--;
    pthread_mutex_unlock(&queue_lock);
    return 1;
}

static void (*work)(long);

static void *run(void *nothing) {
    long first, got;
    (void)nothing;
    if (!work) {
        while (radiosity()) {
        }
        return NULL;
    }
    while ((got = take(2, &first)) > 0)
        for (long unit = first; unit < first + got; unit++)
            work(unit);
    return NULL;
}

int main(int argc, char **argv) {
    const struct {
        const char *name;
        void (*work)(long);
    } shapes[] = {{"histogram", histogram}, {"linear-regression", linear_regression}, {"string-match", string_match},
                  {"raytrace", raytrace}, {"radiosity", NULL}};
    pthread_t threads[256];
    size_t shape = 0;
    int count = argc == 4 ? atoi(argv[2]) : 0;
    while (argc == 4 && shape < 5 && strcmp(shapes[shape].name, argv[1]) != 0)
        shape++;
    if (argc != 4 || shape == 5 || count < 1 || count > 256 || (units = atol(argv[3])) < 1) {
        fprintf(stderr, "usage: %s histogram|linear-regression|string-match|raytrace|radiosity THREADS UNITS\n", argv[0]);
        return 2;
    }
    work = shapes[shape].work;
    for (long root = 0; !work && root * 1024 < units; root++)
        put(new_patch((uint64_t)root << 32, 9));
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, run, NULL) != 0) {
            fprintf(stderr, "error: cannot start a thread\n");
            return 2;
        }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    uint64_t sum = 0;
    for (int i = 0; i < 768; i++)
        sum = mix(sum + totals[i]);
    printf("%s %016" PRIx64 "\n", argv[1], sum);
    return 0;
}
