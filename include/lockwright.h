/* lockwright.h - epochs: pieces of a program's work that have a latency objective (SLO).
 *
 *     #include "lockwright.h"
 *
 *     lw_epoch_start(1);
 *     handle(request);               // may take any locks, any number of times
 *     lw_epoch_end(1, 200000);       // should have taken at most 200 us
 *
 * Under the locks `asl`, `slo` and `auto` (`lockwright run -- PROGRAM`), threads on little cores let others go first at
 * each lock, as long as epochs keep their SLO. Without lockwright these functions do nothing. You need not link with any
 * library.
 *
 * Needs GCC or Clang, and glibc. C99, or C++11 (with a guard: lockwright::epoch).
 * docs/epochs.md says what the numbers mean, what it costs, and what is not covered.
 */
#ifndef LOCKWRIGHT_H
#define LOCKWRIGHT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LW_WEAK __attribute__((weak, visibility("default")))

/* lockwright's own functions; null in a program that runs without it. Call the functions below instead. */
extern void lw_real_epoch_start(int id) __asm__("lw_epoch_start") LW_WEAK;
extern void lw_real_epoch_end(int id, uint64_t slo_ns) __asm__("lw_epoch_end") LW_WEAK;
extern void lw_real_epoch_percentile(int id, double percent)
    __asm__("lw_epoch_percentile") LW_WEAK;
extern void lw_real_epoch_name(int id, const char *name) __asm__("lw_epoch_name") LW_WEAK;
extern void lw_real_tag(uint64_t tag) __asm__("lw_tag") LW_WEAK;

#if defined(__PIC__) || defined(__PIE__)

#define LW_REAL(function, symbol) (function)

#else

/* In position-dependent code (-fno-pic) the linker decides the value of a weak symbol, so we look it up at run
   time. */
extern void *lw_real_dlsym(void *handle, const char *name) __asm__("dlsym") LW_WEAK;

static inline __attribute__((unused)) void *lw_look_up(void **known, const char *symbol)
{
    void *at = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (!at) {
        at = lw_real_dlsym ? lw_real_dlsym((void *)0, symbol) : (void *)0;
        if (!at)
            at = (void *)-1L;
        __atomic_store_n(known, at, __ATOMIC_RELAXED);
    }
    return at == (void *)-1L ? (void *)0 : at;
}

#define LW_REAL(function, symbol)                                                                   \
    (function ? function : (__extension__({                                                         \
        static void *lw_known;                                                                      \
        (__typeof__(&function))lw_look_up(&lw_known, symbol);                                       \
    })))

#endif

/* Begins the epoch `id` (0 to 1023) in the calling thread. Epochs may be nested 64 deep, even within themselves;
 * the innermost one counts. */
static inline __attribute__((unused)) void lw_epoch_start(int id) __asm__("lw_inline_epoch_start");
static inline void lw_epoch_start(int id)
{
    void (*real)(int) = LW_REAL(lw_real_epoch_start, "lw_epoch_start");
    if (real)
        real(id);
}

/* Ends the epoch; it should have taken at most `slo_ns` nanoseconds. Inner epochs that are still open end
 * with it, and are not counted against their SLO. Does nothing if this thread is not in that epoch. */
static inline __attribute__((unused)) void lw_epoch_end(int id, uint64_t slo_ns)
    __asm__("lw_inline_epoch_end");
static inline void lw_epoch_end(int id, uint64_t slo_ns)
{
    void (*real)(int, uint64_t) = LW_REAL(lw_real_epoch_end, "lw_epoch_end");
    if (real)
        real(id, slo_ns);
}

/* Sets the percentage of the epoch's executions that must keep the SLO, in all threads: 90 to 99.9. The default
   is 99. */
static inline __attribute__((unused)) void lw_epoch_percentile(int id, double percent)
    __asm__("lw_inline_epoch_percentile");
static inline void lw_epoch_percentile(int id, double percent)
{
    void (*real)(int, double) = LW_REAL(lw_real_epoch_percentile, "lw_epoch_percentile");
    if (real)
        real(id, percent);
}

/* Sets the epoch's name in reports; only the first 63 bytes count. */
static inline __attribute__((unused)) void lw_epoch_name(int id, const char *name)
    __asm__("lw_inline_epoch_name");
static inline void lw_epoch_name(int id, const char *name)
{
    void (*real)(int, const char *) = LW_REAL(lw_real_epoch_name, "lw_epoch_name");
    if (real)
        real(id, name);
}

/* Tags the calling thread for lock policies, which read the tag (lockwright_policy.h); 0: not any more. `lockwright policy tag` does the
   same from outside. 1024 threads can have tags; further ones get none. */
static inline __attribute__((unused)) void lw_tag(uint64_t tag) __asm__("lw_inline_tag");
static inline void lw_tag(uint64_t tag)
{
    void (*real)(uint64_t) = LW_REAL(lw_real_tag, "lw_tag");
    if (real)
        real(tag);
}

#ifdef __cplusplus
}

namespace lockwright {

/* An epoch that lasts as long as this object:
 *
 *     lockwright::epoch request(1, 200000);      // 200 us
 */
class epoch {
  public:
    epoch(int id, uint64_t slo_ns) noexcept : id_(id), slo_ns_(slo_ns) { lw_epoch_start(id_); }
    ~epoch() { lw_epoch_end(id_, slo_ns_); }
    epoch(const epoch &) = delete;
    epoch &operator=(const epoch &) = delete;

  private:
    int id_;
    uint64_t slo_ns_;
};

} // namespace lockwright
#endif

#endif
