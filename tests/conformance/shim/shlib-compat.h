/* No old symbol versions are tested. */
#define TEST_COMPAT(lib, introduced, obsoleted) 0
