//! What is known of a policy before anybody loads it: the verifier's verdict, and what it costs.

use super::chosen::Chosen;
use crate::hints::Failure;
use crate::output::{plain, shown, table};
use lockwright_contract::programs::maps::{MapKind, MapSpec};
use lockwright_numbers::format::time;
use lockwright_policy::kernel::{KernelVerdict, Unavailable};
use lockwright_policy::object::{NamedConstant, NamedMap, Object};
use lockwright_policy::verify::{Complaint, HookReport, Rejected, Verified};
use lockwright_policy::{Cost, cost, image, kernel};
use serde_json::{Value, json};

/// The verdict on a policy.
pub(crate) struct PolicyVerdict {
    title: String,
    result: Result<Accepted, Rejected>,
    kernel: Option<Result<Vec<KernelVerdict>, Unavailable>>,
}

struct Accepted {
    verified: Verified,
    costs: Vec<Cost>,
}

impl PolicyVerdict {
    /// Verifies a policy, measures what its hooks cost, and asks the kernel's verifier if that is wanted.
    pub(crate) fn of(chosen: &Chosen, asks_kernel: bool) -> Result<Self, Failure> {
        let result = match chosen.verify() {
            Ok(verified) => {
                let costs = cost(&verified)
                    .map_err(|error| Failure::new(format!("cannot compile it: {error}")))?;
                Ok(Accepted { costs, verified })
            }
            Err(rejected) => Err(rejected),
        };
        // The kernel takes seconds for a hook that doesn't end, so it is asked only about hooks that do.
        let kernel = result.as_ref().ok().filter(|_| asks_kernel);
        let kernel = kernel.map(|accepted| kernel::check(&accepted.verified));
        Ok(Self { title: chosen.title(), result, kernel })
    }

    /// Is it accepted, by the kernel, too, if that was asked and has answered?
    pub(crate) fn is_accepted(&self) -> bool {
        let refusals = self.kernel.iter().flatten().flatten();
        self.result.is_ok() && refusals.into_iter().all(|verdict| verdict.refusal.is_none())
    }

    pub(crate) fn text(&self) -> String {
        let title = shown(&self.title);
        let accepted = match &self.result {
            Ok(accepted) => accepted,
            Err(rejected) => return format!("{title}: rejected\n{rejected}\n"),
        };
        let mut text = format!("{title}: accepted\n\n");
        let mut hooks =
            table(&["hook", "instructions", "longest path", "stack", "cost", "at worst"]);
        hooks = hooks.all_by("--format json");
        for (report, cost) in accepted.hooks() {
            hooks.add_row([
                report.hook.name().to_owned(),
                report.insns.to_string(),
                report.longest.to_string(),
                format!("{} B", report.stack),
                cost.map_or("-".to_owned(), |cost| time(cost.median_ns)),
                cost.map_or("-".to_owned(), |cost| time(cost.worst_ns)),
            ]);
        }
        text += &plain(&hooks);
        let maps = &accepted.verified.object().maps;
        if !maps.is_empty() {
            let mut drawn = table(&["map", "kind", "entries", "key", "value", "in all"]);
            drawn = drawn.all_by("--format json");
            for (number, map) in maps.iter().enumerate() {
                let MapSpec { kind, key_size, value_size, max_entries } = map.spec;
                let bytes =
                    |size: u32| if size == 0 { "-".to_owned() } else { format!("{size} B") };
                let is_ring = kind == MapKind::Ring;
                drawn.add_row([
                    map.name.clone(),
                    kind_name(kind).to_owned(),
                    if is_ring { "-".to_owned() } else { max_entries.to_string() },
                    bytes(key_size),
                    bytes(value_size),
                    format!("{} B", len(map, number)),
                ]);
            }
            text += &format!("\n{}", plain(&drawn));
        }
        text += &constants_text(accepted.verified.object());
        text += "\ncost: real, compiled, on this machine, of one call; the longest path is of\n  instructions, as the verifier has found it\n";
        text + &self.kernel_text()
    }

    fn kernel_text(&self) -> String {
        match &self.kernel {
            None => String::new(),
            Some(Err(unavailable)) => format!("kernel: not asked: {unavailable}\n"),
            Some(Ok(verdicts)) => {
                let refused = verdicts.iter().filter_map(|verdict| {
                    let refusal = verdict.refusal.as_ref()?;
                    Some(format!("kernel: refuses {}: {}\n", verdict.hook.name(), refusal.reason))
                });
                let refused: String = refused.collect();
                match refused.is_empty() {
                    true => "kernel: its own verifier accepts each hook\n".to_owned(),
                    false => refused,
                }
            }
        }
    }

    pub(crate) fn json(&self) -> Value {
        let kernel = match &self.kernel {
            None => Value::Null,
            Some(Err(unavailable)) => json!({ "unavailable": unavailable.to_string() }),
            Some(Ok(verdicts)) => {
                let verdict = |verdict: &KernelVerdict| {
                    json!({
                        "hook": verdict.hook.name(),
                        "accepted": verdict.refusal.is_none(),
                        "reason": verdict.refusal.as_ref().map(|refusal| &refusal.reason),
                    })
                };
                json!({ "hooks": verdicts.iter().map(verdict).collect::<Value>() })
            }
        };
        match &self.result {
            Err(rejected) => json!({
                "policy": self.title, "accepted": false,
                "complaints": rejected.complaints().iter().map(complaint).collect::<Value>(),
                "kernel": kernel,
            }),
            Ok(accepted) => {
                let object = accepted.verified.object();
                let (maps, constants) = (object.maps.iter().enumerate(), object.constants());
                json!({
                    "policy": self.title, "accepted": true,
                    "hooks": accepted.hooks().map(hook).collect::<Value>(),
                    "maps": maps.map(|(number, one)| map(number, one)).collect::<Value>(),
                    "constants": constants.map(constant).collect::<Value>(),
                    "kernel": kernel,
                })
            }
        }
    }
}

impl Accepted {
    fn hooks(&self) -> impl Iterator<Item = (&HookReport, Option<&Cost>)> {
        let cost = |report: &HookReport| self.costs.iter().find(|cost| cost.hook == report.hook);
        self.verified.reports().iter().map(move |report| (report, cost(report)))
    }
}

fn hook((report, cost): (&HookReport, Option<&Cost>)) -> Value {
    json!({
        "hook": report.hook.name(), "instructions": report.insns, "longest_path": report.longest,
        "stack_bytes": report.stack, "cost_ns": cost.map(|cost| cost.median_ns),
        "worst_cost_ns": cost.map(|cost| cost.worst_ns),
        "helpers": report.helpers.iter().map(|helper| helper.name).collect::<Value>(),
    })
}

fn map(number: usize, map: &NamedMap) -> Value {
    let MapSpec { kind, key_size, value_size, max_entries } = map.spec;
    json!({
        "name": map.name, "kind": kind_name(kind), "key_bytes": key_size, "value_bytes": value_size,
        "max_entries": max_entries, "bytes": len(map, number),
    })
}

fn constant((constant, value): (&NamedConstant, i128)) -> Value {
    // A value of 64 bits at most.
    let value = u64::try_from(value).map_or_else(|_| json!(value as i64), Value::from);
    json!({ "name": constant.name, "value": value })
}

/// A table of the constants that `--set` changes; none: nothing.
fn constants_text(object: &Object) -> String {
    let mut drawn = table(&["constant (--set)", "value", "least", "most"]);
    drawn = drawn.all_by("--format json");
    for (constant, value) in object.constants() {
        let (least, most) = constant.range();
        let name = constant.name.clone();
        drawn.add_row([name, value.to_string(), least.to_string(), most.to_string()]);
    }
    if object.constants().next().is_none() { String::new() } else { format!("\n{}", plain(&drawn)) }
}

fn complaint(complaint: &Complaint) -> Value {
    let line = complaint
        .line
        .as_ref()
        .map(|line| json!({ "file": line.file, "number": line.number, "text": line.text }));
    json!({
        "hook": complaint.hook.name(), "instruction": complaint.insn, "assembly": complaint.assembly,
        "line": line, "fault": format!("{:?}", complaint.fault), "what": complaint.what,
        "register": complaint.register, "hint": complaint.hint,
    })
}

/// The kinds of maps, as people call them.
pub(crate) fn kind_name(kind: MapKind) -> &'static str {
    match kind {
        MapKind::Hash => "hash",
        MapKind::Array => "array",
        MapKind::PerCpuArray => "array per CPU",
        MapKind::Ring => "ring",
    }
}

/// Bytes of a map, on a machine with as many CPUs as this one.
fn len(map: &NamedMap, number: usize) -> u64 {
    map.spec.header(number as u32, image::rows()).len
}
