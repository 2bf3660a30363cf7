// What throws.cc and lib_throws.cc share.
#pragma once
#include <csetjmp>

struct Store {
    virtual long get(long key);
    virtual ~Store();
};
Store *open_store();
long thrower(long x);
long deep(long x);
long through(long (*call)(long), long x);
extern "C" void jumper(jmp_buf *back, int level);
extern "C" void sleeper(void);
