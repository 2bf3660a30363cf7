/* Functions of every shape that the calling convention knows. */
#define _GNU_SOURCE 1
#include "calls.h"
#include <errno.h>
#include <stdarg.h>

long plain(long x) { return x + 1; }

double many(int a, double b, long c, float d, int e, double f, int g, long h, int i, double j, double k,
            double l, double m, double n, double o, long p, struct big s, long double q, struct large t)
{
    double sum = 0;
    for (int at = 0; at < 20; at++)
        sum += t.of[at] * (at + 1);
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j + 11 * k + 12 * l +
           13 * m + 14 * n + 15 * o + 16 * p + s.a + 2 * s.b + 3 * s.c + 4 * s.d + 5 * s.e + (double)q + sum;
}

double sum(int n, ...)
{
    va_list list;
    double sum = 0;
    va_start(list, n);
    for (int i = 0; i < n; i++)
        sum += (i + 1) * (i % 2 ? va_arg(list, double) : (double)va_arg(list, long));
    va_end(list);
    return sum;
}

long double extended(long double x) { return x * 3 + 0.5L; }

_Complex long double two_extended(long double x)
{
    _Complex long double result;
    __real__ result = x;
    __imag__ result = x + 1;
    return result;
}

struct big in_memory(long x) { return (struct big){x, x + 1, x + 2, x + 3, x + 4}; }
struct mixed mixed(long x) { return (struct mixed){x, x * 2.0}; }
struct doubles doubles(double x) { return (struct doubles){x, x * 2}; }
struct longs longs(long x) { return (struct longs){x, x * 2}; }

/* By another function: the compiler would call itself without a slot. */
long step(long n) { return recursive(n - 1) + 1; }
long recursive(long n) { return n <= 1 ? 1 : step(n); }

int error_kept(int next)
{
    int before = errno;
    errno = next;
    return before;
}

__attribute__((target("avx"))) wide wider(wide x) { return x + x; }
