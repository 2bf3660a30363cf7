// A small key-value server with a fault to find: docs/slow-server.md walks from its symptom to the proof that it is gone.
//
//     cc -g -O2 -pthread examples/kv.c -o kv
//     ./kv 7878                   serves: "get KEY" and "set KEY VALUE", a line each; a thread for each connection;
//                                 notes each change in kv.journal
//     ./kv 7878 load 2 8          loads it for 2 seconds by 8 connections, and says how many requests a second
//
// With -DFIXED the fault is gone.

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { KEYS = 4096, BATCH = 64, ROOM = 1 << 14 };

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry {
    long value;
    long reads;
} table[KEYS];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

// Where changes are noted, before their requests are answered: so they survive a crash. Each has its number.
static int journal;
static long changes;

static void save(const char *lines, size_t length)
{
    if (write(journal, lines, length) < 0 || fdatasync(journal))
        die("kv.journal");
}

// One request, one line of answer; its length. A change's line is added to `noted`.
static int answer(const char *request, char *reply, char *noted, size_t *length)
{
    char verb[4];
    long key = 0, value = 0, number = 0;
    int words = sscanf(request, "%3s %ld %ld", verb, &key, &value);
    struct entry *entry = &table[(unsigned long)key % KEYS];

    pthread_mutex_lock(&table_lock);
    if (words == 3) {
        entry->value = value;
        number = ++changes;
#ifndef FIXED
        save(noted, (size_t)sprintf(noted, "%ld set %ld %ld\n", number, key, value));
#endif
    } else {
        value = entry->value;
        entry->reads++;
    }
    pthread_mutex_unlock(&table_lock);
#ifdef FIXED
    if (words == 3)
        *length += (size_t)sprintf(noted + *length, "%ld set %ld %ld\n", number, key, value);
#else
    (void)length;
#endif
    return sprintf(reply, "%ld %ld\n", key, value);
}

static void *serve(void *argument)
{
    int connection = (int)(intptr_t)argument;
    char in[ROOM + 1], out[ROOM * 4], noted[ROOM * 8];
    size_t have = 0;
    ssize_t got;

    while ((got = read(connection, in + have, ROOM - have)) > 0) {
        have += (size_t)got;
        in[have] = 0;
        char *line = in, *end;
        size_t length = 0, notes = 0;
        while ((end = strchr(line, '\n')) != NULL && length < sizeof out - 80) {
            *end = 0;
            length += (size_t)answer(line, out + length, noted, &notes);
            line = end + 1;
        }
        if (notes > 0)
            save(noted, notes);
        if (write(connection, out, length) < 0)
            break;
        have -= (size_t)(line - in);
        memmove(in, line, have);
    }
    close(connection);
    return NULL;
}

static struct sockaddr_in address(const char *port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return here;
}

static void server(const char *port)
{
    struct sockaddr_in here = address(port);
    int one = 1, door = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(door, (struct sockaddr *)&here, sizeof here) || listen(door, 64))
        die(port);
    if ((journal = open("kv.journal", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644)) < 0)
        die("kv.journal");
    for (;;) {
        intptr_t connection = accept(door, NULL, NULL);
        pthread_t thread;
        if (connection >= 0 && pthread_create(&thread, NULL, serve, (void *)connection) == 0)
            pthread_detach(thread);
    }
}

static const char *where;
static atomic_long answered;
static atomic_bool over;

// Requests go out in batches, so that the server works and the network does not.
static void *client(void *number)
{
    struct sockaddr_in there = address(where);
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    char out[ROOM], in[ROOM * 4];
    size_t length = 0;

    if (connect(connection, (struct sockaddr *)&there, sizeof there))
        die(where);
    for (int i = 0; i < BATCH; i++)
        length += (size_t)sprintf(out + length, i ? "get %d\n" : "set %d 7\n", i * 61 + (int)(intptr_t)number);
    while (!over) {
        if (write(connection, out, length) < 0)
            die("write");
        for (int lines = 0; lines < BATCH;) {
            ssize_t got = read(connection, in, sizeof in);
            if (got <= 0)
                die("read");
            for (ssize_t i = 0; i < got; i++)
                lines += in[i] == '\n';
        }
        answered += BATCH;
    }
    close(connection);
    return NULL;
}

static void load(const char *port, int seconds, int clients)
{
    pthread_t threads[64];
    clients = clients < 64 ? clients : 64;
    where = port;
    for (int i = 0; i < clients; i++)
        pthread_create(&threads[i], NULL, client, (void *)(intptr_t)i);
    sleep((unsigned)seconds);
    over = 1;
    for (int i = 0; i < clients; i++)
        pthread_join(threads[i], NULL);
    printf("requests/s: %ld\n", answered / seconds);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[2], "load") == 0)
        load(argv[1], atoi(argv[3]), atoi(argv[4]));
    else if (argc == 2)
        server(argv[1]);
    else
        fprintf(stderr, "usage: %s PORT [load SECONDS CLIENTS]\n", argv[0]);
    return 0;
}
