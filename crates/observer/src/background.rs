//! Work on a thread of its own that tells its latest result, until nobody looks any more.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::spawn;

/// The latest result. The work ends when this is dropped.
pub struct Background<T>(Shared<T>);

/// The side of the work.
pub(crate) struct Shared<T> {
    latest: Arc<Mutex<T>>,
    ends: Arc<AtomicBool>,
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self { latest: Arc::clone(&self.latest), ends: Arc::clone(&self.ends) }
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        self.0.ends.store(true, Relaxed); // a flag
    }
}

impl<T: Clone + Default + Send + 'static> Background<T> {
    pub(crate) fn start(work: impl FnOnce(&Shared<T>) + Send + 'static) -> Self {
        let shared = Shared { latest: Arc::default(), ends: Arc::default() };
        spawn({
            let shared = shared.clone();
            move || work(&shared)
        });
        Self(shared)
    }

    /// What was told last; the default value: nothing yet.
    pub fn latest(&self) -> T {
        self.0.latest.lock().map_or_else(|_| T::default(), |latest| latest.clone())
    }
}

impl<T> Shared<T> {
    pub(crate) fn tell(&self, result: T) {
        if let Ok(mut latest) = self.latest.lock() {
            *latest = result;
        }
    }

    /// Shall the work end?
    pub(crate) fn ends(&self) -> bool {
        self.ends.load(Relaxed)
    }
}
