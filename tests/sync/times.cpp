// Timed locks and waits: none ends early, each ends, and each that can succeed does.
#include "check.hpp"
#include "lockwright.hpp"

#include <shared_mutex>

using Steady = std::chrono::steady_clock;
using System = std::chrono::system_clock;

static lockwright::timed_mutex mutex;
static lockwright::shared_mutex shared;
static lockwright::condition_variable changed;

// Runs `body`, which must take at least `least` by `Clock`.
template <class Clock = Steady, class Body> void takes(std::chrono::milliseconds least, Body body)
{
    const auto start = Clock::now();
    body();
    CHECK(Clock::now() - start >= least);
}

static void locks_that_are_held()
{
    std::lock_guard held(mutex);
    std::lock_guard also_held(shared);
    std::thread([] {
        CHECK(!mutex.try_lock());
        CHECK(!mutex.try_lock_for(0ms));
        CHECK(!mutex.try_lock_for(-1h));
        CHECK(!mutex.try_lock_until(System::time_point::min()));
        CHECK(!shared.try_lock_shared_until(Steady::time_point::min()));
        takes(30ms, [] { CHECK(!mutex.try_lock_for(30ms)); });
        takes(30ms, [] { CHECK(!mutex.try_lock_until(Steady::now() + 30ms)); });
        takes<System>(30ms, [] { CHECK(!mutex.try_lock_until(System::now() + 30ms)); });
        takes(30ms, [] { CHECK(!shared.try_lock_for(30ms)); });
        takes(30ms, [] { CHECK(!shared.try_lock_shared_for(30ms)); });
        CHECK(!shared.try_lock() && !shared.try_lock_shared());
    }).join();
    bool refused = false;
    try {
        shared.lock_shared();
    } catch (const std::system_error &error) {
        refused = error.code().value() == EDEADLK;
    }
    CHECK(refused);
}

static void locks_that_come_free()
{
    mutex.lock();
    std::thread waiter([] {
        CHECK(mutex.try_lock_for(std::chrono::hours(1000000))); // as good as forever
        mutex.unlock();
    });
    std::this_thread::sleep_for(20ms);
    mutex.unlock();
    waiter.join();
    // Many timed and untimed waiters together: each gets its turn.
    long count = 0;
    together(6, [&](int me) {
        for (int i = 0; i < 2000; i++) {
            if (me % 2)
                CHECK(mutex.try_lock_for(60s));
            else
                mutex.lock();
            count++;
            mutex.unlock();
        }
    });
    CHECK(count == 12000);
    CHECK(shared.try_lock_shared_for(1s));
    CHECK(shared.try_lock_shared_until(System::now() + 1s));
    shared.unlock_shared();
    shared.unlock_shared();
}

static void waits()
{
    std::unique_lock lock(mutex);
    takes(30ms, [&] { CHECK(!changed.wait_for(lock, 30ms, [] { return false; })); });
    takes(30ms, [&] {
        CHECK(!changed.wait_until(lock, Steady::now() + 30ms, [] { return false; }));
    });
    takes<System>(30ms, [&] {
        CHECK(!changed.wait_until(lock, System::now() + 30ms, [] { return false; }));
    });
    CHECK(changed.wait_for(lock, 0ms) == std::cv_status::timeout);
    CHECK(changed.wait_until(lock, Steady::time_point::min()) == std::cv_status::timeout);
    CHECK(lock.owns_lock());
    bool ready = false;
    std::thread notifier([&] {
        std::this_thread::sleep_for(20ms);
        std::lock_guard guard(mutex);
        ready = true;
        changed.notify_one();
    });
    CHECK(changed.wait_for(lock, 60s, [&] { return ready; }));
    lock.unlock();
    notifier.join();
}

static void a_second_mutex_is_refused()
{
    lockwright::mutex other;
    std::atomic<bool> waiting{false};
    bool ready = false;
    std::thread waiter([&] {
        std::unique_lock lock(mutex);
        waiting = true;
        changed.wait(lock, [&] { return ready; });
    });
    while (!waiting)
        std::this_thread::yield();
    {
        std::lock_guard guard(mutex); // once we have the mutex, the other thread waits
        ready = true;
    }
    std::unique_lock lock(other);
    bool refused = false;
    try {
        changed.wait_for(lock, 60s);
    } catch (const std::system_error &error) {
        refused = error.code().value() == EINVAL && lock.owns_lock();
    }
    CHECK(refused);
    changed.notify_all();
    waiter.join();
}

int main()
{
    locks_that_are_held();
    locks_that_come_free();
    waits();
    a_second_mutex_is_refused();
    return finish();
}
