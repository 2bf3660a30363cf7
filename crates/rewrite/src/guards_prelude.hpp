/* lockwright: runs a section where its data is. Without liblockwright, here, under the mutex. */
#ifndef LW_SECTIONS
#define LW_SECTIONS
#include <pthread.h>
#include <exception>
#include <memory>
#include <new>
#include <utility>
#if defined(__GLIBCXX__)
#include <cxxabi.h>
#endif
#if __cplusplus >= 201703L
#include <optional>
#endif
extern "C" void lw_section(pthread_mutex_t *, void (*)(void *), void *) __attribute__((weak));
namespace lw_sections {
struct Guard {
    explicit Guard(pthread_mutex_t *it) : mutex(it) { pthread_mutex_lock(mutex); }
    ~Guard() { pthread_mutex_unlock(mutex); }
    Guard(const Guard &) = delete;
    Guard &operator=(const Guard &) = delete;
    pthread_mutex_t *mutex;
};
template <class Result> struct Answer {
    union { Result value; };
    bool is_there = false;
    Answer() {}
    ~Answer() { if (is_there) value.~Result(); }
    Answer(const Answer &) = delete;
    Answer &operator=(const Answer &) = delete;
    template <class Section> void run(Section &section)
    {
        ::new (const_cast<void *>(static_cast<const void *>(std::addressof(value)))) Result(section());
        is_there = true;
    }
    Result take() { return std::move(value); }
};
template <class Result> struct Answer<Result &> {
    Result *value = nullptr;
    template <class Section> void run(Section &section) { value = std::addressof(section()); }
    Result &take() { return *value; }
};
template <> struct Answer<void> {
    template <class Section> void run(Section &section) { section(); }
    void take() {}
};
template <class Section, class Result> struct Request {
    explicit Request(Section &it) : section(it) {}
    Section &section;
    Answer<Result> answer;
#if defined(__cpp_exceptions)
    std::exception_ptr thrown;
#endif
    static void call(void *context)
    {
        Request &it = *static_cast<Request *>(context);
#if defined(__cpp_exceptions)
        try { it.answer.run(it.section); }
#if defined(__GLIBCXX__)
        catch (abi::__forced_unwind &) { throw; }
#endif
        catch (...) { it.thrown = std::current_exception(); }
#else
        it.answer.run(it.section);
#endif
    }
};
template <class Section> auto run(pthread_mutex_t *mutex, Section section) -> decltype(section())
{
    if (!lw_section) {
        Guard guard(mutex);
        return section();
    }
    Request<Section, decltype(section())> request(section);
    lw_section(mutex, request.call, &request);
#if defined(__cpp_exceptions)
    if (request.thrown) std::rethrow_exception(request.thrown);
#endif
    return request.answer.take();
}
}  // namespace lw_sections
#endif

