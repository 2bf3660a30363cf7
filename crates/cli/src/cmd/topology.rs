//! `lockwright doctor --topology`.

use crate::format::FormatFlags;
use crate::hints::Failure;
use crate::{machine, output, pause};
use lockwright_bench::misspelt_class;
use lockwright_energy::Source;
use lockwright_native::cpus::Usable;
use lockwright_native::pause::Pause;
use lockwright_native::topology::{Class, Cpu, Factor, Topology};
use lockwright_numbers::format::given;
use serde_json::json;
use std::process::ExitCode;

/// The variable that the library reads.
pub(crate) const VARIABLE: &str = "LOCKWRIGHT_TOPOLOGY";

/// Show the cores: classes, capacities, siblings, domains, and the source of each figure
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright doctor --topology
  lockwright doctor --topology --set big:0,little:1    check an override
  lockwright doctor --topology --format json \\
    | jq '.cpus[] | select(.class == \"big\").cpu'")]
pub(crate) struct Args {
    /// Check these classes, fastest first, and show the cores accordingly
    #[arg(long, value_name = "CLASSES")]
    set: Option<String>,
    #[command(flatten)]
    format: FormatFlags,
}

/// The variable's value, unless it is empty.
pub(crate) fn from_environment() -> Option<String> {
    std::env::var(VARIABLE).ok().filter(|spec| !spec.is_empty())
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    let mut topology = read();
    if let Some(spec) = &args.set {
        set(&mut topology, spec, "--set")?;
    } else if let Some(spec) = from_environment() {
        set(&mut topology, &spec, VARIABLE)?;
    }
    let usable = Usable::read();
    if args.format.is_json() {
        print_json(&topology, usable, args.set.as_deref())?;
    } else {
        print_table(&topology, usable, args.set.as_deref())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What this machine reports about itself.
fn read() -> Box<Topology> {
    let mut topology = Box::new(Topology::new());
    topology.read(b"/sys");
    topology.ask_each_cpu();
    topology
}

/// Would the library accept this override?
pub(crate) fn check(spec: &str) -> Result<(), Failure> {
    set(&mut read(), spec, "--topology")
}

/// The variable by which the library emulates slower cores.
pub(crate) const EMULATE: &str = "LOCKWRIGHT_EMULATE";

/// Checks that the library would emulate this, and describes how slow each core is. `who` names the source of the
/// value.
pub(crate) fn check_emulation(spec: &str, who: &str) -> Result<String, Failure> {
    known_classes(spec, "emulated machine", who)?;
    let mut topology = read();
    let online: Vec<_> = topology.online().map(|(cpu, _)| cpu).collect();
    let factors = topology.set_emulated(spec).map_err(|error| {
        Failure::new(format!("bad emulated machine '{spec}' ({who}): {error}"))
            .hint(format!("for example '{}x3.75'; lockwright doctor --topology", example(&online)))
    })?;
    let slowed = factors.iter().zip(0..).filter(|(factor, _)| **factor != Factor::ONE);
    let slowed = slowed.map(|(factor, rank)| {
        let name = topology.class_name(Class(rank));
        let cpus = topology.online().filter(|(_, cpu)| cpu.class == Class(rank));
        let cpus: Vec<_> = cpus.map(|(number, _)| number).collect();
        let one = if cpus.len() == 1 { "cpu" } else { "cpus" };
        format!("{name} ({one} {}) computes {factor} times as long", list(&cpus))
    });
    let slowed: Vec<_> = slowed.collect();
    Ok(match slowed.is_empty() {
        true => format!("no core is slowed (add a factor: '{}x3.75')", example(&online)),
        false => slowed.join(", "),
    })
}

/// Refuses a mistyped class, which would otherwise become a new class.
fn known_classes(spec: &str, what: &str, who: &str) -> Result<(), Failure> {
    misspelt_class(spec).map_or(Ok(()), |(name, meant)| {
        Err(Failure::new(format!("bad {what} '{spec}' ({who}): unknown class '{name}'"))
            .hint(format!("did you mean '{meant}'? A new class must have a less similar name")))
    })
}

fn set(topology: &mut Topology, spec: &str, who: &str) -> Result<(), Failure> {
    known_classes(spec, "topology", who)?;
    let online: Vec<_> = topology.online().map(|(cpu, _)| cpu).collect();
    topology.set(spec).map_err(|error| {
        Failure::new(format!("bad topology '{spec}' ({who}): {error}"))
            .hint(format!("for example '{}'; lockwright doctor --topology", example(&online)))
    })
}

/// `0-3`, or `0,2,5`.
fn list(cpus: &[usize]) -> String {
    match cpus {
        [first, .., last] if last - first + 1 == cpus.len() => format!("{first}-{last}"),
        _ => cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(","),
    }
}

/// An override that this machine accepts.
fn example(online: &[usize]) -> String {
    match online.split_at(online.len() / 2) {
        ([], all) => format!("big:{}", list(all)),
        (big, little) => format!("big:{},little:{}", list(big), list(little)),
    }
}

fn print_table(topology: &Topology, usable: Usable, set: Option<&str>) -> Result<(), Failure> {
    let header = ["cpu", "class", "from", "capacity", "from", "sibling", "node", "domain", "from"];
    let mut table =
        output::table(&header).least(&["from", "domain", "node"]).all_by("--format json");
    for (number, cpu) in topology.online() {
        table.add_row([
            number.to_string(),
            topology.class_name(cpu.class).to_owned(),
            cpu.class_source.name().to_owned(),
            cpu.capacity.to_string(),
            cpu.capacity_source.name().to_owned(),
            sibling(number, cpu).map_or("-".to_owned(), |sibling| sibling.to_string()),
            cpu.node.to_string(),
            cpu.domain.to_string(),
            cpu.domain_source.name().to_owned(),
        ]);
    }
    output::print_table(&table)?;
    output::print(&format!("\nusable cpus: {} ({})\n", usable.cpus(), reason(usable)))?;
    output::print(&output::beside("waiting by: ", &pause::words()))?;
    let energy = Source::here(machine::watts());
    output::print(&output::beside("energy: ", &energy.lines().join("; ")))?;
    match set {
        Some(spec) => output::print(&format!("export {VARIABLE}='{spec}'\n")),
        None => Ok(()),
    }
}

fn print_json(topology: &Topology, usable: Usable, set: Option<&str>) -> Result<(), Failure> {
    let cpu = |(number, cpu): (usize, &Cpu)| {
        json!({
            "cpu": number,
            "class": topology.class_name(cpu.class), "rank": cpu.class.0,
            "class_from": cpu.class_source.name(),
            "capacity": cpu.capacity, "capacity_from": cpu.capacity_source.name(),
            "sibling": sibling(number, cpu), "node": cpu.node,
            "domain": cpu.domain, "domain_from": cpu.domain_source.name(),
        })
    };
    let energy = Source::here(machine::watts());
    output::print_json(&json!({
        "cpus": topology.online().map(cpu).collect::<serde_json::Value>(),
        "usable": {
            "cpus": usable.cpus(), "affinity": usable.affinity,
            "quota_cpus": usable.quota.map(|quota| f64::from(quota.time_us) / f64::from(quota.period_us)),
        },
        "pauses": Pause::ALL.map(|kind| json!({
            "name": kind.name(), "here": kind.is_here(), "tested": kind.is_tested(),
        })),
        "energy": { "source": energy.kind(), "what": energy.what(), "notes": energy.notes() },
        "export": set.map(|spec| format!("{VARIABLE}={spec}")),
    }))
}

fn sibling(number: usize, cpu: &Cpu) -> Option<u16> {
    Some(cpu.sibling).filter(|&sibling| usize::from(sibling) != number)
}

fn reason(usable: Usable) -> String {
    let affinity = format!("affinity allows {}", usable.affinity);
    match usable.quota {
        None => format!("{affinity}, no cpu quota"),
        Some(quota) => format!(
            "{affinity}, the cpu quota of {} in {} allows {}",
            given(u64::from(quota.time_us) * 1000),
            given(u64::from(quota.period_us) * 1000),
            quota.cpus()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_is_an_override_that_this_machine_accepts() {
        let mut topology = read();
        let online: Vec<_> = topology.online().map(|(cpu, _)| cpu).collect();
        topology.set(&example(&online)).unwrap();
        assert_eq!(example(&[0]), "big:0");
        assert_eq!(example(&[0, 1, 2, 3]), "big:0-1,little:2-3");
        assert_eq!(example(&[0, 2, 5]), "big:0,little:2,5");
    }
}
