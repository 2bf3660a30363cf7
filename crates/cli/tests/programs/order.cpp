// Locks that C++ takes together, in whatever order they are named: std::scoped_lock takes the first and tries the others.

#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>

static std::mutex first, second;

static void forwards() { std::scoped_lock both(first, second); }
static void backwards() { std::scoped_lock both(second, first); }

struct Account {
    std::mutex mutex;
    long amount = 100;
};

// Each takes the payer's lock first: two that pay each other can wait forever.
static void pay(Account &from, Account &to) {
    std::lock_guard<std::mutex> payer(from.mutex);
    std::lock_guard<std::mutex> payee(to.mutex);
    from.amount--;
    to.amount++;
}

int main(int argc, char **) {
    if (argc == 1) {
        std::thread(forwards).join();
        std::thread(backwards).join();
    } else {
        auto one = std::make_unique<Account>(), other = std::make_unique<Account>();
        std::thread([&] { pay(*one, *other); }).join();
        std::thread([&] { pay(*other, *one); }).join();
    }
    std::puts("done");
}
