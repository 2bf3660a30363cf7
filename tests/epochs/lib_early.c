// Its constructor runs before lockwright's.
#include "lockwright.h"

#include <pthread.h>
#include <stdlib.h>

int early_epochs;

static void *work(void *unused)
{
    lw_epoch_start(2);
    lw_epoch_end(2, 1000);
    return unused;
}

__attribute__((constructor)) static void early(void)
{
    pthread_t thread;

    lw_epoch_name(1, "early");
    lw_epoch_percentile(1, 90);
    lw_epoch_start(1);
    if (pthread_create(&thread, NULL, work, NULL) || pthread_join(thread, NULL))
        abort();
    lw_epoch_end(1, 1000);
    lw_epoch_start(3); // main ends it
    early_epochs = 3;
}

__attribute__((destructor)) static void late(void)
{
    work(NULL);
}
