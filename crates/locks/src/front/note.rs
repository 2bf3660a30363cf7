//! What a rule notes on a waiter's node.

use lockwright_platform::Class;

/// What a waiter's node says about it, for rules that choose among waiters. Written before it joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The class of the core on which it asked.
    pub class: Class,
    /// When it asked, in nanoseconds of the machine's clock; 0: its rule did not look.
    pub asked_ns: u64,
    /// For the rule's own use.
    pub own: u32,
    /// The policy that must learn of a release by this node; 0: none.
    pub tells: u8,
    /// Its node describes it to policies.
    pub described: bool,
    /// It stays asleep until it is head.
    pub parks: bool,
}

impl Default for Note {
    fn default() -> Self {
        Self { class: Class::BIG, asked_ns: 0, own: 0, tells: 0, described: false, parks: false }
    }
}
