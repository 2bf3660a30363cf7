/* A library whose calls go into another one. */
long base(long x);
long middle(long x) { return base(base(x)); }
