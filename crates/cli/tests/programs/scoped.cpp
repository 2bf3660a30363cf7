// Rows behind locks in the heap that a class of the program's own wraps, as storage engines do. `Table::get` and `Table::flush` share each
// lock; `Log::add` has one of its own. It says `ready` once its threads run, and ends with its input.
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

static volatile bool stop;
static volatile long sum;

static void nap(int us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }

namespace port {
struct Mutex {
    __attribute__((noinline)) void Lock() { inner.lock(); }
    __attribute__((noinline)) void Unlock() { inner.unlock(); }
    void lock() { Lock(); }
    void unlock() { Unlock(); }
    std::mutex inner;
};
}  // namespace port

struct Table {
    __attribute__((noinline)) void get() {
        std::scoped_lock guard(*rows);
        sum = sum + 1;
    }
    __attribute__((noinline)) void flush() {
        std::scoped_lock guard(*rows);
        nap(2000);  // so that others wait, on any machine
    }
    std::unique_ptr<port::Mutex> rows = std::make_unique<port::Mutex>();
};

struct Log {
    __attribute__((noinline)) void add() {
        std::scoped_lock guard(*lines);
        nap(1000);
    }
    std::unique_ptr<port::Mutex> lines = std::make_unique<port::Mutex>();
};

int main() {
    Table table;
    Log log;
    std::vector<std::thread> threads;
    auto again = [&](auto what) {
        threads.emplace_back([what] {
            while (!stop) {
                what();
                nap(300);
            }
        });
    };
    again([&] { table.flush(); });
    for (int i = 0; i < 2; i++) again([&] { table.get(); });
    for (int i = 0; i < 2; i++) again([&] { log.add(); });
    std::puts("ready");
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
    stop = true;
    for (auto &thread : threads) thread.join();
}
