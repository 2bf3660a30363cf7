//! Lines in memory, each pointing to the next one to visit, in an order that prefetchers can't predict.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::*, fence};
use std::time::Instant;

/// Two cache lines each, because some processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Debug)]
struct ChainLine {
    /// Lower half: the line to visit next. Upper half: counts visits, so that visiting is writing.
    next: AtomicU32,
    /// Data for a critical section to change.
    data: AtomicU32,
}

/// A ring of lines.
#[derive(Debug)]
pub(crate) struct Chain {
    lines: Vec<ChainLine>,
}

impl Chain {
    /// A ring of this many lines, at most 65536.
    pub(crate) fn new(lines: u16) -> Self {
        let mut order: Vec<_> = (0..lines).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut order);
        let ring = || order.iter().copied().cycle();
        let mut next = vec![0; order.len()];
        for (from, to) in ring().zip(ring().skip(1)).take(order.len()) {
            next[usize::from(from)] = to;
        }
        let line =
            |next| ChainLine { next: AtomicU32::new(u32::from(next)), data: AtomicU32::new(0) };
        Self { lines: next.into_iter().map(line).collect() }
    }

    /// Visits every line once, by an atomic read-modify-write that depends on the previous one; ns per line.
    pub(crate) fn walk(&self) -> f64 {
        let start = Instant::now();
        let mut at = 0;
        for _ in 0..self.lines.len() {
            // Line numbers are below 65536, and so are the sums of visits.
            at = self.lines[at & 0xffff].next.fetch_add(1 << 16, AcqRel) as usize;
        }
        start.elapsed().as_nanos() as f64 / self.lines.len() as f64
    }

    /// Visits every line once, in order of address, as a critical section changes its data: the visits don't depend on
    /// each other. All are complete at the end.
    pub(crate) fn add_to_each(&self) {
        for line in &self.lines {
            // At that moment only we use it, so this is deliberately not an atomic operation.
            line.data.store(line.data.load(Relaxed) + 1, Relaxed);
        }
        fence(SeqCst);
    }

    /// The time of [`add_to_each`](Self::add_to_each), ns.
    pub(crate) fn time_to_add(&self) -> f64 {
        let start = Instant::now();
        self.add_to_each();
        start.elapsed().as_nanos() as f64
    }

    /// Writes the lines back to memory, so that no cache has them.
    pub(crate) fn evict(&self) {
        for line in &self.lines {
            evict(ptr::from_ref(line).cast());
        }
        fence(SeqCst);
    }
}

fn evict(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the line is mapped, and keeps its content.
    unsafe {
        core::arch::x86_64::_mm_clflush(line);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; Linux allows this instruction in user mode.
    unsafe {
        core::arch::asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_visits_each_line_once_and_comes_back() {
        let chain = Chain::new(64);
        for walks in 1..=3 {
            chain.walk();
            assert!(chain.lines.iter().all(|line| line.next.load(Relaxed) >> 16 == walks));
        }
        chain.evict();
        chain.add_to_each();
        assert!(chain.lines.iter().all(|line| line.data.load(Relaxed) == 1));
    }

    #[test]
    fn a_walk_goes_on_where_the_ring_has_a_single_line() {
        let chain = Chain::new(1);
        chain.walk();
        assert_eq!(chain.lines[0].next.load(Relaxed), 1 << 16);
    }
}
