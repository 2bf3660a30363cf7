//! What each core did when, for inspecting single runs.

/// What a core does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Computes, or waits for a line with data.
    Work,
    /// In the operating system.
    Kernel,
    /// Spins on its own copy of a line.
    SpinLocal,
    /// Waits for a line that it wants to modify.
    SpinGlobal,
    /// Nothing.
    Idle,
}

/// A stretch of time on a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The CPU.
    pub cpu: u32,
    /// The thread that ran there, if any.
    pub thread: Option<u32>,
    /// What it did.
    pub activity: Activity,
    /// From when, ps.
    pub start_ps: u64,
    /// Until when, ps.
    pub end_ps: u64,
}

/// A lock held by a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The lock's number.
    pub lock: u32,
    /// The holder.
    pub thread: u32,
    /// When it asked, ps.
    pub asked_ps: u64,
    /// When it had it, ps.
    pub start_ps: u64,
    /// When it released, ps.
    pub end_ps: u64,
}

/// A run's history; bounded.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// What cores did, ordered by end.
    pub spans: Vec<Span>,
    /// Who held locks, ordered by release.
    pub holds: Vec<Hold>,
    /// Entries that found no room.
    pub dropped: u64,
    limit: usize,
    from_ps: u64,
}

impl Timeline {
    /// Records at most `limit` entries of each kind, from `from_ps` on.
    pub(crate) fn new(limit: usize, from_ps: u64) -> Self {
        Self { limit, from_ps, ..Self::default() }
    }

    pub(crate) fn span(
        &mut self,
        cpu: u32,
        thread: Option<u32>,
        activity: Activity,
        start: u64,
        end: u64,
    ) {
        let start = start.max(self.from_ps);
        if end <= start || activity == Activity::Idle {
            return;
        }
        if self.spans.len() < self.limit {
            self.spans.push(Span { cpu, thread, activity, start_ps: start, end_ps: end });
        } else {
            self.dropped += 1;
        }
    }

    pub(crate) fn hold(&mut self, hold: Hold) {
        if hold.start_ps < self.from_ps {
            return;
        }
        if self.holds.len() < self.limit {
            self.holds.push(hold);
        } else {
            self.dropped += 1;
        }
    }
}
