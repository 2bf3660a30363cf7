// What the database drivers share: threads that run operations for a while, latencies by the CPU that the
// thread is pinned to, epochs if the process has them, and one JSON object on standard output.
//
// Exit codes: 0 fine; 1 the database gave a wrong answer or failed during the run; 2 it can't be opened, or
// the flags are wrong.
#pragma once

#include <gnu/libc-version.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockwright.h"

namespace driver {

enum { OPERATION = 1 };  // the one epoch: all operations share it

struct Options {
  double seconds = 1.0, warmup = 0.0;
  uint64_t threads = 2, seed = 1, size = 100000, slo_ns = 0, slots = 1;
  bool pin = false, annotated = false, marks = false;
};

[[noreturn]] inline void wrong(const std::string &what) {
  std::fprintf(stderr, "error: wrong answer: %s\n", what.c_str());
  std::_Exit(1);
}

[[noreturn]] inline void refuse(const std::string &what) {
  std::fprintf(stderr, "error: %s\n", what.c_str());
  std::_Exit(2);
}

// splitmix64: picks keys, and derives values from their keys so that answers can be checked.
inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class Random {
 public:
  Random(uint64_t seed, uint64_t thread) : state_(mix(seed) ^ mix(~thread)) {}
  // A number in 0..bound.
  uint64_t below(uint64_t bound) {
    state_ += 0x9e3779b97f4a7c15u;
    return (uint64_t)(((unsigned __int128)mix(state_) * bound) >> 64);
  }

 private:
  uint64_t state_;
};

// Counts in 64 steps for each power of two, so each step is 1.6 % wide. The last one begins at 2^40 ns, 18 minutes.
class Histogram {
 public:
  Histogram() : counts_(SIZE, 0) {}
  void add(uint64_t ns) {
    counts_[place(ns)]++;
    total_++;
    if (ns > max_) max_ = ns;
  }
  void merge(const Histogram &other) {
    for (size_t i = 0; i < counts_.size(); i++) counts_[i] += other.counts_[i];
    total_ += other.total_;
    if (other.max_ > max_) max_ = other.max_;
  }
  uint64_t total() const { return total_; }
  // The latency that a share `q` of the operations don't exceed.
  uint64_t quantile(double q) const {
    double wanted = q * (double)total_;
    uint64_t done = 0;
    for (size_t i = 0; i < counts_.size(); i++) {
      done += counts_[i];
      if (counts_[i] && (double)done >= wanted) return upto(i);
    }
    return max_;
  }
  void print() const {
    std::printf("\"latency_ns\":{\"p50\":%llu,\"p90\":%llu,\"p95\":%llu,\"p99\":%llu,\"p99.9\":%llu,\"max\":%llu},",
                at(0.5), at(0.9), at(0.95), at(0.99), at(0.999), (unsigned long long)max_);
    std::printf("\"latency_counts\":[");
    bool first = true;
    for (size_t i = 0; i < counts_.size(); i++) {
      if (!counts_[i]) continue;
      std::printf("%s[%llu,%llu]", first ? "" : ",", (unsigned long long)upto(i),
                  (unsigned long long)counts_[i]);
      first = false;
    }
    std::printf("]");
  }

 private:
  static const size_t STEPS = 64, EXACT = 2 * STEPS, SIZE = EXACT + 34 * STEPS;
  unsigned long long at(double q) const { return quantile(q); }
  static size_t place(uint64_t ns) {
    if (ns < EXACT) return ns;
    size_t shift = 63 - (size_t)__builtin_clzll(ns) - 6;  // leaves STEPS..2*STEPS
    size_t index = EXACT + (shift - 1) * STEPS + ((ns >> shift) - STEPS);
    return index < SIZE ? index : SIZE - 1;
  }
  // The largest latency in place `i`.
  static uint64_t upto(size_t i) {
    if (i < EXACT) return i;
    size_t shift = (i - EXACT) / STEPS + 1, head = (i - EXACT) % STEPS + STEPS;
    return ((head + 1) << shift) - 1;
  }
  std::vector<uint64_t> counts_;
  uint64_t total_ = 0, max_ = 0;
};

struct Tally {
  Histogram latencies;
  uint64_t over_slo = 0;
  void merge(const Tally &other) {
    latencies.merge(other.latencies);
    over_slo += other.over_slo;
  }
  void print() const {
    std::printf("\"operations\":%llu,\"over_slo\":%llu,", (unsigned long long)latencies.total(),
                (unsigned long long)over_slo);
    latencies.print();
  }
};

inline uint64_t now(clockid_t clock = CLOCK_MONOTONIC) {
  timespec time;
  clock_gettime(clock, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

// One thread's use of a database.
class Session {
 public:
  virtual ~Session() {}
  // One operation of the workload, with its answer checked.
  virtual void operation(Random &random) = 0;
};

// A database that several threads share.
class Database {
 public:
  virtual ~Database() {}
  virtual std::unique_ptr<Session> session(uint64_t thread) = 0;
  // The engine's name and version.
  virtual std::string engine() = 0;
  // Compares the database's content with what its sessions did; returns a JSON object.
  virtual std::string verify(const std::vector<std::unique_ptr<Session>> &sessions) = 0;
};

// Taken before each operation under `--marks`, so that a trace of locks shows where operations begin.
inline pthread_mutex_t operation_begins = PTHREAD_MUTEX_INITIALIZER;

struct Worker {
  const Options *options;
  pthread_barrier_t *start;
  Session *session;
  uint64_t thread;
  int cpu;  // -1: not pinned
  Tally tally;
};

inline void *work(void *data) {
  Worker *self = (Worker *)data;
  const Options &options = *self->options;
  if (self->cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(self->cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) refuse("cannot pin a thread");
  }
  Random random(options.seed, self->thread);
  bool epochs = options.annotated;
  pthread_barrier_wait(self->start);
  uint64_t from = now() + (uint64_t)(options.warmup * 1e9);
  uint64_t end = from + (uint64_t)(options.seconds * 1e9);
  for (uint64_t began = now(), ended; began < end; began = ended) {
    if (options.marks) {
      pthread_mutex_lock(&operation_begins);
      pthread_mutex_unlock(&operation_begins);
    }
    if (epochs) lw_epoch_start(OPERATION);
    self->session->operation(random);
    if (epochs) lw_epoch_end(OPERATION, options.slo_ns);
    ended = now();
    if (began >= from) {
      self->tally.latencies.add(ended - began);
      self->tally.over_slo += options.annotated && ended - began > options.slo_ns;
    }
  }
  return nullptr;
}

inline std::vector<int> usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) refuse("cannot read which CPUs are usable");
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

// Runs the workload on all threads, checks the outcome and prints the report.
inline int drive(const char *name, Database &database, const Options &options) {
  pthread_barrier_t start;
  pthread_barrier_init(&start, nullptr, (unsigned)options.threads + 1);
  std::vector<int> cpus = options.pin ? usable_cpus() : std::vector<int>();
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<pthread_t> threads(options.threads);
  for (uint64_t i = 0; i < options.threads; i++) {
    sessions.push_back(database.session(i));
    int cpu = options.pin ? cpus[i % cpus.size()] : -1;
    workers.emplace_back(new Worker{&options, &start, sessions.back().get(), i, cpu, Tally()});
  }
  for (uint64_t i = 0; i < options.threads; i++)
    if (pthread_create(&threads[i], nullptr, work, workers[i].get()) != 0) refuse("cannot start a thread");
  pthread_barrier_wait(&start);
  uint64_t warmup = (uint64_t)(options.warmup * 1e9), began = now() + warmup;
  timespec pause = {(time_t)(warmup / 1000000000u), (long)(warmup % 1000000000u)};
  while (nanosleep(&pause, &pause) != 0 && errno == EINTR) {
  }
  uint64_t cpu_time = now(CLOCK_PROCESS_CPUTIME_ID);
  for (pthread_t thread : threads) pthread_join(thread, nullptr);
  double seconds = (double)(now() - began) / 1e9;
  cpu_time = now(CLOCK_PROCESS_CPUTIME_ID) - cpu_time;

  std::string verified = database.verify(sessions);
  Tally all;
  std::map<int, Tally> of_cpu;
  for (const auto &worker : workers) {
    all.merge(worker->tally);
    if (worker->cpu >= 0) of_cpu[worker->cpu].merge(worker->tally);
  }
  std::printf("{\"database\":\"%s\",\"engine\":\"%s\",\"libc\":\"glibc %s\",\"threads\":%llu,", name,
              database.engine().c_str(), gnu_get_libc_version(), (unsigned long long)options.threads);
  std::printf("\"seconds\":%.6f,\"cpu_seconds\":%.6f,\"process_cpu_seconds\":%.6f,", seconds,
              (double)cpu_time / 1e9, (double)now(CLOCK_PROCESS_CPUTIME_ID) / 1e9);
  std::printf("\"operations_per_second\":%.3f,", (double)all.latencies.total() / seconds);
  if (options.annotated)
    std::printf("\"slo_ns\":%llu,", (unsigned long long)options.slo_ns);
  else
    std::printf("\"slo_ns\":null,");
  bool epochs = options.annotated && lw_real_epoch_start && lw_real_epoch_end;
  std::printf("\"epochs\":%s,", epochs ? "true" : "false");
  all.print();
  std::printf(",\"cpus\":[");
  bool first = true;
  for (const auto &entry : of_cpu) {
    std::printf("%s{\"cpu\":%d,", first ? "" : ",", entry.first);
    entry.second.print();
    std::printf("}");
    first = false;
  }
  std::printf("],\"verified\":%s}\n", verified.c_str());
  pthread_barrier_destroy(&start);
  return 0;
}

// A whole number of at least `low`, or an error.
inline uint64_t number(const char *flag, const char *text, uint64_t low, uint64_t high) {
  char *end = nullptr;
  errno = 0;
  unsigned long long value = std::strtoull(text, &end, 10);
  if (errno || end == text || *end || text[0] == '-' || value < low || value > high)
    refuse(std::string(flag) + " '" + text + "': must be from " + std::to_string(low) + " to " +
           std::to_string(high));
  return value;
}

inline double seconds(const char *flag, const char *text, double low) {
  char *end = nullptr;
  double value = std::strtod(text, &end);
  if (end == text || *end || !(value >= low && value <= 600.0))
    refuse(std::string(flag) + " '" + text + "': must be from " + (low > 0 ? "0.01" : "0") + " to 600 seconds");
  return value;
}

// Reads the command line; `extra` describes the flags that only this driver has.
inline Options parse(int argc, char **argv, const char *extra) {
  Options options;
  for (int i = 1; i < argc; i++) {
    std::string flag = argv[i];
    if (flag == "--help" || flag == "-h") {
      std::printf("usage: %s [--seconds S] [--warmup S] [--threads N] [--seed N] [--size KEYS]\n"
                  "       [--slo NS] [--pin] [--marks]%s\n\n"
                  "  --slo NS  each operation is an epoch with this latency objective, if the process has epochs\n"
                  "  --marks   a mutex is taken before each operation, so that traces show where they begin\n"
                  "  --pin     thread i stays on the i-th usable CPU, round and round; figures a CPU\n",
                  argv[0], extra);
      std::exit(0);
    }
    if (flag == "--marks") {
      options.marks = true;
      continue;
    }
    if (flag == "--pin") {
      options.pin = true;
      continue;
    }
    const char *known[] = {"--seconds", "--warmup", "--threads", "--seed", "--size", "--slo", "--slots"};
    bool ours = false;
    for (const char *name : known) ours = ours || (flag == name && (flag != "--slots" || *extra));
    if (!ours) refuse("unknown flag '" + flag + "'\nhint: " + argv[0] + " --help");
    if (i + 1 == argc) refuse("'" + flag + "' needs a value\nhint: " + argv[0] + " --help");
    const char *name = argv[i], *value = argv[++i];
    if (flag == "--seconds") options.seconds = seconds(name, value, 0.01);
    if (flag == "--warmup") options.warmup = seconds(name, value, 0);
    if (flag == "--threads") options.threads = number(name, value, 1, 1024);
    if (flag == "--seed") options.seed = number(name, value, 0, UINT64_MAX);
    if (flag == "--size") options.size = number(name, value, 16, 10000000);
    if (flag == "--slots") options.slots = number(name, value, 1, 16);
    if (flag == "--slo") {
      options.slo_ns = number(name, value, 0, UINT64_MAX);
      options.annotated = true;
    }
  }
  return options;
}

}  // namespace driver
