//! What can be simulated: machines with their CPUs and figures, workloads with their options.

use super::perfetto::classes;
use super::plan::{machines, workload_named};
use crate::catalog;
use crate::hints::Failure;
use crate::output;
use lockwright_sim::load::Workload;
use lockwright_sim::profile::{BUILTIN, Origin, Profile, builtin};
use lockwright_sim::workload::WORKLOADS;
use serde_json::{Value, json};

/// Prints all of it, or of the machines and workloads named.
pub(crate) fn print(named: &[String], workloads: &[String], as_json: bool) -> Result<(), Failure> {
    let mut of = Vec::new();
    for word in workloads.iter().flat_map(|words| catalog::split(words)) {
        of.push(workload_named(word.split(':').next().unwrap_or(&word))?);
    }
    let all = named.is_empty() && of.is_empty();
    let profiles: Vec<Profile> = match named.is_empty() {
        true if all => BUILTIN.iter().filter_map(|(name, _)| builtin(name)).collect(),
        true => Vec::new(),
        false => machines(named)?.into_iter().map(|(_, profile)| (*profile).clone()).collect(),
    };
    if all {
        of = WORKLOADS.to_vec();
    }
    if as_json {
        return output::print_json(&json!({
            "machines": profiles.iter().map(machine_json).collect::<Value>(),
            "workloads": of.iter().map(|what| workload_json(what)).collect::<Value>(),
        }));
    }
    if all {
        let mut table = output::table(&["machine", "CPUs", "classes", "what"]);
        for profile in &profiles {
            let cpus = profile.cpus().to_string();
            table.add_row([profile.name.clone(), cpus, summary(profile), profile.title.clone()]);
        }
        output::print_table(&table)?;
        output::print("\nits CPUs and figures: lockwright sim --machine m1 --list\n\n")?;
    } else {
        for profile in &profiles {
            print_machine(profile)?;
        }
    }
    of.iter().try_for_each(|what| print_workload(what))
}

/// `4 big, 4 little`.
fn summary(profile: &Profile) -> String {
    let all = classes(profile);
    let of = |name: &String| {
        let count = all.iter().filter(|class| *class == name).count();
        format!("{count} {name}")
    };
    profile.class.iter().map(|class| of(&class.name)).collect::<Vec<_>>().join(", ")
}

/// A CPU as a profile numbers it.
struct Cpu {
    number: u32,
    class: String,
    core: u32,
    cluster: usize,
    node: u16,
}

/// Cluster by cluster; the hardware threads of a core follow each other.
fn cpus(profile: &Profile) -> Vec<Cpu> {
    let mut all = Vec::new();
    let mut core = 0;
    for (cluster, of) in profile.cluster.iter().enumerate() {
        let smt = profile.class_named(&of.class).map_or(1, |class| class.smt);
        for _ in 0..of.cores {
            for _ in 0..smt {
                let number = all.len() as u32;
                all.push(Cpu { number, class: of.class.clone(), core, cluster, node: of.domain });
            }
            core += 1;
        }
    }
    all
}

fn print_machine(profile: &Profile) -> Result<(), Failure> {
    output::print(&format!("{}: {}\n\n", profile.name, profile.title))?;
    let mut table = output::table(&["CPU", "class", "core", "cluster", "node"]);
    for cpu in cpus(profile) {
        table.add_row([
            cpu.number.to_string(),
            cpu.class,
            cpu.core.to_string(),
            cpu.cluster.to_string(),
            cpu.node.to_string(),
        ]);
    }
    output::print_table(&table)?;
    output::print(
        "\nCPUs of one core are its hardware threads; those of one cluster share a cache. Figures, which --sweep \
         takes by their names:\n\n",
    )?;
    let mut table = output::table(&["figure", "value", "from", "source"]);
    for (path, values) in figures(profile) {
        let from = profile.provenance_of(&path);
        let mut source = from.map_or(String::new(), |from| from.source.clone());
        if let Some(from) = from.filter(|from| !from.targets.is_empty()) {
            source = format!("to {}; {source}", from.targets.join(", "));
        }
        table.add_row([
            path.clone(),
            values.iter().map(f64::to_string).collect::<Vec<_>>().join(" "),
            from.map_or("", |from| origin(from.kind)).to_owned(),
            source,
        ]);
    }
    output::print_table(&table)?;
    output::print("\n")
}

fn origin(kind: Origin) -> &'static str {
    match kind {
        Origin::Measured => "measured",
        Origin::Published => "published",
        Origin::Fitted => "fitted",
        Origin::Assumed => "assumed",
    }
}

/// Figures by path; a matrix has several values.
fn figures(profile: &Profile) -> Vec<(String, Vec<f64>)> {
    let mut all: Vec<(String, Vec<f64>)> = Vec::new();
    for (path, value) in profile.figures() {
        match all.last_mut() {
            Some((last, values)) if *last == path => values.push(value),
            _ => all.push((path, vec![value])),
        }
    }
    all
}

fn print_workload(what: &Workload) -> Result<(), Failure> {
    output::print(&format!("{}: {}\n  from {}\n", what.id, what.idea, what.source))?;
    let mut table = output::table(&["  option", "default", "range", "meaning"]);
    for spec in what.params {
        table.add_row([
            format!("  {}", spec.key),
            spec.default.to_string(),
            format!("{} to {}", spec.min, spec.max),
            spec.meaning.to_owned(),
        ]);
    }
    if !what.params.is_empty() {
        output::print_table(&table)?;
    }
    output::print("\n")
}

fn machine_json(profile: &Profile) -> Value {
    let cpu = |cpu: Cpu| {
        json!({
            "cpu": cpu.number, "class": cpu.class, "core": cpu.core, "cluster": cpu.cluster,
            "node": cpu.node,
        })
    };
    let figure = |(path, values): (String, Vec<f64>)| {
        let from = profile.provenance_of(&path);
        json!({
            "figure": path, "values": values, "from": from.map(|from| origin(from.kind)),
            "source": from.map(|from| &from.source), "targets": from.map(|from| &from.targets),
        })
    };
    json!({
        "name": profile.name, "title": profile.title,
        "cpus": cpus(profile).into_iter().map(cpu).collect::<Value>(),
        "figures": figures(profile).into_iter().map(figure).collect::<Value>(),
    })
}

fn workload_json(what: &Workload) -> Value {
    let option = |spec: &lockwright_sim::load::ParamSpec| {
        json!({
            "key": spec.key, "meaning": spec.meaning, "default": spec.default,
            "min": spec.min, "max": spec.max,
        })
    };
    json!({
        "name": what.id, "idea": what.idea, "source": what.source,
        "options": what.params.iter().map(option).collect::<Value>(),
    })
}
