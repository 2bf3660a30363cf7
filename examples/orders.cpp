// Orders go through a queue to workers that keep the books. lockwright's mutexes and condition variables replace the
// standard library's. LOCKWRIGHT_LOCK chooses the lock.
//
//   cargo build --release
//   g++ -std=c++17 -O2 -Iinclude examples/orders.cpp -o orders -Ltarget/release -llockwright_static -pthread
//   LOCKWRIGHT_LOCK=fifo ./orders           # works in a static program (-static), too
#include "lockwright.hpp"

#include <cstdio>
#include <deque>
#include <optional>
#include <thread>
#include <vector>

constexpr long CLERKS = 3, WORKERS = 4, ORDERS = 20000;
constexpr size_t ROOM = 64;
constexpr int HAND_IN = 1; // an epoch: handing in an order should take at most 300 us

// The queue: at most ROOM orders.
class Desk {
public:
    void hand_in(long order)
    {
        lockwright::epoch guard(HAND_IN, 300'000);
        std::unique_lock lock(mutex_);
        emptied_.wait(lock, [this] { return orders_.size() < ROOM; });
        orders_.push_back(order);
        filled_.notify_one();
    }

    std::optional<long> take()
    {
        std::unique_lock lock(mutex_);
        filled_.wait(lock, [this] { return !orders_.empty() || closed_; });
        if (orders_.empty())
            return std::nullopt;
        long order = orders_.front();
        orders_.pop_front();
        emptied_.notify_one();
        return order;
    }

    void close()
    {
        std::lock_guard lock(mutex_);
        closed_ = true;
        filled_.notify_all();
    }

private:
    lockwright::mutex mutex_;
    lockwright::condition_variable filled_, emptied_;
    std::deque<long> orders_;
    bool closed_ = false;
};

struct Books {
    lockwright::timed_mutex mutex;
    long orders = 0, sum = 0;
};

int main()
{
    Desk desk;
    Books books;
    std::vector<std::thread> clerks, workers;
    for (long i = 0; i < WORKERS; i++)
        workers.emplace_back([&] {
            while (auto order = desk.take()) {
                // A worker who can't get the books within ten seconds says so, and tries again.
                while (!books.mutex.try_lock_for(std::chrono::seconds(10)))
                    std::fprintf(stderr, "the books are taken\n");
                std::lock_guard lock(books.mutex, std::adopt_lock);
                books.orders++;
                books.sum += *order;
            }
        });
    for (long i = 0; i < CLERKS; i++)
        clerks.emplace_back([&, i] {
            for (long number = 0; number < ORDERS; number++)
                desk.hand_in(i * ORDERS + number);
        });
    for (auto &clerk : clerks)
        clerk.join();
    desk.close();
    for (auto &worker : workers)
        worker.join();
    const long all = CLERKS * ORDERS;
    std::printf("%ld orders, sum %ld\n", books.orders, books.sum);
    return books.orders == all && books.sum == all * (all - 1) / 2 ? 0 : 1;
}
