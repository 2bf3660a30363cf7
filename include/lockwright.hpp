// lockwright.hpp: lockwright's locks for C++17 programs, with the interface of the standard library's.
//
//   c++ program.cpp -Iinclude -Ltarget/release -llockwright_static -pthread
//
// lockwright::mutex, timed_mutex, shared_mutex and condition_variable replace std's; std::lock_guard, unique_lock,
// shared_lock and scoped_lock work with them. They are built on lockwright_sync.h. See also lockwright::epoch in
// lockwright.h: it tells the lock `asl` how long a piece of work may take.
#ifndef LOCKWRIGHT_HPP
#define LOCKWRIGHT_HPP

#if __cplusplus < 201703L
#error "lockwright.hpp needs C++17: -std=c++17"
#endif

#include "lockwright_sync.h"

#include <cerrno>
#include <chrono>
#include <condition_variable> // std::cv_status
#include <mutex>
#include <system_error>

namespace lockwright {

namespace detail {

// Longer times count as this: a clock's range may end before a program's.
constexpr std::chrono::hours century{24 * 36500};

// The time `left` from now, by CLOCK_MONOTONIC, rounded up to nanoseconds.
template <class Rep, class Period>
timespec after(const std::chrono::duration<Rep, Period> &left)
{
    using namespace std::chrono;
    using float_hours = duration<long double, std::ratio<3600>>;
    nanoseconds ns{0};
    if (float_hours(left) > float_hours(century))
        ns = century;
    else if (left > left.zero())
        ns = ceil<nanoseconds>(left);
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    ns += seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
    const auto whole = duration_cast<seconds>(ns);
    return {static_cast<time_t>(whole.count()), static_cast<long>((ns - whole).count())};
}

// Calls `attempt` with deadlines until it succeeds, or until `clock_time` has passed by its own clock; true if it
// succeeded.
template <class Clock, class Duration, class Attempt>
bool until(const std::chrono::time_point<Clock, Duration> &clock_time, Attempt attempt)
{
    for (;;) {
        const auto now = Clock::now();
        using left = decltype(clock_time - now);
        // Don't subtract if it has passed: time_point::min() - now would overflow.
        if (attempt(after(clock_time <= now ? left::zero() : clock_time - now)))
            return true;
        if (Clock::now() >= clock_time)
            return false;
    }
}

inline void check(int error, const char *what)
{
    if (error != 0)
        throw std::system_error(error, std::generic_category(), what);
}

} // namespace detail

// As std::mutex; 40 bytes, trivially destructible.
class mutex {
public:
    using native_handle_type = lw_mutex_t *;

    constexpr mutex() noexcept = default;
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;

    void lock() noexcept { lw_mutex_lock(&mutex_); }
    bool try_lock() noexcept { return lw_mutex_trylock(&mutex_) == 0; }
    void unlock() noexcept { lw_mutex_unlock(&mutex_); }
    native_handle_type native_handle() noexcept { return &mutex_; }

private:
    lw_mutex_t mutex_ = LW_MUTEX_INIT;
};

// As std::timed_mutex; 40 bytes.
class timed_mutex : public mutex {
public:
    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &time)
    {
        const timespec at = detail::after(time);
        return lw_mutex_timedlock(native_handle(), CLOCK_MONOTONIC, &at) == 0;
    }

    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time)
    {
        return detail::until(time, [this](const timespec &at) {
            return lw_mutex_timedlock(native_handle(), CLOCK_MONOTONIC, &at) == 0;
        });
    }
};

// As std::shared_mutex and std::shared_timed_mutex; 56 bytes. A writer that leaves prefers writers.
class shared_mutex {
public:
    using native_handle_type = lw_rwlock_t *;

    constexpr shared_mutex() noexcept = default;
    shared_mutex(const shared_mutex &) = delete;
    shared_mutex &operator=(const shared_mutex &) = delete;

    // Throws std::system_error with EDEADLK if the calling thread holds it for writing.
    void lock() { detail::check(lw_rwlock_wrlock(&lock_), "lockwright::shared_mutex::lock"); }
    bool try_lock() noexcept { return lw_rwlock_trywrlock(&lock_) == 0; }
    void unlock() noexcept { lw_rwlock_unlock(&lock_); }

    // As `lock`; throws with EAGAIN if it has 2^27 readers.
    void lock_shared()
    {
        detail::check(lw_rwlock_rdlock(&lock_), "lockwright::shared_mutex::lock_shared");
    }
    bool try_lock_shared() noexcept { return lw_rwlock_tryrdlock(&lock_) == 0; }
    void unlock_shared() noexcept { lw_rwlock_unlock(&lock_); }

    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &time)
    {
        const timespec at = detail::after(time);
        return lw_rwlock_timedwrlock(&lock_, CLOCK_MONOTONIC, &at) == 0;
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time)
    {
        return detail::until(time, [this](const timespec &at) {
            return lw_rwlock_timedwrlock(&lock_, CLOCK_MONOTONIC, &at) == 0;
        });
    }
    template <class Rep, class Period>
    bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &time)
    {
        const timespec at = detail::after(time);
        return lw_rwlock_timedrdlock(&lock_, CLOCK_MONOTONIC, &at) == 0;
    }
    template <class Clock, class Duration>
    bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &time)
    {
        return detail::until(time, [this](const timespec &at) {
            return lw_rwlock_timedrdlock(&lock_, CLOCK_MONOTONIC, &at) == 0;
        });
    }

    native_handle_type native_handle() noexcept { return &lock_; }

private:
    lw_rwlock_t lock_ = LW_RWLOCK_INIT;
};

// As std::condition_variable, for std::unique_lock of a lockwright::mutex or timed_mutex; 48 bytes. A
// notification belongs to the thread that has waited longest. The waits throw std::system_error with EINVAL if
// other threads wait with another mutex.
class condition_variable {
public:
    using native_handle_type = lw_cond_t *;

    constexpr condition_variable() noexcept = default;
    ~condition_variable() { lw_cond_destroy(&cond_); }
    condition_variable(const condition_variable &) = delete;
    condition_variable &operator=(const condition_variable &) = delete;

    void notify_one() noexcept { lw_cond_signal(&cond_); }
    void notify_all() noexcept { lw_cond_broadcast(&cond_); }

    template <class Mutex>
    void wait(std::unique_lock<Mutex> &lock)
    {
        detail::check(lw_cond_wait(&cond_, lock.mutex()->native_handle()), name);
    }

    template <class Mutex, class Predicate>
    void wait(std::unique_lock<Mutex> &lock, Predicate done)
    {
        while (!done())
            wait(lock);
    }

    template <class Mutex, class Rep, class Period>
    std::cv_status wait_for(std::unique_lock<Mutex> &lock,
                            const std::chrono::duration<Rep, Period> &time)
    {
        return wait_at(lock, detail::after(time));
    }

    template <class Mutex, class Rep, class Period, class Predicate>
    bool wait_for(std::unique_lock<Mutex> &lock, const std::chrono::duration<Rep, Period> &time,
                  Predicate done)
    {
        const timespec at = detail::after(time);
        while (!done()) {
            if (wait_at(lock, at) == std::cv_status::timeout)
                return done();
        }
        return true;
    }

    template <class Mutex, class Clock, class Duration>
    std::cv_status wait_until(std::unique_lock<Mutex> &lock,
                              const std::chrono::time_point<Clock, Duration> &time)
    {
        const bool woken = detail::until(time, [&](const timespec &at) {
            return wait_at(lock, at) == std::cv_status::no_timeout;
        });
        return woken ? std::cv_status::no_timeout : std::cv_status::timeout;
    }

    template <class Mutex, class Clock, class Duration, class Predicate>
    bool wait_until(std::unique_lock<Mutex> &lock,
                    const std::chrono::time_point<Clock, Duration> &time, Predicate done)
    {
        while (!done()) {
            if (wait_until(lock, time) == std::cv_status::timeout)
                return done();
        }
        return true;
    }

    native_handle_type native_handle() noexcept { return &cond_; }

private:
    static constexpr const char *name = "lockwright::condition_variable::wait";

    template <class Mutex>
    std::cv_status wait_at(std::unique_lock<Mutex> &lock, const timespec &at)
    {
        const int error =
            lw_cond_timedwait(&cond_, lock.mutex()->native_handle(), CLOCK_MONOTONIC, &at);
        if (error == ETIMEDOUT)
            return std::cv_status::timeout;
        detail::check(error, name);
        return std::cv_status::no_timeout;
    }

    lw_cond_t cond_ = LW_COND_INIT;
};

} // namespace lockwright

#endif
