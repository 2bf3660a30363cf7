// SQLite in serialized mode: six threads share one connection; two more, each with its own, share a file.
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

static sqlite3 *shared;

static void must(sqlite3 *db, int code, const char *what)
{
    if (code != SQLITE_OK && code != SQLITE_DONE && code != SQLITE_ROW) {
        printf("FAILED: %s: %s\n", what, sqlite3_errmsg(db));
        exit(1);
    }
}

static void use(sqlite3 *db, int who, int count)
{
    sqlite3_stmt *put, *get;
    must(db, sqlite3_prepare_v2(db, "INSERT INTO t (who, n) VALUES (?, ?)", -1, &put, NULL), "prepare");
    must(db, sqlite3_prepare_v2(db, "SELECT count(*) FROM t WHERE who = ?", -1, &get, NULL), "prepare");
    for (int i = 0; i < count; i++) {
        sqlite3_bind_int(put, 1, who);
        sqlite3_bind_int(put, 2, i);
        must(db, sqlite3_step(put), "insert");
        must(db, sqlite3_reset(put), "insert");
        if (i % 50 == 49) {
            sqlite3_bind_int(get, 1, who);
            must(db, sqlite3_step(get), "select");
            if (sqlite3_column_int(get, 0) != i + 1) {
                printf("FAILED: thread %d sees %d rows, not %d\n", who, sqlite3_column_int(get, 0), i + 1);
                exit(1);
            }
            must(db, sqlite3_reset(get), "select");
        }
    }
    sqlite3_finalize(put);
    sqlite3_finalize(get);
}

static void *share(void *who)
{
    use(shared, (int)(long)who, 400);
    return NULL;
}

static sqlite3 *connect_to(const char *file)
{
    sqlite3 *db;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX;
    must(NULL, sqlite3_open_v2(file, &db, flags, NULL), "open");
    sqlite3_busy_timeout(db, 30000);
    must(db, sqlite3_exec(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF", NULL, NULL, NULL), "wal");
    return db;
}

static void *alone(void *who)
{
    sqlite3 *db = connect_to("alone.db");
    use(db, (int)(long)who, 200);
    sqlite3_close(db);
    return NULL;
}

static int print_row(void *data, int columns, char **values, char **names)
{
    (void)data, (void)names;
    for (int i = 0; i < columns; i++)
        printf("%s ", values[i]);
    printf("\n");
    return 0;
}

int main(void)
{
    printf("threadsafe %d\n", sqlite3_threadsafe());
    const char *create = "CREATE TABLE t (id INTEGER PRIMARY KEY, who INT, n INT)";
    sqlite3 *other = connect_to("alone.db");
    shared = connect_to("driver.db");
    must(shared, sqlite3_exec(shared, create, NULL, NULL, NULL), "create");
    must(other, sqlite3_exec(other, create, NULL, NULL, NULL), "create");
    pthread_t threads[8];
    for (long i = 0; i < 8; i++)
        if (pthread_create(&threads[i], NULL, i < 6 ? share : alone, (void *)i))
            return 1;
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    const char *sum = "SELECT who, count(*), sum(n) FROM t GROUP BY who ORDER BY who; PRAGMA integrity_check";
    must(shared, sqlite3_exec(shared, sum, print_row, NULL, NULL), "sum");
    must(other, sqlite3_exec(other, sum, print_row, NULL, NULL), "sum");
    sqlite3_close(shared);
    sqlite3_close(other);
    return 0;
}
