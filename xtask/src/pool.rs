//! Divides work among several threads.

use std::sync::Mutex;
use std::thread;

/// Runs `work` for every item, `jobs` at a time, started in order. Returns the results in order.
pub(crate) fn parallel<T: Sync, R: Send>(
    jobs: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let queue = Mutex::new(items.iter().enumerate());
    let results = Mutex::new(Vec::with_capacity(items.len()));
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no worker panics").next();
                    let Some((index, item)) = next else { return };
                    let result = work(item);
                    results.lock().expect("no worker panics").push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no worker panics");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(super::parallel(7, &items, |n| n * 2), (0..200).step_by(2).collect::<Vec<_>>());
    }
}
