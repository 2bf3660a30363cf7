// LevelDB under loads of its db_bench: 16-byte keys, 100-byte values, each operation an epoch.
//
//   readrandom        gets. Each takes the database's mutex twice: to reference the current tables, and to release them
//   readwhilewriting  the same, and one more thread, which puts all the time and isn't measured
//   fillrandom        puts, into a database that is empty at first. LevelDB queues writers itself, with a condvar for each
//
// The database is in $TMPDIR, or else in memory. If it is read, it is compacted before the start, and fits into
// LevelDB's cache: disks are not the subject. A value is derived from its key, so every answer can be checked.
#include <leveldb/c.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "driver.hpp"

namespace {

const size_t VALUE = 100;

std::string name_of(uint64_t key) {
  char name[24];
  std::snprintf(name, sizeof name, "%016llu", (unsigned long long)key);
  return name;
}

void fill(char *value, uint64_t key) {
  for (size_t at = 0; at < VALUE; at += 4) {
    uint32_t word = (uint32_t)driver::mix(driver::mix(key) + at);
    std::memcpy(value + at, &word, 4);
  }
}

enum class Load { readrandom, readwhilewriting, fillrandom };

struct LevelDb;

struct Client : driver::Session {
  explicit Client(LevelDb &level) : level(level) {}
  void operation(driver::Random &random) override;
  LevelDb &level;
  uint64_t done = 0;
};

struct LevelDb : driver::Database {
  LevelDb(Load load, uint64_t size, uint64_t seed) : load(load), size(size), was_put(size) {
    const char *memory = "/dev/shm", *folder = std::getenv("TMPDIR");
    if (!folder) folder = access(memory, W_OK) == 0 ? memory : P_tmpdir;
    path = std::string(folder) + "/lockwright-eval-" + std::to_string(getpid()) + ".leveldb";
    options = leveldb_options_create();
    cache = leveldb_cache_create_lru(size * 200 + (16 << 20));
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_options_set_error_if_exists(options, 1);
    leveldb_options_set_compression(options, leveldb_no_compression);
    leveldb_options_set_cache(options, cache);
    char *error = nullptr;
    db = leveldb_open(options, path.c_str(), &error);
    open_or_refuse(error);
    reading = leveldb_readoptions_create();
    writing = leveldb_writeoptions_create();
    if (load == Load::fillrandom) return;
    for (uint64_t key = 0; key < size; key++) put(key);
    leveldb_compact_range(db, nullptr, 0, nullptr, 0);
    for (uint64_t key = 0; key < size; key++) get(key);  // into the cache
    if (load == Load::readwhilewriting)
      writer = std::thread([this, seed] {
        driver::Random random(seed, this->size);
        while (!finished) put(random.below(this->size));
      });
  }

  ~LevelDb() override {
    finish();
    leveldb_close(db);
    remove_files();
    leveldb_readoptions_destroy(reading);
    leveldb_writeoptions_destroy(writing);
    leveldb_options_destroy(options);
    leveldb_cache_destroy(cache);
  }

  void finish() {
    finished = true;
    if (writer.joinable()) writer.join();
  }

  // A wrong answer ends the program at once, so the files go first.
  [[noreturn]] void wrong(const std::string &what) {
    remove_files();
    driver::wrong(what);
  }

  void open_or_refuse(const char *error) {
    if (!error) return;
    remove_files();
    driver::refuse(std::string("leveldb: ") + error);
  }

  void remove_files() {
    char *error = nullptr;
    leveldb_options_t *none = leveldb_options_create();
    leveldb_destroy_db(none, path.c_str(), &error);
    leveldb_options_destroy(none);
    leveldb_free(error);
  }

  void put(uint64_t key) {
    std::string name = name_of(key);
    char *error = nullptr, value[VALUE];
    fill(value, key);
    leveldb_put(db, writing, name.data(), name.size(), value, VALUE, &error);
    if (error) wrong(std::string("leveldb: ") + error);
    was_put[key].store(true, std::memory_order_relaxed);  // read when all threads are joined
  }

  void get(uint64_t key) {
    std::string name = name_of(key);
    char *error = nullptr;
    size_t length = 0;
    char *value = leveldb_get(db, reading, name.data(), name.size(), &length, &error);
    if (error) wrong(std::string("leveldb: ") + error);
    if (!value) wrong("key " + name + " is not there");
    check(key, value, length);
    leveldb_free(value);
  }

  void check(uint64_t key, const char *value, size_t length) {
    char expected[VALUE];
    fill(expected, key);
    if (length != VALUE || std::memcmp(value, expected, VALUE) != 0)
      wrong("key " + name_of(key) + " has another key's value");
  }

  std::unique_ptr<driver::Session> session(uint64_t) override {
    return std::unique_ptr<driver::Session>(new Client(*this));
  }

  std::string engine() override {
    return "LevelDB " + std::to_string(leveldb_major_version()) + "." + std::to_string(leveldb_minor_version());
  }

  std::string verify(const std::vector<std::unique_ptr<driver::Session>> &sessions) override {
    finish();
    uint64_t done = 0, found = 0, put = 0;
    for (const auto &session : sessions) done += static_cast<Client &>(*session).done;
    for (const auto &key : was_put) put += key;
    leveldb_iterator_t *at = leveldb_create_iterator(db, reading);
    for (leveldb_iter_seek_to_first(at); leveldb_iter_valid(at); leveldb_iter_next(at)) {
      size_t length = 0;
      std::string name(leveldb_iter_key(at, &length), 16);
      uint64_t key = std::strtoull(name.c_str(), nullptr, 10);
      if (length != 16 || key >= size || name != name_of(key) || !was_put[key]) wrong("key " + name + " was never put");
      const char *value = leveldb_iter_value(at, &length);
      check(key, value, length);
      found++;
    }
    leveldb_iter_destroy(at);
    if (found != put) wrong(std::to_string(found) + " keys, " + std::to_string(put) + " were put");
    return "{\"keys\":" + std::to_string(found) + ",\"operations\":" + std::to_string(done) + "}";
  }

  Load load;
  uint64_t size;
  std::vector<std::atomic<bool>> was_put;
  std::string path;
  leveldb_options_t *options;
  leveldb_cache_t *cache;
  leveldb_readoptions_t *reading = nullptr;
  leveldb_writeoptions_t *writing = nullptr;
  leveldb_t *db = nullptr;
  std::atomic<bool> finished{false};
  std::thread writer;
};

void Client::operation(driver::Random &random) {
  uint64_t key = random.below(level.size);
  if (level.load == Load::fillrandom)
    level.put(key);
  else
    level.get(key);
  done++;
}

// Takes `--load` out of the command line; the other flags are common to all drivers.
Load load_of(int &argc, char **argv) {
  Load load = Load::readrandom;
  int kept = 1;
  for (int i = 1; i < argc; i++) {
    if (std::strcmp(argv[i], "--load") != 0) {
      argv[kept++] = argv[i];
      continue;
    }
    std::string name = i + 1 < argc ? argv[++i] : "";
    if (name == "readrandom")
      load = Load::readrandom;
    else if (name == "readwhilewriting")
      load = Load::readwhilewriting;
    else if (name == "fillrandom")
      load = Load::fillrandom;
    else
      driver::refuse("--load '" + name + "': must be readrandom, readwhilewriting or fillrandom");
  }
  argc = kept;
  return load;
}

}  // namespace

int main(int argc, char **argv) {
  Load load = load_of(argc, argv);
  driver::Options options =
      driver::parse(argc, argv, " [--load LOAD]\n\n  --load LOAD  readrandom, readwhilewriting or fillrandom (readrandom)");
  LevelDb level(load, options.size, options.seed);
  return driver::drive("leveldb", level, options);
}
