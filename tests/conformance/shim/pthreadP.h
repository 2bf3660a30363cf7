/* The internal header of glibc's threads: the tests need only what the public ones have. */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
