//! `--set NAME=VALUE`: other values for a policy's constants.

use crate::hints::{Failure, nearest};
use lockwright_numbers::units;
use lockwright_policy::object::{CantSet, Object};

/// Another value for a constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The policy whose constant it is; `None`: each that has it.
    policy: Option<String>,
    name: String,
    value: i128,
    /// As it was written.
    text: String,
}

impl Setting {
    /// Parses `NAME=VALUE` or `POLICY.NAME=VALUE`. A time is as many ns.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (whose, value) = text.split_once('=').ok_or("not NAME=VALUE")?;
        let (policy, name) = match whose.split_once('.') {
            Some((policy, name)) => (Some(policy.to_owned()), name),
            None => (None, whose),
        };
        if name.is_empty() || policy.as_deref() == Some("") {
            return Err("not NAME=VALUE or POLICY.NAME=VALUE".to_owned());
        }
        let (name, value, text) = (name.to_owned(), number(value)?, text.to_owned());
        Ok(Self { policy, name, value, text })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    fn is_for(&self, policy: &str) -> bool {
        self.policy.as_deref().is_none_or(|meant| meant == policy)
    }
}

/// `16`, `-1`, `0x10`, `true`, `2ms`.
fn number(text: &str) -> Result<i128, String> {
    let bad = || format!("'{text}' is neither a number nor a time such as 2ms");
    match text {
        "true" => return Ok(1),
        "false" => return Ok(0),
        _ => {}
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).map(i128::from).map_err(|_| bad());
    }
    text.parse().or_else(|_| units::nanoseconds(text).map(i128::from)).map_err(|_| bad())
}

/// Sets the constants of policies, each with its name.
pub(super) fn apply<'a>(
    settings: &[Setting],
    policies: impl IntoIterator<Item = (&'a str, &'a mut Object)>,
) -> Result<(), Failure> {
    let mut policies: Vec<_> = policies.into_iter().collect();
    for setting in settings {
        let Setting { name, value, text, .. } = setting;
        let mut is_set = false;
        for (policy, object) in policies.iter_mut().filter(|(policy, _)| setting.is_for(policy)) {
            match object.set(name, *value) {
                Ok(()) => is_set = true,
                Err(CantSet::Unknown) => {}
                Err(CantSet::Range(least, most)) => {
                    return Err(Failure::new(format!(
                        "cannot set '{text}': '{name}' of {policy} can be {least} to {most}"
                    ))
                    .hint(format!("for example --set {name}={}", value_of(object, name))));
                }
            }
        }
        if !is_set {
            return Err(unknown(setting, &policies));
        }
    }
    Ok(())
}

fn value_of(object: &Object, name: &str) -> i128 {
    let mut all = object.constants().filter(|(constant, _)| constant.name == name);
    all.next().map_or(0, |(_, value)| value)
}

fn unknown(setting: &Setting, policies: &[(&str, &mut Object)]) -> Failure {
    let names: Vec<&str> = policies.iter().map(|(policy, _)| *policy).collect();
    let meant = policies.iter().filter(|(policy, _)| setting.is_for(policy));
    let constants: Vec<&str> = meant
        .flat_map(|(_, object)| object.constants())
        .map(|(constant, _)| constant.name.as_str())
        .collect();
    let Setting { policy, name, text, .. } = setting;
    if let Some(policy) = policy.as_deref().filter(|policy| !names.contains(policy)) {
        return Failure::new(format!("cannot set '{text}': '{policy}' isn't among the policies"))
            .hint(format!("the policies are {}", names.join(", ")));
    }
    let whose = policy.clone().unwrap_or_else(|| names.join("+"));
    let failure = Failure::new(format!("cannot set '{text}': {whose} has no constant '{name}'"));
    match (nearest(name, constants.iter().copied()), &constants[..]) {
        (Some(near), _) => failure.hint(format!("did you mean '{near}'?")),
        (None, []) => failure.hint(format!(
            "it has none; to make one, add to its source: const volatile __u64 {name} = 1;"
        )),
        (None, some) => failure.hint(format!("it has {}", some.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::chosen::Chosen;

    #[test]
    fn a_setting_is_a_name_and_a_number() {
        let one = Setting::parse("cal.worth_ns=1.5us").unwrap();
        assert_eq!((one.policy.as_deref(), &*one.name, one.value), (Some("cal"), "worth_ns", 1500));
        for (text, value) in
            [("a=-1", -1), ("a=0x10", 16), ("a=true", 1), ("a=18446744073709551615", (1 << 64) - 1)]
        {
            let one = Setting::parse(text).unwrap();
            assert_eq!((one.policy, one.value), (None, value), "{text}");
        }
        for bad in ["a", "=1", "a=", "a=fast", "a=1.5", "a=0xz", ".a=1", "numa.=1"] {
            assert!(Setting::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_policy_that_has_the_constant_gets_its_value() {
        let chosen = |settings: &[&str]| {
            let settings: Vec<_> =
                settings.iter().map(|text| Setting::parse(text).unwrap()).collect();
            Chosen::with(&["numa+big-first"], &settings)
        };
        let values = |settings: &[&str]| {
            let chosen = chosen(settings).unwrap();
            let parts = chosen.parts.iter().map(|(_, object)| {
                let mut all = object.constants().filter(|(one, _)| one.name == "most_passed");
                all.next().unwrap().1
            });
            let in_parts: Vec<_> = parts.collect();
            // The whole has what its parts have.
            let whole = chosen.verified().unwrap();
            let whole: Vec<_> = whole
                .object()
                .constants()
                .filter(|(one, _)| one.name.ends_with(".most_passed"))
                .map(|(_, value)| value)
                .collect();
            assert_eq!(whole, in_parts);
            in_parts
        };
        assert_eq!(values(&[]), [500, 500]);
        assert_eq!(values(&["most_passed=7"]), [7, 7]);
        assert_eq!(values(&["most_passed=7", "numa.most_passed=8"]), [8, 7]);
        for (bad, why) in [
            ("most_pased=7", "numa+big-first has no constant 'most_pased'"),
            ("cal.most_passed=7", "'cal' isn't among the policies"),
            ("big-first.worth_ns=7", "big-first has no constant 'worth_ns'"),
            ("most_passed=-1", "'most_passed' of numa can be 0 to 4294967295"),
        ] {
            let failure = chosen(&[bad]).unwrap_err();
            assert!(failure.message().ends_with(why), "{}", failure.message());
        }
    }
}
