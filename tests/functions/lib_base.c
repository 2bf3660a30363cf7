/* What the plugins call. */
long base(long x) { return x + 1; }
long twice(long x) { return 2 * x; }
