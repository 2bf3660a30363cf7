//! The machine's loop: events in order of time.
//!
//! ```text
//!   event ──► what it changes (line, core, sleeper) ──► resume a thread ──► it runs until it has to wait
//!     ▲                                                                              │
//!     └───────────────── a later event: "resume me", "my request arrives" ◄──────────┘
//! ```

use super::{Engine, State};
use crate::agenda::What;
use crate::check::Violation;
use crate::units::Tid;
use corosensei::CoroutineResult;

impl Engine {
    /// Runs until all threads have ended, or a check fails.
    ///
    /// # Safety
    /// `this` is the current machine ([`super::with_engine`]), and nobody else uses it.
    pub(crate) unsafe fn run(this: *mut Self) {
        // SAFETY: the caller's promise; no reference is held while a coroutine runs.
        unsafe {
            (*this).start_noise();
            while let Some(thread) = (*this).next.take().or_else(|| (*this).go_on()) {
                Self::resume(this, thread);
            }
        }
    }

    /// # Safety
    /// As [`run`](Self::run).
    pub(crate) unsafe fn resume(this: *mut Self, thread: Tid) {
        // SAFETY: the caller's promise. While the coroutine runs, nobody looks at `coroutines`: all threads were
        // created before.
        unsafe {
            (*this).running = Some(thread);
            let place: *mut Option<_> = &mut (&mut (*this).coroutines)[thread as usize];
            let outcome = (*place).as_mut().expect("it has not ended").resume(());
            let e = &mut *this;
            e.running = None;
            if let CoroutineResult::Return(()) = outcome {
                let ended = e.coroutines[thread as usize].take();
                ended.expect("it has just ended").into_stack().give_back();
                e.ended(thread);
            }
        }
    }

    fn ended(&mut self, thread: Tid) {
        let one = &mut self.threads[thread as usize];
        one.state = State::Ended;
        one.turn += 1;
        let cpu = one.cpu;
        self.left -= 1;
        if let Some(explorer) = &mut self.explore {
            return explorer.ended(thread);
        }
        self.give_up_cpu(cpu, 0);
    }

    /// Handles events until a thread can go on; `None`: the run is over.
    pub(super) fn go_on(&mut self) -> Option<Tid> {
        while self.left > 0 && self.violation.is_none() {
            if let Some(thread) = self.step() {
                return Some(thread);
            }
        }
        None
    }

    /// Handles the next event; returns the thread that can go on, if any.
    #[inline]
    fn step(&mut self) -> Option<Tid> {
        let Some((time, what)) = self.agenda.pop() else {
            self.stuck("no event is left");
            return None;
        };
        self.handled += 1;
        self.now = time;
        self.pending -= 1;
        if self.now > self.limit {
            if !self.threads.iter().any(|thread| thread.on_its_own) {
                self.stuck("threads are left long after the end");
                return None;
            }
            self.progress();
        }
        match what {
            What::Resume { thread, turn } => {
                (self.threads[thread as usize].turn == turn).then(|| {
                    self.threads[thread as usize].turn += 1;
                    thread
                })
            }
            What::Arrive { thread, line, write } => self.arrive(thread, line, write),
            What::Free { line } => self.serve_next(line),
            What::Timer { thread, turn } => self.timer(thread, turn),
            What::Ready { thread } => {
                self.place_thread(thread);
                None
            }
            What::Slice { cpu, turn } => {
                self.idle -= 1;
                self.slice_ends(cpu, turn);
                None
            }
            What::Yield { thread, turn } => {
                self.yields(thread, turn);
                None
            }
            What::Noise { cpu } => {
                self.idle -= 1;
                self.noise(cpu);
                if self.pending == self.idle && !self.any_ready() {
                    self.stuck("nobody can go on");
                }
                None
            }
        }
    }

    fn any_ready(&self) -> bool {
        self.threads.iter().any(|thread| matches!(thread.state, State::Ready(_)))
    }

    #[inline(never)]
    fn timer(&mut self, id: Tid, turn: u32) -> Option<Tid> {
        let thread = &mut self.threads[id as usize];
        if thread.turn != turn {
            return None;
        }
        match thread.state {
            State::Spinning(line) => {
                thread.timed_out = true;
                thread.turn += 1;
                self.lines.stop_spinning(line, id);
                Some(id)
            }
            State::Sleeping(_) => {
                thread.timed_out = true;
                thread.turn += 1;
                thread.state = State::Woken;
                self.futexes.leave(id);
                self.place_thread(id);
                None
            }
            // It will see it when it has looked again.
            State::Asking(_) | State::Ready(_) => {
                thread.timed_out = true;
                None
            }
            State::Busy | State::InKernel(_) | State::Woken | State::Ended => None,
        }
    }

    /// Reports that no thread will ever go on, and what each waits for.
    #[cold]
    fn stuck(&mut self, why: &'static str) {
        if self.violation.is_none() {
            let who = (0..self.threads.len()).filter_map(|id| self.waits_for(id)).collect();
            let (why, at_ns) = (why.into(), self.now / 1000);
            self.violation = Some(Violation::Stuck { why, at_ns, who });
        }
    }

    fn waits_for(&self, id: usize) -> Option<String> {
        let thread = &self.threads[id];
        let what = match thread.state {
            State::Ended => return None,
            State::Busy => "runs".to_owned(),
            State::Asking(line) => format!("waits for line {line} to arrive"),
            State::Spinning(line) => {
                format!("spins on line {line}, word {}", self.lines.offset(thread.word))
            }
            State::InKernel(bucket) => format!("waits for bucket {bucket} of the kernel's futexes"),
            State::Ready(_) => format!("waits for CPU {}", thread.cpu),
            State::Sleeping(word) => {
                let (line, offset) = self.lines.name(word);
                format!("sleeps on line {line}, word {offset}")
            }
            State::Woken => "was woken".to_owned(),
        };
        Some(format!("{} {what}", thread.name))
    }
}
