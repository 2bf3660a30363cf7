// Epochs in a program that links our locks, over our locks and over pthread's. The test counts them: see tests/sync.rs.
#include "check.hpp"
#include "lockwright.hpp"

#include <mutex>

constexpr int REQUEST = 7, INNER = 9;
constexpr int THREADS = 3, ROUNDS = 2000;

static lockwright::mutex ours;
static std::mutex theirs;

int main()
{
    long count = 0, inner = 0;
    lw_epoch_name(REQUEST, "request");
    lw_epoch_percentile(REQUEST, 95);
    together(THREADS, [&](int) {
        for (int i = 0; i < ROUNDS; i++) {
            lockwright::epoch request(REQUEST, 250'000);
            {
                std::lock_guard guard(ours);
                count++;
            }
            if (i % 10 == 0) {
                lockwright::epoch within(INNER, 1'000'000);
                std::lock_guard guard(theirs);
                inner++;
            }
        }
    });
    CHECK(count == THREADS * ROUNDS);
    CHECK(inner == THREADS * ROUNDS / 10);
    return finish();
}
