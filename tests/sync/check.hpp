// Shared by the programs here: checks that go on after a failure, and threads.
#ifndef CHECK_HPP
#define CHECK_HPP

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

inline std::atomic<int> failures{0};

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::printf("FAILED line %d: %s\n", __LINE__, #condition);                             \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

inline int finish()
{
    std::printf("%s\n", failures ? "failed" : "done");
    return failures != 0;
}

// Runs `count` threads that call `body` with their number; returns when all have ended.
inline void together(int count, const std::function<void(int)> &body)
{
    std::vector<std::thread> threads;
    for (int i = 0; i < count; i++)
        threads.emplace_back(body, i);
    for (auto &thread : threads)
        thread.join();
}

#endif
