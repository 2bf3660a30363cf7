// Locks are used before the preloaded library's constructor has run, and after its destructor would.
// library: lib_early
#include "check.h"

long early_counter(void);
int early_failures(void);

static void at_end(void)
{
    CHECK(early_counter() == 30000);
}

int main(void)
{
    atexit(at_end);
    printf("%ld\n", early_counter());
    CHECK(early_counter() == 30000);
    CHECK(early_failures() == 0);
    return finish();
}
