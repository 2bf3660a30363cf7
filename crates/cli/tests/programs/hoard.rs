//! 20 locks, and one place that holds one of them for long: `Store::hoard`.

use lockwright_sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{scope, sleep};
use std::time::Duration;

struct Store {
    sum: Mutex<u64>,
}

static STORES: [Store; 20] = [const { Store { sum: Mutex::new(0) } }; 20];
static STOP: AtomicBool = AtomicBool::new(false);

impl Store {
    #[inline(never)]
    fn quick(&self) {
        *self.sum.lock() += 1;
    }

    #[inline(never)]
    fn hoard(&self) {
        let mut sum = self.sum.lock();
        sleep(Duration::from_millis(1));
        *sum += 1;
    }
}

fn main() {
    let rounds = std::env::args().nth(1).map_or(200, |text| text.parse().expect("a number"));
    scope(|scope| {
        for seed in 1..=3_u32 {
            scope.spawn(move || {
                let mut next = seed;
                while !STOP.load(Relaxed) {
                    next = next.wrapping_mul(1_103_515_245).wrapping_add(12_345);
                    STORES[(next >> 16) as usize % 20].quick();
                    // So that hardly anybody loses its CPU inside of `quick`.
                    sleep(Duration::from_micros(20));
                }
            });
        }
        scope.spawn(move || {
            for _ in 0..rounds {
                STORES[13].hoard();
                sleep(Duration::from_micros(500));
            }
            STOP.store(true, Relaxed);
        });
    });
    println!("done");
}
