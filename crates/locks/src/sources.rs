//! The source of files that say which weakened orderings nobody notices, and why: `lockwright explore` reads it there.

/// Files' names, from this crate's `src`, and what is in them.
pub const SOURCES: &[(&str, &str)] = &[
    ("amp/cal_textbook.rs", include_str!("amp/cal_textbook.rs")),
    ("amp/rearranger.rs", include_str!("amp/rearranger.rs")),
    ("queue/mcs_tp.rs", include_str!("queue/mcs_tp.rs")),
    ("numa/shfllock.rs", include_str!("numa/shfllock.rs")),
    ("delegation/combiner.rs", include_str!("delegation/combiner.rs")),
    ("delegation/mailbox.rs", include_str!("delegation/mailbox.rs")),
    ("condvar/mod.rs", include_str!("condvar/mod.rs")),
    ("front/mod.rs", include_str!("front/mod.rs")),
    ("front/rule/mod.rs", include_str!("front/rule/mod.rs")),
    ("front/word.rs", include_str!("front/word.rs")),
    ("front/line.rs", include_str!("front/line.rs")),
    ("front/choice.rs", include_str!("front/choice.rs")),
    ("front/grant.rs", include_str!("front/grant.rs")),
    ("front/near.rs", include_str!("front/near.rs")),
    ("front/waiter.rs", include_str!("front/waiter.rs")),
    ("torn.rs", include_str!("torn.rs")),
    ("posix/mutex.rs", include_str!("posix/mutex.rs")),
    ("posix/contended.rs", include_str!("posix/contended.rs")),
    ("rw/bravo.rs", include_str!("rw/bravo.rs")),
    ("rw/biased.rs", include_str!("rw/biased.rs")),
    ("rw/per_cpu.rs", include_str!("rw/per_cpu.rs")),
    ("rw/rwlock.rs", include_str!("rw/rwlock.rs")),
    ("rw/waiting.rs", include_str!("rw/waiting.rs")),
    ("posix/operations.rs", include_str!("posix/operations.rs")),
];
