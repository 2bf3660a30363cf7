// converted: Table::put Table::get Table::text Table::remember put_all Table::reference first_free scoped twice_left run_it throws nested_return Counter::Counter only_here_a_lambda maximum conditional
// converted: Kept::add in_another
// refused: waits: waits for a condition variable
// refused: lets_go: its guard, 'guard', is used inside
// refused: by_a_rule: locks by a rule of its own, or several mutexes
// refused: recursive: a mutex of another kind (std::lock_guard<std::recursive_mutex>)
// refused: who: asks which thread it is (std::this_thread::get_id)
// refused: who_asks: a callee asks which thread it is: is_main > std::this_thread::get_id
// refused: callee_of_thread: a callee uses its thread's own data: next_of_thread > thread_local of_thread
// refused: bound: a lambda can't see 'left', a structured binding
// refused: hidden: is left inside of a macro
// refused: empty: empty: it waits for others, and does nothing
// refused: jumps: leaves by goto
// refused: returned: returns a variable of its function, which would be copied
// refused: maybe: returns a reference, or a value whose type isn't written
// refused: named: names its function (__func__)
// refused: wrapped: 'wrapper' is no std::mutex itself
// refused: by_macro: its guard, 'guard', is used inside
// refused: another: uses another guard, 'outer'
// refused: by_hand: locks or unlocks a mutex by hand
// converted: Local::plus pointer ends own_guard Ended::Ended
//
// Sections of C++'s guards. Threads run them, and the program checks what they did.

#include <atomic>
#include <cstdio>
#include <condition_variable>
#include <map>
#include <memory>
#include <optional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#define LEAVE_IF(condition, value) \
    if (condition)                 \
    return value

namespace {

constexpr int ROUNDS = 500;
const std::thread::id main_thread = std::this_thread::get_id();
std::mutex m;
std::recursive_mutex again;
std::condition_variable ready;
bool is_ready = true;
long total;
thread_local int of_thread;
thread_local int *own = &of_thread;

class Table {
public:
    /* Puts it there. */
    void put(int key, long value)
    {
        const std::lock_guard<std::mutex> guard(m_);
        if (key < 0)
            return;
        values_[key] += value; // a comment
    }

    long get(int key) const
    {
        std::lock_guard<std::mutex> guard{m_};
        auto found = values_.find(key);
        if (found == values_.end())
            return 0;
        return found->second;
    }

    std::string text(int key)
    {
        std::unique_lock<std::mutex> guard(m_);
        return "value " + std::to_string(values_[key]);
    }

    std::unique_ptr<long> remember(int key)
    {
        std::lock_guard guard(m_);
        return std::make_unique<long>(values_[key]);
    }

    const long &reference(int key)
    {
        std::lock_guard<std::mutex> guard(m_);
        return values_[key];
    }

private:
    mutable std::mutex m_;
    std::map<int, long> values_;
};

struct Counter {
    explicit Counter(long by)
    {
        std::lock_guard<std::mutex> guard(m);
        total += by;
    }
};

template <class Value> class Kept {
public:
    Value add(Value by)
    {
        std::lock_guard<std::mutex> guard(m_);
        value_ += by;
        return value_;
    }

private:
    std::mutex m_;
    Value value_{};
};

void put_all(Table &table, const std::vector<int> &keys)
{
    for (int key : keys) {
        {
            std::lock_guard<std::mutex> guard(m);
            if (key == 2)
                continue;
            if (key == 4)
                break;
            ++total;
        }
        table.put(key, 1);
    }
}

int first_free(const std::vector<int> &used, int limit)
{
    for (int at = 0; at < limit; ++at) {
        std::lock_guard<std::mutex> guard(m);
        bool is_used = false;
        for (int it : used) {
            if (it == at) {
                is_used = true;
                break;
            }
        }
        if (!is_used)
            return at;
    }
    return -1;
}

long scoped(long by)
{
    long seen;
    { std::scoped_lock guard(m); total += by; seen = total; }
    return seen;
}

bool twice_left(bool early)
{
    if (early) {
        std::lock_guard<std::mutex> guard(m);
        if (total < 0)
            return false;
        return true;
    }
    return !early;
}

void run_it(int times)
{
    while (times > 0) {
        std::lock_guard<std::mutex> guard(m);
        if (--times == 1)
            return;
        switch (times) {
        case 2:
            break;
        default:
            ++total;
        }
    }
}

void throws(int value)
{
    std::lock_guard<std::mutex> guard(m);
    if (value % 2 == 1)
        throw std::runtime_error("odd " + std::to_string(value));
    ++total;
}

long nested_return(long value)
{
    if (value > 0) {
        std::lock_guard<std::mutex> guard(m);
        return [&] { return total > 0 ? value : -value; }();
    }
    return 0;
}

template <class Value> Value maximum(const Value &left, const Value &right)
{
    std::lock_guard<std::mutex> guard(m);
    return left < right ? right : left;
}

auto conditional(bool yes)
{
    std::lock_guard<std::mutex> guard(m);
    if (yes)
        return total;
    return 0L;
}

long only_here_a_lambda(long by)
{
    auto add = [by] {
        std::lock_guard<std::mutex> guard(m);
        total += by;
        return total;
    };
    return add();
}

void waits()
{
    std::unique_lock<std::mutex> guard(m);
    ready.wait(guard, [] { return is_ready; });
}

void lets_go()
{
    std::unique_lock<std::mutex> guard(m);
    ++total;
    guard.unlock();
}

void by_a_rule()
{
    std::unique_lock<std::mutex> guard(m, std::try_to_lock);
    if (guard.owns_lock())
        ++total;
}

void recursive()
{
    std::lock_guard<std::recursive_mutex> guard(again);
    ++total;
}

bool who()
{
    std::lock_guard<std::mutex> guard(m);
    return std::this_thread::get_id() != std::thread::id();
}

bool is_main() { return std::this_thread::get_id() == main_thread; }

bool who_asks()
{
    std::lock_guard<std::mutex> guard(m);
    return total < 0 || is_main();
}

int next_of_thread() { return ++of_thread; }

int callee_of_thread()
{
    std::lock_guard<std::mutex> guard(m);
    return next_of_thread();
}

long bound(const std::pair<long, long> &both)
{
    const auto &[left, right] = both;
    std::lock_guard<std::mutex> guard(m);
    return left + right;
}

long hidden(int times)
{
    for (int at = 0; at < times; ++at) {
        std::lock_guard<std::mutex> guard(m);
        LEAVE_IF(at == 3, at);
        ++total;
    }
    return -1;
}

void empty()
{
    std::lock_guard<std::mutex> guard(m);
}

void jumps(bool yes)
{
    {
        std::lock_guard<std::mutex> guard(m);
        if (yes)
            goto out;
        ++total;
    }
out:
    return;
}

void in_another()
{
    std::lock_guard<std::mutex> guard(m);
    {
        static std::mutex inner;
        std::lock_guard<std::mutex> second(inner);
        ++total;
    }
}

std::vector<long> returned()
{
    std::vector<long> all{1, 2, 3};
    std::lock_guard<std::mutex> guard(m);
    all.push_back(total);
    return all;
}

using Maybe = std::optional<int>;

Maybe maybe(bool is_none)
{
    int value = 7;
    if (value > 0) {
        std::lock_guard<std::mutex> guard(m);
        if (is_none)
            return std::nullopt;
        ++value;
    }
    return value;
}

bool named()
{
    std::lock_guard<std::mutex> guard(m);
    return std::string(__func__) == "named";
}

struct Wrapper {
    std::mutex inside;
    operator std::mutex &() { return inside; }
} wrapper;

long wrapped()
{
    std::lock_guard<std::mutex> guard(wrapper);
    return 1;
}

#define LET_GO() guard.unlock()

void by_macro()
{
    std::unique_lock<std::mutex> guard(m);
    LET_GO();
}

bool outer_of_local()
{
    struct Local {
        long plus(long by)
        {
            std::lock_guard<std::mutex> guard(m);
            return by + 1;
        }
    };
    return Local().plus(9007199254740992) == 9007199254740993;
}

const int *pointer(const int *from, bool none)
{
    if (from) {
        std::lock_guard<std::mutex> guard(m);
        if (none)
            return 0;
        ++from;
    }
    return from;
}

std::atomic<int> failures;

void check(bool is_so, const char *what)
{
    if (!is_so) {
        std::fprintf(stderr, "not so: %s\n", what);
        ++failures;
    }
}

void another(std::unique_lock<std::mutex> &outer)
{
    std::lock_guard<std::mutex> guard(m);
    outer.unlock();
}

void by_hand()
{
    static std::mutex second;
    second.lock();
    std::lock_guard<std::mutex> guard(m);
    second.unlock();
}

void ends(bool early)
{
    if (early) {
        std::lock_guard<std::mutex> guard(m);
        if (total < 0)
            return;
        return;
    }
    check(!early, "ends");
}

struct Ended {
    explicit Ended(bool early)
    {
        if (early) {
            std::lock_guard<std::mutex> guard(m);
            if (total > 0)
                return;
            return;
        }
        is_late = true;
    }
    bool is_late = false;
};

// The configuration names this one.
struct OwnGuard {
    explicit OwnGuard(std::mutex *of) : mutex(of) { mutex->lock(); }
    ~OwnGuard() { mutex->unlock(); }
    OwnGuard(const OwnGuard &) = delete;
    OwnGuard &operator=(const OwnGuard &) = delete;
    std::mutex *mutex;
};

long own_guard(long by)
{
    OwnGuard guard(&m);
    return total >= 0 ? by : -by;
}

void work(Table &table, Kept<long> &kept, int number)
{
    for (int round = 0; round < ROUNDS; ++round) {
        table.put(number, 1);
        table.put(-1, 1);
        check(table.get(number) == round + 1, "get");
        check(table.text(number) == "value " + std::to_string(round + 1), "text");
        check(*table.remember(number) == round + 1, "remember");
        check(table.reference(number) == round + 1, "reference");
        kept.add(2);
        check(first_free({0, 1, 3}, 8) == 2, "first_free");
        check(first_free({0, 1}, 2) == -1, "first_free: none");
        check(scoped(1) > 0, "scoped");
        check(twice_left(true) && twice_left(false), "twice_left");
        run_it(4);
        bool has_thrown = false;
        try {
            throws(round);
        } catch (const std::runtime_error &error) {
            has_thrown = error.what() == "odd " + std::to_string(round);
        }
        check(has_thrown == (round % 2 == 1), "throws");
        check(nested_return(7) == 7 && nested_return(-7) == 0, "nested_return");
        check(maximum(std::string("a"), std::string("b")) == "b", "maximum");
        check(conditional(false) == 0 && conditional(true) > 0, "conditional");
        check(only_here_a_lambda(1) > 0, "only_here_a_lambda");
        check(who() && !who_asks(), "who");
        check(callee_of_thread() == round + 1 && own == &of_thread, "callee_of_thread");
        check(bound({1, 2}) == 3 && hidden(5) == 3, "bound, hidden");
        waits();
        lets_go();
        jumps(round % 2 == 0);
        empty();
        in_another();
        Counter counter(1);
    }
}

} // namespace

int main()
{
    Table table, other;
    Kept<long> kept;
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; ++number)
        threads.emplace_back([&, number] { work(table, kept, number); });
    for (auto &thread : threads)
        thread.join();
    put_all(other, {1, 2, 3, 4, 5});
    by_a_rule();
    recursive();
    by_macro();
    std::mutex second;
    auto outer = std::make_unique<std::unique_lock<std::mutex>>(second);
    another(*outer);
    by_hand();
    ends(true);
    ends(false);
    check(own_guard(3) == 3, "own_guard");
    check(!Ended(true).is_late && Ended(false).is_late, "Ended");
    const int numbers[2] = {1, 2};
    check(returned().size() == 4 && maybe(false) == 8 && !maybe(true), "returned, maybe");
    check(named() && wrapped() == 1 && outer_of_local(), "named, wrapped, outer_of_local");
    check(!pointer(numbers, true) && *pointer(numbers, false) == 2, "pointer");
    check(other.get(1) == 1 && other.get(2) == 0 && other.get(3) == 1 && other.get(5) == 0, "put_all");
    check(kept.add(0) == 4 * ROUNDS * 2, "kept");
    // scoped, run_it, throws, only_here_a_lambda, hidden, lets_go, jumps, in_another, Counter
    const long rounds = 4 * ROUNDS;
    check(total == rounds + rounds + rounds / 2 + rounds + 3 * rounds + rounds + rounds / 2 + rounds + rounds + 4, "total");
    std::puts(failures == 0 ? "ok" : "wrong");
    return failures == 0 ? 0 : 1;
}
