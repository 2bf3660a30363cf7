// Two threads. As the argument says, each polls a queue of its own, which is always empty: a mutex that nobody waits for is taken at every poll. Or both take
// one spin lock ("spins"); or each computes, and polls seldom ("computes").
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <unistd.h>

namespace {

struct Queue {
    std::mutex mutex;
    std::deque<int> items;
};

pthread_spinlock_t spin;
std::atomic<unsigned> total{0};

__attribute__((noinline)) bool poll(Queue &queue) {
    std::scoped_lock guard(queue.mutex); // polled
    return !queue.items.empty();
}

__attribute__((noinline)) void compute(int times) {
    unsigned sum = total.load(std::memory_order_relaxed);
    for (int i = 0; i < times; i++) {
        sum = sum * 1664525 + 1013904223;
        asm volatile("" : "+r"(sum));
    }
    total.store(sum, std::memory_order_relaxed);
}

__attribute__((noinline)) void spin_turn() {
    pthread_spin_lock(&spin);
    compute(200);
    pthread_spin_unlock(&spin);
}

void run(const char *what) {
    Queue own;
    for (;;) {
        if (!strcmp(what, "polls")) {
            if (poll(own)) compute(1);
        } else if (!strcmp(what, "spins")) {
            spin_turn();
        } else {
            compute(200000);
            poll(own);
        }
    }
}

} // namespace

int main(int, char **argv) {
    pthread_spin_init(&spin, 0);
    std::thread(run, argv[1]).detach();
    std::thread(run, argv[1]).detach();
    puts("ready");
    fflush(stdout);
    getchar();
    _exit(0); // the threads never end
}
