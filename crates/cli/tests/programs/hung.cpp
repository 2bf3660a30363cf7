// As hung.c, with the standard library's locks.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <pthread.h>
#include <shared_mutex>
#include <thread>
#include <unistd.h>

struct Account {
    std::mutex guard;
    long balance = 0;
};

static Account savings, wages;
static std::shared_mutex rates;
static std::atomic<int> met;

static void meet(const char *name) {
    pthread_setname_np(pthread_self(), name);
    met++;
    while (met < 2) std::this_thread::yield();
}

struct Bank {
    __attribute__((noinline)) void transfer(const char *who, Account &from, Account &to) {
        std::lock_guard<std::mutex> first(from.guard);
        meet(who);
        std::scoped_lock second(to.guard);
        from.balance--;
        to.balance++;
    }
    __attribute__((noinline)) void close(std::thread &thread) {
        std::unique_lock<std::shared_mutex> all(rates);
        meet("closer");
        thread.join();
    }
    __attribute__((noinline)) void look() {
        meet("looker");
        std::shared_lock<std::shared_mutex> shared(rates);
        savings.balance++;
    }
};

int main(int count, char **arguments) {
    Bank bank;
    std::thread threads[2];
    if (count == 2 && !std::strcmp(arguments[1], "joined")) {
        threads[0] = std::thread([&] { bank.look(); });
        threads[1] = std::thread([&] { bank.close(threads[0]); });
    } else {
        threads[0] = std::thread([&] { bank.transfer("payer", savings, wages); });
        threads[1] = std::thread([&] { bank.transfer("payee", wages, savings); });
    }
    std::printf("%d\n", getpid());
    std::fflush(stdout);
    while (std::getchar() != EOF) {}
    _exit(0); // its threads never end
}
