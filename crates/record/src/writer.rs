//! Makes the file and writes to it.

use crate::histogram::bucket;
use crate::layout::{
    BLOCK, BLOCKS_AT, CLASSES, ClassBlock, EPOCHS, EpochHead, HEADS_AT, Header, LENGTH, MAGIC,
    NAME, VERSION, block_at,
};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// Files that one process id may have: one for each program that it became by `exec`.
const FILES: u32 = 10_000;

/// What the header says.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// Now, ns of `CLOCK_MONOTONIC`.
    pub now_ns: u64,
    /// The lock in use.
    pub lock: &'a [u8],
    /// The emulated machine; empty: none.
    pub emulated: &'a [u8],
    /// The command line.
    pub command: &'a [u8],
}

/// Why there is no file: the system's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub i32);

/// A recording. Mapped for ever; as cheap to copy as a pointer.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    base: *mut u8,
}

// SAFETY: everything behind it is atomic, or constant.
unsafe impl Send for Writer {}
// SAFETY: as above.
unsafe impl Sync for Writer {}

/// The place of an epoch in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub u8);

/// One execution of an epoch.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// How long it took, ns.
    pub latency_ns: u64,
    /// What it may have taken, ns.
    pub slo_ns: u64,
    /// The window with which it ran, ns.
    pub window_ns: u32,
    /// The window of the next one, ns.
    pub next_window_ns: u32,
    /// The class of the core on which it ended.
    pub class: u8,
}

impl Sample {
    /// Was it slower than its SLO?
    pub fn is_violation(&self) -> bool {
        self.latency_ns > self.slo_ns
    }

    /// Did it run with a window negligible against the SLO, as under a FIFO lock?
    pub fn is_at_fifo(&self) -> bool {
        u64::from(self.window_ns) * 64 <= self.slo_ns
    }
}

impl Writer {
    /// Makes `DIR/PID-N.stats`, with the first N that is free.
    ///
    /// # Errors
    /// The system's, from making, growing or mapping the file; ENAMETOOLONG for a folder of 4000 bytes.
    pub fn create(dir: &[u8], about: &About<'_>) -> Result<Self, Refused> {
        // SAFETY: no preconditions.
        let pid = unsafe { libc::getpid() } as u32;
        let mut most = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a writable rlimit.
        let is_known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut most) } == 0;
        if is_known && most.rlim_cur < LENGTH as libc::rlim_t {
            return Err(Refused(libc::EFBIG)); // the kernel would send SIGXFSZ
        }
        let mut path = [0; 4096];
        let fd = open(dir, pid, &mut path)?;
        let made = Self::set_up(fd, pid, about);
        // SAFETY: `fd` is ours and used no more; a NUL-terminated path.
        unsafe {
            libc::syscall(libc::SYS_close, fd); // not libc's `close`, which is a cancellation point
            if made.is_err() {
                libc::unlink(path.as_ptr().cast());
            }
        }
        made
    }

    fn set_up(fd: i32, pid: u32, about: &About<'_>) -> Result<Self, Refused> {
        // SAFETY: `fd` is ours; a fresh mapping overlaps nothing.
        let mapped = unsafe {
            let grown = libc::ftruncate(fd, LENGTH as libc::off_t);
            let base = if grown == 0 {
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                libc::mmap(null_mut(), LENGTH, protection, libc::MAP_SHARED, fd, 0)
            } else {
                libc::MAP_FAILED
            };
            if base == libc::MAP_FAILED { Err(Refused(errno())) } else { Ok(base.cast::<u8>()) }
        };
        let writer = Self { base: mapped? };
        if let Err(refused) = writer.populate(0, BLOCKS_AT) {
            // SAFETY: our own mapping, which nobody has seen.
            unsafe { libc::munmap(writer.base.cast(), LENGTH) };
            return Err(refused);
        }
        let mut header = Header {
            magic: AtomicU64::new(0),
            version: VERSION,
            pid,
            start_ns: about.now_ns,
            last_ns: AtomicU64::new(about.now_ns),
            lock: [0; 128],
            emulated: [0; 256],
            command: [0; 512],
        };
        fill(&mut header.lock, about.lock);
        fill(&mut header.emulated, about.emulated);
        fill(&mut header.command, about.command);
        // SAFETY: the mapping is that long, aligned to a page, and ours alone.
        unsafe { writer.base.cast::<Header>().write(header) };
        // ORDERING: Release, pairs with the reader, which looks for it first.
        writer.header().magic.store(MAGIC, Release);
        Ok(writer)
    }

    /// Makes the kernel give the pages now: a full disk is an error here, and would be SIGBUS later.
    fn populate(&self, at: usize, len: usize) -> Result<(), Refused> {
        const MADV_POPULATE_WRITE: i32 = 23;
        // SAFETY: within the mapping.
        let result = unsafe { libc::madvise(self.base.add(at).cast(), len, MADV_POPULATE_WRITE) };
        match errno() {
            _ if result == 0 => Ok(()),
            libc::EINVAL => Ok(()), // before Linux 5.14: as good as it gets
            libc::EFAULT => Err(Refused(libc::ENOSPC)), // what would have been SIGBUS
            error => Err(Refused(error)),
        }
    }

    fn header(&self) -> &Header {
        // SAFETY: mapped for ever, aligned, written by `create`.
        unsafe { &*self.base.cast() }
    }

    fn head(&self, slot: Slot) -> &EpochHead {
        let at = HEADS_AT + usize::from(slot.0) % EPOCHS * size_of::<EpochHead>();
        // SAFETY: within the mapping, aligned; zeroes are a head.
        unsafe { &*self.base.add(at).cast() }
    }

    /// The place of the epoch `id`; `None`: all are taken.
    pub fn slot(&self, id: u32) -> Option<Slot> {
        (0..EPOCHS as u8).map(Slot).find(|&slot| {
            // Relaxed: who owns the place is all there is to know.
            match self.head(slot).id.compare_exchange(0, id + 1, Relaxed, Relaxed) {
                Ok(_) => true,
                Err(seen) => seen == id + 1,
            }
        })
    }

    /// Sets an epoch's name, cut to 63 bytes.
    pub fn name(&self, slot: Slot, name: &[u8]) {
        for (at, byte) in self.head(slot).name[..NAME - 1].iter().enumerate() {
            byte.store(name.get(at).copied().unwrap_or(0), Relaxed); // for the reader's eyes
        }
    }

    /// Sets an epoch's percentile, in millionths.
    pub fn percentile(&self, slot: Slot, millionths: u32) {
        self.head(slot).percentile.store(millionths, Relaxed); // a number by itself
    }

    /// Records one execution, which ended at `now_ns` of `CLOCK_MONOTONIC`; `false` if there is no room on the disk.
    pub fn record(&self, slot: Slot, sample: &Sample, now_ns: u64) -> bool {
        let class = usize::from(sample.class).min(CLASSES - 1);
        let head = self.head(slot);
        let Some(block) = self.block(head, slot, class) else { return false };
        // Relaxed, all of them: counters, of which a reader needs no order.
        block.buckets[bucket(sample.latency_ns)].fetch_add(1, Relaxed);
        if block.max_ns.load(Relaxed) < sample.latency_ns {
            block.max_ns.fetch_max(sample.latency_ns, Relaxed);
        }
        if block.min_inverted.load(Relaxed) < !sample.latency_ns {
            block.min_inverted.fetch_max(!sample.latency_ns, Relaxed);
        }
        if sample.is_violation() {
            block.violations.fetch_add(1, Relaxed);
        }
        if sample.is_at_fifo() {
            block.at_fifo.fetch_add(1, Relaxed);
            if sample.is_violation() {
                block.at_fifo_violations.fetch_add(1, Relaxed);
            }
        }
        block.window_ns.store(sample.next_window_ns.into(), Relaxed);
        if head.slo_ns.load(Relaxed) != sample.slo_ns {
            head.slo_ns.store(sample.slo_ns, Relaxed);
        }
        // All threads share this word: it is written once a millisecond.
        let last = &self.header().last_ns;
        if last.load(Relaxed) + 1_000_000 <= now_ns {
            last.store(now_ns, Relaxed);
        }
        true
    }

    fn block(&self, head: &EpochHead, slot: Slot, class: usize) -> Option<&ClassBlock> {
        let at = block_at(usize::from(slot.0) % EPOCHS, class);
        let classes = head.classes.load(Relaxed); // the pages are there or not, for all threads
        if classes & 1 << class == 0 && !self.open_block(&head.classes, at, class) {
            return None;
        }
        // SAFETY: within the mapping, aligned to a page; zeroes are an empty block.
        Some(unsafe { &*self.base.add(at).cast() })
    }

    #[cold]
    fn open_block(&self, classes: &AtomicU32, at: usize, class: usize) -> bool {
        if classes.load(Relaxed) & 1 << (16 + class) != 0 {
            return false;
        }
        let is_there = self.populate(at, BLOCK).is_ok();
        let bit = if is_there { 1 << class } else { 1 << (16 + class) };
        classes.fetch_or(bit, Relaxed); // as in `block`
        is_there
    }
}

fn open(dir: &[u8], pid: u32, path: &mut [u8; 4096]) -> Result<i32, Refused> {
    if dir.len() > 4000 {
        return Err(Refused(libc::ENAMETOOLONG));
    }
    for number in 0..FILES {
        let mut len = 0;
        let mut push = |piece: &[u8]| {
            path[len..len + piece.len()].copy_from_slice(piece);
            len += piece.len();
        };
        let mut digits = [0; 10];
        push(dir);
        push(b"/");
        push(decimal(pid, &mut digits));
        push(b"-");
        push(decimal(number, &mut digits));
        push(b".stats\0");
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        // SAFETY: a NUL-terminated path.
        let fd = unsafe {
            // Not libc's `open`, which is a cancellation point.
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o644) as i32
        };
        if fd >= 0 {
            return Ok(fd);
        }
        if errno() != libc::EEXIST {
            return Err(Refused(errno()));
        }
    }
    Err(Refused(libc::EEXIST))
}

fn decimal(mut number: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

/// Copies what fits; the last byte stays zero.
fn fill(field: &mut [u8], text: &[u8]) {
    let len = text.len().min(field.len() - 1);
    field[..len].copy_from_slice(&text[..len]);
}

fn errno() -> i32 {
    // SAFETY: the calling thread's own `errno`.
    unsafe { *libc::__errno_location() }
}

const _: () = assert!(size_of::<AtomicU8>() == 1);
