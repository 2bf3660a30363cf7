/* Opened later; brings a function of its own that another plugin has too, and tells the program of itself. */
#ifndef OWN
#define OWN 10
#endif
long base(long x);
long own(long x) { return x + OWN; }
static long entry(long x) { return own(base(x)); }
long run(long x) { return entry(x); }
long (*plugin_entry)(long) = entry;
const struct {
    const char *name;
    long (*call)(long);
} plugin_table[] = {{"base", base}, {"own", own}};
