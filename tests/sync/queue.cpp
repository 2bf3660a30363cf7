// A bounded queue: nothing is lost or taken twice, each producer's order is kept, and everybody is woken at the end.
// Also a barrier made with notify_all.
#include "check.hpp"
#include "lockwright.hpp"

#include <deque>
#include <utility>

constexpr int PRODUCERS = 3, CONSUMERS = 3, ITEMS = 8000;
constexpr size_t ROOM = 16;

static lockwright::mutex mutex;
static lockwright::condition_variable filled, emptied;
static std::deque<std::pair<int, int>> queue;
static int producing = PRODUCERS;

static void produce(int me)
{
    for (int i = 0; i < ITEMS; i++) {
        std::unique_lock lock(mutex);
        emptied.wait(lock, [] { return queue.size() < ROOM; });
        queue.emplace_back(me, i);
        if (i % 2 == 0)
            lock.unlock(); // so that both ways to notify are tested: with the mutex held and without
        filled.notify_one();
    }
    std::lock_guard lock(mutex);
    if (--producing == 0)
        filled.notify_all();
}

static long consume()
{
    int last[PRODUCERS] = {-1, -1, -1};
    long count = 0;
    for (;;) {
        std::unique_lock lock(mutex);
        filled.wait(lock, [] { return !queue.empty() || producing == 0; });
        if (queue.empty())
            return count;
        auto [producer, number] = queue.front();
        queue.pop_front();
        emptied.notify_one();
        lock.unlock();
        CHECK(number > last[producer]);
        last[producer] = number;
        count++;
    }
}

static void barrier()
{
    constexpr int THREADS = 6, ROUNDS = 300;
    lockwright::condition_variable changed;
    int arrived = 0, round = 0;
    std::atomic<int> here[ROUNDS] = {};
    together(THREADS, [&](int) {
        for (int i = 0; i < ROUNDS; i++) {
            here[i]++;
            std::unique_lock lock(mutex);
            if (++arrived == THREADS) {
                arrived = 0;
                round++;
                changed.notify_all();
            } else {
                changed.wait(lock, [&] { return round > i; });
            }
            CHECK(here[i] == THREADS);
        }
    });
    CHECK(round == ROUNDS);
}

int main()
{
    std::atomic<long> taken{0};
    together(PRODUCERS + CONSUMERS, [&](int me) {
        if (me < PRODUCERS)
            produce(me);
        else
            taken += consume();
    });
    CHECK(taken == long(PRODUCERS) * ITEMS);
    CHECK(queue.empty());
    barrier();
    return finish();
}
