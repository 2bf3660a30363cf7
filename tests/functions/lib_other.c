/* The same functions, and another result. */
#define OWN 20
#include "lib_plugin.c"
