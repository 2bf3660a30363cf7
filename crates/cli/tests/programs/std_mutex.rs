//! Threads that compete for a mutex of Rust's std. Its holder sleeps, so that the others wait for certain.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

static LOCK: Mutex<u32> = Mutex::new(0);

fn main() {
    let threads = [(); 4].map(|()| {
        thread::spawn(|| {
            for _ in 0..20 {
                *LOCK.lock().unwrap() += 1;
                let _held = LOCK.lock().unwrap();
                thread::sleep(Duration::from_millis(1));
            }
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
}
