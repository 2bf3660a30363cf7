// As hoard.c, with the standard library's locks.
#include <chrono>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

static std::mutex locks[20];
static volatile bool stop;
static volatile long sum;

struct Store {
    __attribute__((noinline)) void quick(int which) {
        std::lock_guard<std::mutex> guard(locks[which]);
        sum = sum + which;
    }
    __attribute__((noinline)) void hoard() {
        std::lock_guard<std::mutex> guard(locks[13]);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
};

int main() {
    Store store;
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed < 4; seed++)
        threads.emplace_back([&store, seed] {
            unsigned next = seed;
            while (!stop) {
                next = next * 1103515245 + 12345;
                store.quick((next >> 16) % 20);
                std::this_thread::sleep_for(std::chrono::microseconds(20));
            }
        });
    for (int i = 0; i < 200; i++) {
        store.hoard();
        std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    stop = true;
    for (auto &thread : threads) thread.join();
    std::puts("done");
}
