//! States that have ended on every way, by place.

use super::state::{Known, Reg};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// The most states that are kept for a hook: with full stacks they need 100 MB, usually a hundredth of that.
const ALL: usize = 8192;
/// The most for one place with the same constants.
const ALIKE: usize = 64;
/// The most for one place, whatever they have.
const RECENT: usize = 32;

/// When a place has that many, states there are taken together.
const SEVERAL: usize = 4;

/// A state that has ended on every way.
pub(super) struct Done {
    pub(super) state: Known,
    /// The longest way from it to an end, in instructions.
    pub(super) longest: u32,
    /// The slots of the stack that were read on the way.
    pub(super) read: u64,
}

/// The registers that are constants, a bit each, and their values. States of a place differ there most of all: in a loop's counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Constants {
    set: u16,
    values: [u64; 10],
}

impl Constants {
    fn of(state: &Known) -> Self {
        let mut constants = Self { set: 0, values: [0; 10] };
        for (number, (reg, value)) in state.regs.iter().zip(&mut constants.values).enumerate() {
            if let Reg::Number(known) = reg
                && let Some(constant) = known.constant()
            {
                constants.set |= 1 << number;
                *value = constant;
            }
        }
        constants
    }
}

/// All of a hook. A state is looked for among those with the same constants, and among the newest, which may know less.
#[derive(Default)]
pub(super) struct AllDone {
    alike: HashMap<(usize, Constants), VecDeque<Rc<Done>>>,
    recent: HashMap<usize, VecDeque<Rc<Done>>>,
    count: usize,
}

impl AllDone {
    pub(super) fn add(&mut self, at: usize, done: Done) {
        let (constants, done) = (Constants::of(&done.state), Rc::new(done));
        let push = |kept: &mut VecDeque<Rc<Done>>, most: usize| {
            kept.push_front(Rc::clone(&done));
            kept.truncate(most);
        };
        push(self.recent.entry(at).or_default(), RECENT);
        if self.count < ALL {
            self.count += 1;
            push(self.alike.entry((at, constants)).or_default(), ALIKE);
        }
    }

    /// The newest of a place, once there are several.
    pub(super) fn newest(&self, at: usize) -> Option<&Done> {
        let recent = self.recent.get(&at).filter(|recent| recent.len() >= SEVERAL)?;
        recent.front().map(Rc::as_ref)
    }

    /// One that covers this state, and has no more than `left` instructions.
    pub(super) fn find(&self, at: usize, state: &Known, left: u32) -> Option<&Done> {
        let alike = self.alike.get(&(at, Constants::of(state)));
        let mut all = alike.into_iter().chain(self.recent.get(&at)).flatten();
        let found = all.find(|done| done.longest <= left && done.state.includes(state));
        found.map(Rc::as_ref)
    }
}
