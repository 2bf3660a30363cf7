//! Policies side by side: who decides what in the same situations, and where they disagree.

use super::drawn::Drawn;
use lockwright_platform::hooks::{Context, Hook, Policy};
use lockwright_policy::loaded::Loaded;

/// How many situations are drawn for each hook.
pub(crate) const STATES: u32 = 2000;

/// Where the draws begin.
const SEED: u64 = 1;

/// A hook that at least one of the policies has.
#[derive(Debug)]
pub(crate) struct Compared {
    pub(crate) hook: Hook,
    /// One for each policy that has the hook, in their order.
    pub(crate) voices: Vec<Voice>,
    /// The first situation in which a later policy disagrees with the one whose answer counts.
    pub(crate) conflict: Option<Conflict>,
}

/// What one policy says in all situations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Voice {
    /// The number of the policy.
    pub(crate) policy: usize,
    /// How often it answers something other than 0.
    pub(crate) decides: u32,
    /// How often its answer counts.
    pub(crate) counts: u32,
    /// How often an earlier policy's answer counts, and this one would have answered otherwise.
    pub(crate) overruled: u32,
}

/// A situation in which policies disagree.
#[derive(Clone, Debug)]
pub(crate) struct Conflict {
    pub(crate) context: Context,
    /// The policy whose answer counts, and that answer.
    pub(crate) counts: (usize, u64),
    /// The policy that it overrules, and what that would have answered.
    pub(crate) overruled: (usize, u64),
}

/// Asks all policies in the same situations. Each keeps its own maps from one situation to the next, as in a lock.
pub(crate) fn compare(policies: &[Loaded]) -> Vec<Compared> {
    let having = |hook: Hook| {
        let all = policies.iter().enumerate();
        all.filter(move |(_, policy)| policy.hooks() & hook.bit() != 0).map(|(number, _)| number)
    };
    let mut drawn = Drawn::new(SEED);
    let mut compared = Vec::new();
    for hook in Hook::ALL {
        let voices: Vec<Voice> =
            having(hook).map(|policy| Voice { policy, ..Voice::default() }).collect();
        if voices.is_empty() {
            continue;
        }
        let mut row = Compared { hook, voices, conflict: None };
        for _ in 0..STATES {
            let context = drawn.context(hook);
            let world = drawn.world(&context);
            let answer = |voice: &Voice| {
                let value = policies[voice.policy].ask(hook, &context, &world).value;
                (voice.policy, if value > hook.largest() { 0 } else { value })
            };
            let answers: Vec<(usize, u64)> = row.voices.iter().map(answer).collect();
            row.add(&context, &answers);
        }
        compared.push(row);
    }
    compared
}

impl Compared {
    fn add(&mut self, context: &Context, answers: &[(usize, u64)]) {
        let Some(counts) = answers.iter().position(|(_, answer)| *answer != 0) else { return };
        for (number, (voice, (_, answer))) in self.voices.iter_mut().zip(answers).enumerate() {
            voice.decides += u32::from(*answer != 0);
            voice.counts += u32::from(number == counts);
            if number > counts && *answer != answers[counts].1 {
                voice.overruled += 1;
                if self.conflict.is_none() {
                    let (counts, overruled) = (answers[counts], answers[number]);
                    self.conflict = Some(Conflict { context: *context, counts, overruled });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_answer_counts_and_others_are_overruled_or_agree() {
        let voices = (0..3).map(|policy| Voice { policy, ..Voice::default() }).collect();
        let mut row = Compared { hook: Hook::CmpNode, voices, conflict: None };
        let context = Context::default();
        for answers in [[0, 0, 0], [0, 1, 1], [2, 0, 2], [0, 0, 1]] {
            let answers: Vec<_> = answers.into_iter().enumerate().collect();
            row.add(&context, &answers);
        }
        let found = row.voices.iter().map(|voice| (voice.decides, voice.counts, voice.overruled));
        assert_eq!(found.collect::<Vec<_>>(), [(1, 1, 0), (1, 1, 1), (3, 1, 0)]);
        let conflict = row.conflict.unwrap();
        assert_eq!((conflict.counts, conflict.overruled), ((0, 2), (1, 0)));
    }
}
