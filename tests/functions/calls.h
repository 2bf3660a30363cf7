/* What calls.c and lib_calls.c share. */
#pragma once

struct big {
    long a, b, c, d, e;
};
struct large {
    double of[20];
};
struct mixed {
    long a;
    double b;
};
struct doubles {
    double a, b;
};
struct longs {
    long a, b;
};
typedef double wide __attribute__((vector_size(32)));

long plain(long x);
/* 240 bytes of its arguments are on the stack. */
double many(int a, double b, long c, float d, int e, double f, int g, long h, int i, double j, double k,
            double l, double m, double n, double o, long p, struct big s, long double q, struct large t);
double sum(int n, ...);
long double extended(long double x);
_Complex long double two_extended(long double x);
struct big in_memory(long x);
struct mixed mixed(long x);
struct doubles doubles(double x);
struct longs longs(long x);
long recursive(long n);
long step(long n);
int error_kept(int next);
__attribute__((target("avx"))) wide wider(wide x);
