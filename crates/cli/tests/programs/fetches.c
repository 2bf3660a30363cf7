/* Two threads that ask a library again and again for what they could keep. With an argument, the program ends by itself after that many milliseconds; else
 * with its input. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int registry_find(const char *name);

static void *work(void *unused)
{
    for (;;) {
        int found = registry_find("SHA256"); /* here */
        __asm__ volatile("" : : "r"(found));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    for (int i = 0; i < 2; i++)
        pthread_create(&thread, NULL, work, NULL);
    puts("ready");
    fflush(stdout);
    if (argc > 1)
        usleep(1000 * atoi(argv[1]));
    else
        getchar();
    _exit(0); /* the threads never end */
}
