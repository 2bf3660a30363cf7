/* As confined.c, but by the raw system call: a library that replaces libc's functions doesn't see it coming. */
#define CONFINES_ITSELF_RAW
#include "confined.c"
