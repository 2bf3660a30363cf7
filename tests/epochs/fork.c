// A process, its child, its grandchild, a child that runs no epoch, and one that becomes another program.
#include "lockwright.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void epochs(int count)
{
    while (count-- > 0) {
        lw_epoch_start(7);
        lw_epoch_end(7, 1000000);
    }
}

static void wait_for(pid_t child)
{
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        abort();
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        epochs(2);
        return 0;
    }
    lw_epoch_name(7, "step");
    lw_epoch_percentile(7, 95);
    epochs(10);
    lw_epoch_start(8); // goes on in both
    pid_t child = fork();
    if (child == 0) {
        clearenv(); // what we said at the start holds
        lw_epoch_end(8, 1000000000);
        epochs(7);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            epochs(3);
            _exit(0);
        }
        wait_for(grandchild);
        _exit(0);
    }
    wait_for(child);
    lw_epoch_end(8, 1000000000);
    child = fork();
    if (child == 0)
        _exit(0);
    wait_for(child);
    child = fork();
    if (child == 0) {
        epochs(1);
        execl("/proc/self/exe", argv[0], "again", NULL);
        _exit(1);
    }
    wait_for(child);
    epochs(5);
    return 0;
}
