/*
 * lockwright_sync.h: lockwright's locks for C programs that link them (liblockwright_static.a).
 *
 * For programs that the preloaded library can't reach: static ones, and those that don't use pthread's locks.
 * As under the preloaded library, LOCKWRIGHT_LOCK chooses the lock of mutexes when the program starts. If the
 * preloaded library is in the process, too, it serves these locks as well. Needs Linux on x86-64 or aarch64, with
 * glibc 2.34 or later.
 *
 *   cc program.c -Iinclude -Ltarget/release -llockwright_static -pthread
 *
 * Functions return 0 or an error number, as pthread's do. None but lw_execute sets errno, and none is a cancellation
 * point. Times are absolute, by CLOCK_MONOTONIC or CLOCK_REALTIME. Processes can't share these objects; threads of one can.
 */
#ifndef LOCKWRIGHT_SYNC_H
#define LOCKWRIGHT_SYNC_H

#include "lockwright.h" /* epochs: lw_epoch_start, lw_epoch_end */

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A mutex. It is not recursive, and the thread that locked it must unlock it. All zeroes is an unlocked mutex. */
typedef struct { uint64_t lw_private[5]; } lw_mutex_t;
#define LW_MUTEX_INIT {{0, 0, 0, 0, 0}}

/* A condition variable. All zeroes is one that nobody waits for. */
typedef struct { uint64_t lw_private[6]; } lw_cond_t;
#define LW_COND_INIT {{0, 0, 0, 0, 0, 0}}

/* A readers-writer lock. A writer that leaves prefers writers; readers join readers. */
typedef struct { uint64_t lw_private[7]; } lw_rwlock_t;
#define LW_RWLOCK_INIT {{0, 0, 0, 0, 0, 0, 1}}

/* A lock to which threads send their critical sections, as functions: under contention one thread runs those of all, so
   the data stays in its core's cache (docs/delegation.md). All zeroes is one that nobody has asked. */
typedef struct { uint64_t lw_private[16]; } lw_delegated_t;
#define LW_DELEGATED_INIT {{0}}

/* Runs fn(context) while no other section under `lock` runs: on this thread, or on another one. Then it returns, and sees
   what fn has written. fn may use any data, and other locks.
   - fn may see another thread's errno and thread-locals, and leaves its own errno there. It may use that thread's stack: each
     thread that calls lw_execute needs room for the largest fn.
   - fn must not wait for what another thread does after that thread's own section: that thread may be the one that runs fn.
   - fn must not fork, call pthread_exit, or leave by longjmp or by an exception.
   - A cancellation acts in fn if the thread did not have to ask others to run it; then the lock is free. Otherwise the
     cancellation waits until lw_execute has returned.
   EDEADLK: the calling thread runs such a section, or holds the lock's mutex; nothing ran. (Under contention that can't
   always be told; then it waits for itself.) */
int lw_execute(lw_delegated_t *lock, void (*fn)(void *context), void *context);
/* The mutex below: whoever holds it may use the data, and no section runs meanwhile. For what must run on its own thread,
   for a limited time (lw_mutex_timedlock), or for a condition variable (lw_cond_wait). */
lw_mutex_t *lw_delegated_mutex(lw_delegated_t *lock);
/* Who runs the sections of threads that have to wait. By default the lock finds out by itself whether a waiter that runs
   them all (a combiner) is faster. EINVAL: no such mode. */
enum { LW_DELEGATE_IF_FASTER, LW_DELEGATE_NEVER, LW_DELEGATE_ALWAYS };
int lw_delegated_mode(lw_delegated_t *lock, int mode);
/* Every lw_execute has returned, on every thread. That a section has run is not enough: the thread that ran it may still use
   the lock. */
void lw_delegated_destroy(lw_delegated_t *lock);

/* Runs section(context) while one of the program's own mutexes is locked, by this thread or by another one that holds that
   mutex and runs it. What `lockwright rewrite` writes calls it; LOCKWRIGHT_SECTIONS says who runs sections. The same holds for
   `section` as for lw_execute's fn, but that errno is the caller's. The caller must not hold the mutex. */
void lw_section(pthread_mutex_t *mutex, void (*section)(void *context), void *context);

/* Threads that run the sections of any number of locks, on one CPU. A server lives as long as the process. */
typedef struct lw_server lw_server_t;
/* Starts `threads` (1 to 8) threads, on CPU `cpu`; negative: on any. One of them runs sections; another one takes over if a
   section blocks it for 1 to 2 ms. They sleep while nobody asks. If there is no such CPU, they run on any. EINVAL: no threads,
   more than 8, or a CPU of 1024 or more. ENOMEM, EAGAIN. */
int lw_server_start(lw_server_t **server, unsigned threads, int cpu);
/* From now on this server runs the lock's sections, until lw_delegated_mode or another server. NULL: any server; the lock moves
   to another one when that has less to do. May be called at any time. ESRCH: there is no server. */
int lw_delegated_serve(lw_delegated_t *lock, lw_server_t *server);
/* Ends its threads: from now on whoever asks runs the section itself. */
void lw_server_stop(lw_server_t *server);

void lw_mutex_init(lw_mutex_t *mutex);
int lw_mutex_lock(lw_mutex_t *mutex);
/* EBUSY: it would have to wait for the mutex. */
int lw_mutex_trylock(lw_mutex_t *mutex);
/* ETIMEDOUT: still held by others when `clock` read `until`. EINVAL: no such clock, or a bad tv_nsec. */
int lw_mutex_timedlock(lw_mutex_t *mutex, clockid_t clock, const struct timespec *until);
int lw_mutex_unlock(lw_mutex_t *mutex);
/* EBUSY: it is held, or a thread waits for a condition variable with it. */
int lw_mutex_destroy(lw_mutex_t *mutex);

void lw_cond_init(lw_cond_t *cond);
/* Returns with the mutex held. Wake-ups may be spurious: check your condition in a loop. EINVAL: other threads wait
   for `cond` with another mutex; then this one was not unlocked. */
int lw_cond_wait(lw_cond_t *cond, lw_mutex_t *mutex);
/* ETIMEDOUT, with the mutex held: no signal before `clock` read `until`. */
int lw_cond_timedwait(lw_cond_t *cond, lw_mutex_t *mutex, clockid_t clock,
                      const struct timespec *until);
/* Wakes the thread that has waited longest. */
int lw_cond_signal(lw_cond_t *cond);
int lw_cond_broadcast(lw_cond_t *cond);
int lw_cond_destroy(lw_cond_t *cond);

void lw_rwlock_init(lw_rwlock_t *lock);
/* EDEADLK: the calling thread holds it for writing. EAGAIN: 2^27 readers. */
int lw_rwlock_rdlock(lw_rwlock_t *lock);
int lw_rwlock_tryrdlock(lw_rwlock_t *lock);
int lw_rwlock_timedrdlock(lw_rwlock_t *lock, clockid_t clock, const struct timespec *until);
int lw_rwlock_wrlock(lw_rwlock_t *lock);
int lw_rwlock_trywrlock(lw_rwlock_t *lock);
int lw_rwlock_timedwrlock(lw_rwlock_t *lock, clockid_t clock, const struct timespec *until);
int lw_rwlock_unlock(lw_rwlock_t *lock);

#ifdef __cplusplus
}

#if __cplusplus >= 201103L
#include <exception>
#include <memory>
#include <system_error>
#include <type_traits>
#include <utility>
#ifdef __GLIBCXX__
#include <cxxabi.h>
#endif

namespace lockwright {

namespace detail {

/* The sections that this thread runs, innermost first. */
struct running {
    const void *lock;
    const running *outer;
};

inline const running *&innermost()
{
    static thread_local const running *section = nullptr;
    return section;
}

/* Is it one argument, of type D? Then it is a copy or a move. */
template <class D, class... A> struct is_one : std::false_type {};
template <class D, class A> struct is_one<D, A> : std::is_same<D, typename std::decay<A>::type> {};

template <class R> struct outcome {
    std::unique_ptr<R> value;
    template <class F, class T> void of(F &section, T &data) { value.reset(new R(section(data))); }
    R get() { return std::move(*value); }
};

template <> struct outcome<void> {
    template <class F, class T> void of(F &section, T &data) { section(data); }
    void get() {}
};

} // namespace detail

/* Data to which threads send their critical sections:
 *
 *     lockwright::delegated<std::map<int, int>> table;
 *     int size = table.with([](std::map<int, int> &all) { all[1] = 2; return (int)all.size(); });
 *
 * The section may run on another thread that asks meanwhile. Its result is returned, and what it throws is thrown here.
 * A section that asks for the same data again gets std::system_error (resource_deadlock_would_occur). A result is not a
 * reference. */
template <class T> class delegated {
public:
    template <class... A,
              class = typename std::enable_if<std::is_constructible<T, A...>::value &&
                                              !detail::is_one<delegated, A...>::value>::type>
    explicit delegated(A &&...arguments) : value_(std::forward<A>(arguments)...)
    {
    }
    delegated(const delegated &) = delete;
    delegated &operator=(const delegated &) = delete;
    ~delegated() { lw_delegated_destroy(&lock_); }

    template <class F>
    auto with(F &&section) -> typename std::decay<decltype(section(std::declval<T &>()))>::type
    {
        using result = typename std::decay<decltype(section(std::declval<T &>()))>::type;
        for (const detail::running *at = detail::innermost(); at; at = at->outer)
            if (at->lock == &lock_)
                throw std::system_error(
                    std::make_error_code(std::errc::resource_deadlock_would_occur),
                    "a section of lockwright::delegated asks for the same data again");
        struct request {
            F &section;
            delegated &data;
            detail::outcome<result> outcome;
            std::exception_ptr thrown;
            /* The sections around this one are the caller's, whichever thread runs it. */
            const detail::running *outer;
        } request{section, *this, {}, nullptr, detail::innermost()};
        const int refused = lw_execute(
            &lock_,
            [](void *context) {
                auto &own = *static_cast<struct request *>(context);
                detail::running here{&own.data.lock_, own.outer};
                const detail::running *runners = detail::innermost();
                detail::innermost() = &here;
                try {
                    own.outcome.of(own.section, own.data.value_);
                }
#ifdef __GLIBCXX__
                catch (abi::__forced_unwind &) { /* the thread is cancelled, or exits */
                    detail::innermost() = runners;
                    throw;
                }
#endif
                catch (...) {
                    own.thrown = std::current_exception();
                }
                detail::innermost() = runners;
            },
            &request);
        if (refused)
            throw std::system_error(refused, std::generic_category(),
                                    "this thread holds the lockwright::delegated that it asks");
        if (request.thrown)
            std::rethrow_exception(request.thrown);
        return request.outcome.get();
    }

    /* The data, held by this thread: no section runs meanwhile. */
    class guard {
    public:
        explicit guard(delegated &data) : data_(&data) { lw_mutex_lock(mutex()); }
        guard(guard &&other) noexcept : data_(other.data_) { other.data_ = nullptr; }
        guard &operator=(guard &&) = delete;
        ~guard()
        {
            if (data_)
                lw_mutex_unlock(mutex());
        }
        T &operator*() const { return data_->value_; }
        T *operator->() const { return &data_->value_; }
        /* For lw_cond_wait, lw_cond_timedwait. */
        lw_mutex_t *mutex() const { return lw_delegated_mutex(&data_->lock_); }

    private:
        delegated *data_;
    };

    /* For what must run on this thread, or wait for a condition variable. */
    guard lock() { return guard(*this); }

    /* As lw_delegated_mode, lw_delegated_serve. */
    void mode(int mode) { lw_delegated_mode(&lock_, mode); }
    int serve(lw_server_t *server) { return lw_delegated_serve(&lock_, server); }

private:
    lw_delegated_t lock_ = LW_DELEGATED_INIT;
    T value_;
};

} // namespace lockwright
#endif
#endif

#endif
