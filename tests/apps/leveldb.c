// LevelDB: four threads put, read at random and delete, while its own thread compacts.
#include <leveldb/c.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, KEYS = 12000 };
static leveldb_t *db;
static leveldb_writeoptions_t *writing;
static leveldb_readoptions_t *reading;

static void must(char *error, const char *what)
{
    if (error) {
        printf("FAILED: %s: %s\n", what, error);
        exit(1);
    }
}

static void *use(void *data)
{
    int me = (int)(long)data;
    uint32_t seed = 12345u + (uint32_t)me;
    char key[32], value[128], *error = NULL;
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "%d-%06d", me, i);
        memset(value, 'a' + i % 26, sizeof value);
        leveldb_put(db, writing, key, strlen(key), value, sizeof value, &error);
        must(error, "put");
        for (int reads = 0; reads < 3; reads++) {
            seed = seed * 1664525u + 1013904223u;
            int which = (int)(seed >> 8) % (i + 1);
            snprintf(key, sizeof key, "%d-%06d", me, which);
            size_t length;
            char *got = leveldb_get(db, reading, key, strlen(key), &length, &error);
            must(error, "get");
            bool deleted = which % 7 == 0;
            if (!got != deleted && which != i) {
                printf("FAILED: '%s' is %s\n", key, got ? "there" : "missing");
                exit(1);
            }
            if (got && got[0] != 'a' + which % 26) {
                printf("FAILED: '%s' is '%c'\n", key, got[0]);
                exit(1);
            }
            leveldb_free(got);
        }
        if (i % 7 == 0) {
            snprintf(key, sizeof key, "%d-%06d", me, i);
            leveldb_delete(db, writing, key, strlen(key), &error);
            must(error, "delete");
        }
    }
    return NULL;
}

int main(void)
{
    char *error = NULL;
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_options_set_write_buffer_size(options, 256 << 10);
    writing = leveldb_writeoptions_create();
    reading = leveldb_readoptions_create();
    db = leveldb_open(options, "level.db", &error);
    must(error, "open");
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, use, (void *)i))
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    leveldb_compact_range(db, NULL, 0, NULL, 0);
    uint64_t hash = 1469598103934665603u, count = 0;
    leveldb_iterator_t *it = leveldb_create_iterator(db, reading);
    for (leveldb_iter_seek_to_first(it); leveldb_iter_valid(it); leveldb_iter_next(it), count++) {
        size_t length;
        const char *key = leveldb_iter_key(it, &length);
        for (size_t i = 0; i < length; i++)
            hash = (hash ^ (unsigned char)key[i]) * 1099511628211u;
    }
    leveldb_iter_destroy(it);
    printf("%llu keys, hash %llx\n", (unsigned long long)count, (unsigned long long)hash);
    leveldb_close(db);
    return 0;
}
