// Berkeley DB under two of TPC-C's transactions, as RCL's authors ran it: Stock Level (reads a district's last 20 orders and counts the
// items of little stock) and New Order (writes an order, and takes its items from the stock). One warehouse, ten districts, --size items.
// The environment is private and in memory; its locks are Berkeley DB's own, over pthread mutexes.
//
// One of ten operations is a New Order. A transaction that Berkeley DB chose to end a deadlock begins anew.
#include <db.h>


#include "driver.hpp"

namespace {

const uint64_t DISTRICTS = 10, LINES = 10, RECENT = 20, LITTLE = 15;

struct Stock {
  uint64_t quantity, taken;
};

struct Order {
  uint32_t items[LINES];
};

struct Tpcc;

struct Client : driver::Session {
  explicit Client(Tpcc &tpcc) : tpcc(tpcc) {}
  void operation(driver::Random &random) override;
  Tpcc &tpcc;
  uint64_t orders = 0, taken = 0, restarts = 0;
};

struct Tpcc : driver::Database {
  explicit Tpcc(uint64_t items) : items(items) {
    check(db_env_create(&env, 0));
    check(env->set_cachesize(env, 0, 256 << 20, 1));
    check(env->set_lk_detect(env, DB_LOCK_DEFAULT));
    check(env->log_set_config(env, DB_LOG_IN_MEMORY, 1));
    check(env->set_lg_bsize(env, 64 << 20));
    check(env->set_lk_max_locks(env, 100000));
    check(env->set_lk_max_objects(env, 100000));
    check(env->set_lk_max_lockers(env, 10000));
    uint32_t flags = DB_CREATE | DB_PRIVATE | DB_THREAD | DB_INIT_MPOOL | DB_INIT_LOCK | DB_INIT_LOG | DB_INIT_TXN;
    check(env->open(env, nullptr, flags, 0));
    for (DB **db : {&stock, &orders, &districts}) {
      check(db_create(db, env, 0));
      check((*db)->open(*db, nullptr, nullptr, nullptr, DB_BTREE, DB_CREATE | DB_THREAD | DB_AUTO_COMMIT, 0));
    }
    DB_TXN *txn = begin();
    for (uint64_t item = 0; item < items; item++) {
      Stock one = {100 + item % 50, 0};
      check(put(stock, txn, item, one));
    }
    for (uint64_t district = 0; district < DISTRICTS; district++) {
      for (uint64_t number = 0; number < RECENT; number++) {
        Order order;
        for (uint64_t line = 0; line < LINES; line++)
          order.items[line] = (uint32_t)(driver::mix(district * 1000 + number * LINES + line) % items);
        check(put(orders, txn, district << 32 | number, order));
      }
      check(put(districts, txn, district, RECENT));
    }
    check(txn->commit(txn, 0));
  }
  ~Tpcc() override {
    for (DB *db : {stock, orders, districts}) db->close(db, 0);
    env->close(env, 0);
  }

  static void check(int error) {
    if (error) driver::refuse(std::string("Berkeley DB: ") + db_strerror(error));
  }
  DB_TXN *begin() {
    DB_TXN *txn;
    check(env->txn_begin(env, nullptr, &txn, 0));
    return txn;
  }
  template <typename V>
  int put(DB *db, DB_TXN *txn, uint64_t key, const V &value) {
    DBT k = {}, v = {};
    k.data = &key, k.size = sizeof key;
    v.data = const_cast<V *>(&value), v.size = sizeof value;
    return db->put(db, txn, &k, &v, 0);
  }
  template <typename V>
  int get(DB *db, DB_TXN *txn, uint64_t key, V &value, uint32_t flags = 0) {
    DBT k = {}, v = {};
    k.data = &key, k.size = sizeof key;
    v.data = &value, v.ulen = sizeof value, v.flags = DB_DBT_USERMEM;
    return db->get(db, txn, &k, &v, flags);
  }

  int new_order(DB_TXN *txn, uint64_t district, const Order &order) {
    uint64_t next;
    if (int error = get(districts, txn, district, next, DB_RMW)) return error;
    if (int error = put(districts, txn, district, next + 1)) return error;
    if (int error = put(orders, txn, district << 32 | next, order)) return error;
    for (uint32_t item : order.items) {
      Stock one;
      if (int error = get(stock, txn, item, one, DB_RMW)) return error;
      one.quantity = one.quantity > 10 ? one.quantity - 1 : one.quantity + 91;
      one.taken++;
      if (int error = put(stock, txn, item, one)) return error;
    }
    return 0;
  }

  int stock_level(DB_TXN *txn, uint64_t district, uint64_t &little) {
    uint64_t next;
    little = 0;
    if (int error = get(districts, txn, district, next)) return error;
    for (uint64_t number = next - RECENT; number < next; number++) {
      Order order;
      if (int error = get(orders, txn, district << 32 | number, order)) return error;
      for (uint32_t item : order.items) {
        Stock one;
        if (int error = get(stock, txn, item, one, DB_READ_COMMITTED)) return error;
        if (one.quantity == 0 || one.quantity > 200) driver::wrong("a stock that cannot be");
        little += one.quantity < LITTLE;
      }
    }
    return 0;
  }

  std::unique_ptr<driver::Session> session(uint64_t) override { return std::unique_ptr<driver::Session>(new Client(*this)); }
  std::string engine() override { return db_version(nullptr, nullptr, nullptr); }
  std::string verify(const std::vector<std::unique_ptr<driver::Session>> &sessions) override {
    uint64_t wanted = 0, taken = 0, numbers = 0, made = 0, restarts = 0;
    for (const auto &session : sessions) {
      const Client &client = static_cast<const Client &>(*session);
      wanted += client.taken, made += client.orders, restarts += client.restarts;
    }
    DB_TXN *txn = begin();
    for (uint64_t item = 0; item < items; item++) {
      Stock one;
      check(get(stock, txn, item, one));
      taken += one.taken;
    }
    for (uint64_t district = 0; district < DISTRICTS; district++) {
      uint64_t next;
      check(get(districts, txn, district, next));
      numbers += next - RECENT;
    }
    check(txn->commit(txn, 0));
    if (taken != wanted || numbers != made) driver::wrong("orders were lost");
    return "{\"orders\":" + std::to_string(made) + ",\"restarts\":" + std::to_string(restarts) + "}";
  }

  uint64_t items;
  DB_ENV *env;
  DB *stock, *orders, *districts;
};

void Client::operation(driver::Random &random) {
  uint64_t district = random.below(DISTRICTS);
  bool writes = random.below(10) == 0;
  Order order;
  for (uint32_t &item : order.items) item = (uint32_t)random.below(tpcc.items);
  for (;;) {
    DB_TXN *txn = tpcc.begin();
    uint64_t little;
    int error = writes ? tpcc.new_order(txn, district, order) : tpcc.stock_level(txn, district, little);
    if (!error) {
      Tpcc::check(txn->commit(txn, DB_TXN_NOSYNC));
      break;
    }
    txn->abort(txn);
    if (error != DB_LOCK_DEADLOCK) driver::wrong(db_strerror(error));
    restarts++;
  }
  orders += writes;
  taken += writes ? LINES : 0;
}

}  // namespace

int main(int argc, char **argv) {
  driver::Options options = driver::parse(argc, argv, "");
  Tpcc tpcc(options.size);
  return driver::drive("berkeley-db", tpcc, options);
}
