/* Wraps a function of a library behind it. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <stddef.h>
long twice(long x)
{
    long (*next)(long) = (long (*)(long))dlsym(RTLD_NEXT, "twice");
    return next == NULL ? -1 : next(x) + 100;
}
