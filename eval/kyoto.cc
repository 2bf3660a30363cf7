// Kyoto Cabinet's CacheDB (in memory): 50 % put, 50 % get, each an epoch.
//
// Its locks are pthread's: a readers-writer lock around each method, held for reading, and a mutex for each of
// the table's 16 slots, which is the contended one. Two threads would seldom meet in 16 slots, so the keys are
// in `--slots` of them (default 1), which is as crowded as 16 slots with many cores.
#include <kccachedb.h>

#include "driver.hpp"

namespace {

using driver::mix;

const uint64_t SLOTS = 16;  // kyotocabinet::CacheDB::SLOTNUM
const size_t VALUE = 100;

// Word 0: how often the key was put. Word 1: a checksum of key and word 0. The rest is padding.
void fill(char *value, uint64_t key, uint64_t puts) {
  uint64_t check = mix(mix(key) ^ puts);
  std::memset(value, '.', VALUE);
  std::memcpy(value, &puts, 8);
  std::memcpy(value + 8, &check, 8);
}

uint64_t puts_of(const char *value, size_t size, uint64_t key) {
  char expected[VALUE];
  uint64_t puts = 0;
  if (size == VALUE) std::memcpy(&puts, value, 8);
  fill(expected, key, puts);
  if (size != VALUE || std::memcmp(value, expected, VALUE) != 0)
    driver::wrong("key " + std::to_string(key) + " has a torn or foreign record");
  return puts;
}

// Reads a record, changes it, and writes it back, under the slot's lock like every visitor.
class Put : public kyotocabinet::DB::Visitor {
 public:
  explicit Put(uint64_t key) : key_(key) {}

 private:
  const char *visit_full(const char *, size_t, const char *value, size_t size, size_t *length) override {
    fill(next_, key_, puts_of(value, size, key_) + 1);
    *length = VALUE;
    return next_;
  }
  const char *visit_empty(const char *, size_t, size_t *) override {
    driver::wrong("key " + std::to_string(key_) + " is not there");
  }
  uint64_t key_;
  char next_[VALUE];
};

struct Kyoto;

struct Client : driver::Session {
  explicit Client(Kyoto &kyoto) : kyoto(kyoto) {}
  void operation(driver::Random &random) override;
  Kyoto &kyoto;
  uint64_t puts = 0;
};

struct Kyoto : driver::Database {
  Kyoto(uint64_t size, uint64_t slots) {
    db.tune_buckets((int64_t)size * 2);
    if (!db.open("*", kyotocabinet::CacheDB::OWRITER | kyotocabinet::CacheDB::OCREATE))
      driver::refuse(std::string("kyoto: ") + db.error().message());
    char value[VALUE];
    for (uint64_t key = 0; keys.size() < size; key++) {
      if (kyotocabinet::hashmurmur(&key, sizeof key) % SLOTS >= slots) continue;
      keys.push_back(key);
      fill(value, key, 0);
      if (!db.set((const char *)&key, sizeof key, value, VALUE))
        driver::refuse(std::string("kyoto: ") + db.error().message());
    }
  }

  std::unique_ptr<driver::Session> session(uint64_t) override {
    return std::unique_ptr<driver::Session>(new Client(*this));
  }

  std::string engine() override { return std::string("Kyoto Cabinet ") + kyotocabinet::VERSION; }

  uint64_t get(uint64_t key) {
    char value[VALUE];
    int32_t size = db.get((const char *)&key, sizeof key, value, VALUE);
    if (size < 0) driver::wrong("key " + std::to_string(key) + " is not there");
    return puts_of(value, (size_t)size, key);
  }

  std::string verify(const std::vector<std::unique_ptr<driver::Session>> &sessions) override {
    uint64_t found = 0, done = 0;
    for (uint64_t key : keys) found += get(key);
    for (const auto &session : sessions) done += static_cast<Client &>(*session).puts;
    if (found != done || db.count() != (int64_t)keys.size())
      driver::wrong(std::to_string(found) + " puts in " + std::to_string(db.count()) + " records, " +
                    std::to_string(done) + " were made");
    return "{\"keys\":" + std::to_string(keys.size()) + ",\"puts\":" + std::to_string(done) +
           ",\"sum\":" + std::to_string(found) + "}";
  }

  kyotocabinet::CacheDB db;
  std::vector<uint64_t> keys;
};

void Client::operation(driver::Random &random) {
  uint64_t key = kyoto.keys[random.below(kyoto.keys.size())];
  if (random.below(2) == 0) {
    Put put(key);
    if (!kyoto.db.accept((const char *)&key, sizeof key, &put, true))
      driver::wrong(std::string("put: ") + kyoto.db.error().message());
    puts++;
  } else {
    kyoto.get(key);
  }
}

}  // namespace

int main(int argc, char **argv) {
  driver::Options options =
      driver::parse(argc, argv, " [--slots N]\n\n  --slots N  keys are of N of the 16 slots (1)");
  Kyoto kyoto(options.size, options.slots);
  return driver::drive("kyoto", kyoto, options);
}
