// A cache in C++: a look-up is an epoch, which ends with its guard, however the function is left, even by an exception.
//
//     c++ -O2 -pthread -I include examples/cache.cpp -o cache
//     lockwright run --lock asl --stats -- ./cache

#include "lockwright.h"

#include <iostream>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

constexpr int look_up = 1, refresh = 2;

class cache {
  public:
    const std::string &at(int key)
    {
        lockwright::epoch guard(look_up, 50'000); // 50 us
        std::lock_guard<std::mutex> held(mutex_);
        return values_.at(key); // may throw
    }

    void set(int key)
    {
        lockwright::epoch guard(refresh, 1'000'000); // 1 ms
        auto value = "value " + std::to_string(key);
        std::lock_guard<std::mutex> held(mutex_);
        values_.emplace(key, std::move(value));
    }

  private:
    std::mutex mutex_;
    std::unordered_map<int, std::string> values_;
};

} // namespace

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? std::stoi(argv[1]) : 20'000;
    cache cache;
    long missing[4] = {};
    std::vector<std::thread> threads;

    lw_epoch_name(look_up, "look-up");
    for (int key = 0; key < 100; key += 2)
        cache.set(key);
    for (long &misses : missing)
        threads.emplace_back([&cache, &misses, rounds] {
            for (int i = 0; i < rounds; i++)
                try {
                    if (cache.at(i % 100).empty())
                        std::abort();
                } catch (const std::out_of_range &) {
                    misses++;
                }
        });
    for (auto &thread : threads)
        thread.join();
    std::cout << missing[0] + missing[1] + missing[2] + missing[3] << " misses\n";
}
