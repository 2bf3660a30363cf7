//! Orders go through a queue to workers that keep the books. The program uses mutexes, two condition variables, a
//! readers-writer lock, a timed lock and an epoch, all from `lockwright_sync`. `LOCKWRIGHT_LOCK` chooses the lock.
//!
//! `cargo run --release -p lockwright-sync --example orders`

use lockwright_sync::{Condvar, Epoch, Mutex, RwLock};
use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

const CLERKS: u64 = 3;
const ORDERS: u64 = 20_000;
const ROOM: usize = 64;
/// The epoch: handing in an order, which should take at most 300 us.
const HAND_IN: u32 = 1;
const HAND_IN_SLO: Duration = Duration::from_micros(300);

/// The queue: at most `ROOM` orders.
#[derive(Default)]
struct Desk {
    orders: VecDeque<u64>,
    closed: bool,
}

static DESK: Mutex<Desk> = Mutex::new(Desk { orders: VecDeque::new(), closed: false });
static FILLED: Condvar = Condvar::new();
static EMPTIED: Condvar = Condvar::new();
/// (orders, their sum)
static BOOKS: Mutex<(u64, u64)> = Mutex::new((0, 0));
static PRICES: RwLock<[u64; 2]> = RwLock::new([1, 1]);

fn hand_in(order: u64) {
    let _epoch = Epoch::start(HAND_IN, HAND_IN_SLO);
    let mut desk = DESK.lock();
    EMPTIED.wait_while(&mut desk, |desk| desk.orders.len() == ROOM);
    desk.orders.push_back(order);
    FILLED.notify_one();
}

fn take() -> Option<u64> {
    let mut desk = DESK.lock();
    FILLED.wait_while(&mut desk, |desk| desk.orders.is_empty() && !desk.closed);
    let order = desk.orders.pop_front();
    EMPTIED.notify_one();
    order
}

fn work() {
    while let Some(order) = take() {
        let prices = PRICES.read();
        assert_eq!(prices[0], prices[1], "a writer was seen at work");
        drop(prices);
        // A worker who can't get the books within ten seconds says so, and tries again.
        let mut books = loop {
            match BOOKS.try_lock_for(Duration::from_secs(10)) {
                Some(books) => break books,
                None => eprintln!("the books are taken"),
            }
        };
        *books = (books.0 + 1, books.1 + order);
    }
}

fn main() {
    Epoch::name(HAND_IN, "hand in");
    let workers: Vec<_> = (0..4).map(|_| thread::spawn(work)).collect();
    let clerks: Vec<_> = (0..CLERKS)
        .map(|clerk| {
            thread::spawn(move || {
                for number in 0..ORDERS {
                    hand_in(clerk * ORDERS + number);
                    if number % 1000 == 0 {
                        let mut prices = PRICES.write();
                        prices[0] += 1;
                        prices[1] += 1;
                    }
                }
            })
        })
        .collect();
    for clerk in clerks {
        clerk.join().expect("a clerk");
    }
    DESK.lock().closed = true;
    FILLED.notify_all();
    for worker in workers {
        worker.join().expect("a worker");
    }
    let (count, sum) = *BOOKS.lock();
    println!("{count} orders, sum {sum}, price {}", PRICES.read()[0]);
    let all = CLERKS * ORDERS;
    assert_eq!((count, sum), (all, all * (all - 1) / 2));
}
