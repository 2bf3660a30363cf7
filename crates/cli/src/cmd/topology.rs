//! `lockwright topology`.

use crate::hints::Failure;
use crate::output;
use lockwright_native::cpus::Usable;
use lockwright_native::topology::{Cpu, Topology};
use serde_json::json;
use std::process::ExitCode;

/// The variable that the library reads.
pub(crate) const VARIABLE: &str = "LOCKWRIGHT_TOPOLOGY";

/// Show the cores: classes, capacities, siblings, domains, and where each figure came from
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright topology
  lockwright topology --set big:0,little:1      check an override, print the variable to export
  lockwright topology --json | jq '.cpus[] | select(.class == \"big\").cpu'")]
pub(crate) struct Args {
    /// Check these classes, fastest first, and show the cores with them
    #[arg(long, value_name = "CLASSES")]
    set: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    let mut topology = read();
    if let Some(spec) = &args.set {
        set(&mut topology, spec, "--set")?;
    } else if let Ok(spec) = std::env::var(VARIABLE) {
        set(&mut topology, &spec, VARIABLE)?;
    }
    let usable = Usable::read();
    if args.json {
        print_json(&topology, usable, args.set.as_deref())?;
    } else {
        print_table(&topology, usable, args.set.as_deref())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What this machine tells of itself.
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

fn set(topology: &mut Topology, spec: &str, who: &str) -> Result<(), Failure> {
    let online: Vec<_> = topology.online().map(|(cpu, _)| cpu).collect();
    topology.set(spec).map_err(|error| {
        Failure::new(format!("bad topology '{spec}' ({who}): {error}"))
            .hint(format!("for example '{}'; lockwright topology", example(&online)))
    })
}

/// An override that this very machine accepts.
fn example(online: &[usize]) -> String {
    let list = |cpus: &[usize]| match cpus {
        [first, .., last] if last - first + 1 == cpus.len() => format!("{first}-{last}"),
        _ => cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(","),
    };
    match online.split_at(online.len() / 2) {
        ([], all) => format!("big:{}", list(all)),
        (big, little) => format!("big:{},little:{}", list(big), list(little)),
    }
}

fn print_table(topology: &Topology, usable: Usable, set: Option<&str>) -> Result<(), Failure> {
    let header = ["cpu", "class", "from", "capacity", "from", "sibling", "node", "domain", "from"];
    let mut table = output::table(&header);
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
    output::print_json(&json!({
        "cpus": topology.online().map(cpu).collect::<serde_json::Value>(),
        "usable": {
            "cpus": usable.cpus(), "affinity": usable.affinity,
            "quota_cpus": usable.quota.map(|quota| f64::from(quota.time_us) / f64::from(quota.period_us)),
        },
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
            "{affinity}, the cpu quota {} us in {} us allows {}",
            quota.time_us,
            quota.period_us,
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
