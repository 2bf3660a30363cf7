//! The locks: one algorithm, one file, one page.
//!
//! ```text
//!   spin/    tas ── ttas (look first, back off) ── ticket (in order) ── ptkt (each waiter watches a word of its own)
//!   queue/   mcs (wait on your own node) ── clh (wait on your predecessor's) ── reciprocating (stacks)
//!            mcs-tp (passes over preempted waiters) ── hapax (wait until your predecessor's number has left)
//!   numa/    cohort: a lock of locks, one for each cluster: c-tkt-tkt, cptltkt ── cna (mcs that prefers its own cluster)
//!   block/   mcs-stp: mcs, and sleep after a while ── glk: ticket, mcs or mutex, by load ── u-scl: slices of time by turns, and bans
//!   front/   on word 0 of a pthread_mutex_t, in glibc's own protocol (0, 1, 2; 3 and 4 are "more than 1" to glibc). Four floors:
//!              word    word 0, with all its transitions
//!              line    the queue of waiters: mcs, whose head competes for the word ── grant: hand-over by nodes ── choice: who is next
//!              learn/  saturation: should the lock stay where its data is? ── memos: how long are sections?
//!              rule/   fifo: nobody overtakes the line ── barging: running threads may, within a bound ── auto: whichever suits the machine
//!                      asl: fifo, but little cores stand by first (asl-max, asl-opt: fixed windows) ── slo: and turns ── pb10: 1 in 10 ── cal
//!                      malthusian: few circulate ── mutexee: wake nobody while somebody is awake ── programmed: a policy decides
//!   amp/     for unequal cores: feedback (from latency to window), standby (wait without queueing),
//!              reorderable (any lock with a line, with a second way to acquire it): asl-mcs, asl-ticket, asl-mcs-try,
//!              asl-cna, asl-c-tkt-tkt
//!   delegation/  the section goes to the data: rcl, ffwd (servers) ── flat-combining, dsm-synch, cc-synch, combiner, combiner-numa (a waiter)
//!   rw/      readers and writers, in phases        condvar   a list; a signal belongs to one waiter
//!   posix/   what a pthread_mutex_t means on top of them: kinds, owners, which lock
//! ```
//!
//! [`catalog`] is the only list of locks, and [`spec`] the only parser of `NAME[:key=value,...]`. All locks are generic over
//! [`lockwright_platform::Platform`]; those that need more of the machine say so in their bounds.
#![no_std]

pub mod amp;
pub mod block;
pub mod catalog;
pub mod condvar;
pub mod delegation;
pub mod entry;
pub mod front;
#[cfg(test)]
mod front_tests;
pub mod numa;
pub mod posix;
pub mod queue;
pub mod rw;
pub mod sources;
pub mod spec;
pub mod spin;
#[cfg(test)]
mod testing;
pub mod torn;
pub mod wide;
