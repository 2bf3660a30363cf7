//! Policies on simulated machines: `policy:NAME[,key=value,...]` among the locks of `lockwright sim`.

use super::chosen::Chosen;
use super::{over, slots};
use crate::catalog;
use crate::hints::Failure;
use lockwright_platform::hooks::Hook;
use lockwright_policy::loaded::{Engine, Loaded};
use lockwright_policy::verify::Verified;
use lockwright_sim::{LockSpec, SlotPolicy};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The only slot of a simulated machine that has a policy.
const SLOT: u32 = 1;

/// A lock that only simulated machines have, or one that asks this policy; `None`: the word names another lock.
pub(crate) fn lock(word: &str) -> Result<Option<LockSpec>, Failure> {
    if let Some(published) = LockSpec::parse_published(word) {
        return published.map(Some).map_err(Failure::new);
    }
    let Some((policy, options)) = slots::split(word)? else { return Ok(None) };
    let (chosen, options) = (policy.chosen()?, options.as_deref());
    let verified = chosen.verified()?;
    // Each run loads it anew. If that can't be, say so now.
    Loaded::new(&verified, Engine::Interpreter).map_err(|error| {
        Failure::new(format!("cannot run {}: {error}", chosen.title()))
            .hint(format!("lockwright policy check {}", chosen.word()))
    })?;
    let lock = match verified.reports().iter().all(|report| report.hook == Hook::RwBias) {
        // It has nothing to say about mutexes.
        true => over::rw_lock(SLOT, options),
        false => over::lock(SLOT, options),
    };
    let spec = LockSpec::from(catalog::check_any(&lock)?).called(word);
    let program = SlotPolicy::new(identity(&chosen), move || Box::new(loaded(&verified)));
    Ok(Some(spec.programmed(SLOT, program)))
}

/// A new instance, whose maps are as its object has them. It is interpreted, since that counts instructions: they take simulated time.
fn loaded(verified: &Verified) -> Loaded {
    Loaded::new(verified, Engine::Interpreter).expect("loaded before, to be tried")
}

/// What tells it from others of the same name: results are kept by it.
fn identity(chosen: &Chosen) -> String {
    let mut hasher = DefaultHasher::new();
    for (named, object) in &chosen.parts {
        named.object.hash(&mut hasher);
        // What was set is in them.
        object.maps.iter().for_each(|map| map.initial.hash(&mut hasher));
    }
    format!("{} {:016x}", chosen.title(), hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_makes_another_policy() {
        let of = |word| identity(&slots::split(word).unwrap().unwrap().0.chosen().unwrap());
        let [plain, same, other] =
            ["policy:numa", "policy:numa,set.most_passed=500", "policy:numa,set.most_passed=9"]
                .map(of);
        assert_eq!(plain, same);
        assert_ne!(plain, other);
    }
}
