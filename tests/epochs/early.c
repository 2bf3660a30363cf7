// Epochs in a library's constructor, before lockwright's own has run; and in its destructor.
#include "lockwright.h"

#include <stdio.h>

extern int early_epochs;

int main(void)
{
    lw_epoch_end(3, 1000000000);
    lw_epoch_start(1);
    lw_epoch_end(1, 1000);
    printf("%d\n", early_epochs);
    return 0;
}
