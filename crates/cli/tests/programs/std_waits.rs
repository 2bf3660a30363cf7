//! Threads that wait for a mutex and for a lock of readers and writers of Rust's std, whose holder waits for the end of its input.

use std::io::{Read, stdin};
use std::process::exit;
use std::sync::{Mutex, RwLock};
use std::thread::spawn;

static MUTEX: Mutex<u32> = Mutex::new(0);
static TABLE: RwLock<u32> = RwLock::new(0);

#[inline(never)]
fn adds() {
    *MUTEX.lock().unwrap() += 1;
}

#[inline(never)]
fn looks() -> u32 {
    *TABLE.read().unwrap()
}

fn main() {
    let (_mutex, _table) = (MUTEX.lock().unwrap(), TABLE.write().unwrap());
    for _ in 0..2 {
        spawn(adds);
        spawn(looks);
    }
    println!("ready");
    let _ = stdin().read_to_end(&mut Vec::new());
    exit(0); // the others wait for ever
}
