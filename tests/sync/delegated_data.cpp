// lockwright::delegated: results, exceptions, nesting.
#include <lockwright_sync.h>

#include <cstdio>
#include <memory>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static int failed;

static void expect(bool holds, const char *what)
{
    if (!holds) {
        std::fprintf(stderr, "not so: %s\n", what);
        failed = 1;
    }
}

int main()
{
    lockwright::delegated<std::vector<int>> all;
    std::vector<std::thread> threads;
    for (int number = 0; number < 8; number++)
        threads.emplace_back([&all, number] {
            for (int round = 0; round < 2000; round++) {
                bool thrown = false;
                try {
                    all.with([&](std::vector<int> &v) {
                        v.push_back(number);
                        if (round % 10 == number)
                            throw std::runtime_error(std::to_string(number));
                    });
                } catch (const std::runtime_error &why) {
                    thrown = why.what() == std::to_string(number);
                }
                if (thrown != (round % 10 == number))
                    expect(false, "an exception goes to its caller");
            }
        });
    for (auto &thread : threads)
        thread.join();
    expect(all.with([](std::vector<int> &v) { return v.size(); }) == 16000, "each section ran once");

    lockwright::delegated<std::string> name("abc");
    auto moved = name.with([](std::string &s) { return std::unique_ptr<int>(new int((int)s.size())); });
    expect(*moved == 3, "a result is moved");
    expect(all.with([&](std::vector<int> &) { return name.with([](std::string &s) { return s; }); }) == "abc",
           "a section asks for other data");
    bool refused = false;
    try {
        name.with([&](std::string &) { name.with([](std::string &) {}); });
    } catch (const std::system_error &why) {
        refused = why.code() == std::errc::resource_deadlock_would_occur;
    }
    expect(refused, "a section that asks for its own data is refused");
    name.with([](std::string &s) { s += "d"; });
    expect(name.with([](std::string &s) { return s; }) == "abcd", "it goes on");
    std::thread([&] { name.with([](std::string &s) { s += "e"; pthread_exit(nullptr); }); }).join();
    expect(name.with([](std::string &s) { return s; }) == "abcde", "it goes on after a section has ended its thread");
    if (!failed)
        std::puts("ok");
    return failed;
}
