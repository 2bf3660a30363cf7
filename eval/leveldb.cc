// LevelDB's `readrandom`, as its db_bench has it: 16-byte keys, 100-byte values, each get an epoch.
//
// A get takes the database's mutex twice, to hold on to the current tables and to let go of them. Puts are
// not measured: LevelDB queues writers by itself, as the paper says. The database lies in $TMPDIR, else in
// memory; it is compacted before the start, and fits LevelDB's cache: disks are not the subject.
#include <leveldb/c.h>
#include <sys/stat.h>
#include <unistd.h>

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

struct LevelDb;

struct Client : driver::Session {
  explicit Client(LevelDb &level) : level(level) {}
  void operation(driver::Random &random) override;
  LevelDb &level;
  uint64_t gets = 0;
};

struct LevelDb : driver::Database {
  explicit LevelDb(uint64_t size) : size(size) {
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
    leveldb_writeoptions_t *writing = leveldb_writeoptions_create();
    char value[VALUE];
    for (uint64_t key = 0; key < size; key++) {
      std::string name = name_of(key);
      fill(value, key);
      leveldb_put(db, writing, name.data(), name.size(), value, VALUE, &error);
      open_or_refuse(error);
    }
    leveldb_compact_range(db, nullptr, 0, nullptr, 0);
    leveldb_writeoptions_destroy(writing);
    for (uint64_t key = 0; key < size; key++) get(key);  // into the cache
  }

  ~LevelDb() override {
    leveldb_close(db);
    remove_files();
    leveldb_readoptions_destroy(reading);
    leveldb_options_destroy(options);
    leveldb_cache_destroy(cache);
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

  void get(uint64_t key) {
    std::string name = name_of(key);
    char *error = nullptr, expected[VALUE];
    size_t length = 0;
    char *value = leveldb_get(db, reading, name.data(), name.size(), &length, &error);
    if (error) wrong(std::string("leveldb: ") + error);
    fill(expected, key);
    if (!value || length != VALUE || std::memcmp(value, expected, VALUE) != 0)
      wrong("key " + name + (value ? " has another key's value" : " is not there"));
    leveldb_free(value);
  }

  std::unique_ptr<driver::Session> session(uint64_t) override {
    return std::unique_ptr<driver::Session>(new Client(*this));
  }

  std::string engine() override {
    return "LevelDB " + std::to_string(leveldb_major_version()) + "." + std::to_string(leveldb_minor_version());
  }

  std::string verify(const std::vector<std::unique_ptr<driver::Session>> &sessions) override {
    uint64_t gets = 0, count = 0;
    for (const auto &session : sessions) gets += static_cast<Client &>(*session).gets;
    leveldb_iterator_t *at = leveldb_create_iterator(db, reading);
    for (leveldb_iter_seek_to_first(at); leveldb_iter_valid(at); leveldb_iter_next(at)) count++;
    leveldb_iter_destroy(at);
    if (count != size) wrong(std::to_string(count) + " keys, " + std::to_string(size) + " were put");
    return "{\"keys\":" + std::to_string(count) + ",\"gets\":" + std::to_string(gets) + "}";
  }

  uint64_t size;
  std::string path;
  leveldb_options_t *options;
  leveldb_cache_t *cache;
  leveldb_readoptions_t *reading = nullptr;
  leveldb_t *db = nullptr;
};

void Client::operation(driver::Random &random) {
  level.get(random.below(level.size));
  gets++;
}

}  // namespace

int main(int argc, char **argv) {
  driver::Options options = driver::parse(argc, argv, "");
  LevelDb level(options.size);
  return driver::drive("leveldb", level, options);
}
