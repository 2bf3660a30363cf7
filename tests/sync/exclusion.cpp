// Mutual exclusion under load, with all of the standard library's ways to hold a mutex.
#include "check.hpp"
#include "lockwright.hpp"

#include <shared_mutex>

static_assert(sizeof(lockwright::mutex) == 40);
static_assert(std::is_trivially_destructible_v<lockwright::mutex>);

constexpr int THREADS = 8;
constexpr int ROUNDS = 20000;

// Two numbers that are equal whenever nobody is changing them.
struct Account {
    long one = 0, two = 0;

    void add()
    {
        CHECK(one == two);
        one++;
        asm volatile("" ::: "memory");
        two++;
    }
};

static lockwright::mutex first;
static lockwright::timed_mutex second;
static lockwright::shared_mutex shared;
static Account by_first, by_second, by_both, by_shared;

int main()
{
    long tried[THREADS] = {};
    together(THREADS, [&](int me) {
        for (int i = 0; i < ROUNDS; i++) {
            switch ((i + me) % 6) {
            case 0: {
                std::lock_guard guard(first);
                by_first.add();
                break;
            }
            case 1: {
                std::unique_lock guard(second, std::try_to_lock);
                if (guard) {
                    by_second.add();
                    tried[me]++;
                }
                break;
            }
            case 2: {
                std::scoped_lock both(first, second);
                by_both.add();
                break;
            }
            case 3: {
                std::scoped_lock both(second, first);
                by_both.add();
                break;
            }
            case 4: {
                std::lock_guard guard(shared);
                by_shared.add();
                break;
            }
            default: {
                std::shared_lock guard(shared);
                CHECK(by_shared.one == by_shared.two);
            }
            }
        }
    });
    long expected[6] = {}, all_tried = 0;
    for (int me = 0; me < THREADS; me++) {
        for (int i = 0; i < ROUNDS; i++)
            expected[(i + me) % 6]++;
        all_tried += tried[me];
    }
    CHECK(by_first.one == expected[0]);
    CHECK(by_second.one == all_tried && all_tried > 0);
    CHECK(by_both.one == expected[2] + expected[3]);
    CHECK(by_shared.one == expected[4]);
    return finish();
}
