// A library that is linked without libc, so that its references have no version.

#define NAMES(F)                                                                                   \
    F(pthread_mutex_lock) F(pthread_mutex_trylock) F(pthread_mutex_unlock)                          \
    F(pthread_mutex_timedlock) F(pthread_mutex_clocklock) F(pthread_mutex_destroy)                  \
    F(pthread_rwlock_rdlock) F(pthread_rwlock_unlock) F(pthread_spin_lock) F(mtx_lock) F(cnd_wait)  \
    F(pthread_cond_wait) F(pthread_cond_signal) F(pthread_cond_clockwait)

#define DECLARE(name) extern void name(void);
#define ENTRY(name) {#name, name},

NAMES(DECLARE)

struct reference {
    const char *name;
    void (*address)(void);
};

extern struct reference bare_references[];
struct reference bare_references[] = {NAMES(ENTRY){0, 0}};
