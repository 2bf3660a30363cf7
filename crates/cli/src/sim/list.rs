//! What can be simulated: machines with their CPUs and figures, workloads with their options.

use super::perfetto::classes;
use super::words::{machines, workload_named};
use crate::catalog;
use crate::hints::Failure;
use crate::output;
use lockwright_locks::entry::Entry;
use lockwright_sim::LockSpec;
use lockwright_sim::load::Workload;
use lockwright_sim::profile::{BUILTIN, Cluster, Origin, Profile, builtin};
use lockwright_sim::workload::WORKLOADS;
use serde_json::{Value, json};

/// Prints everything, or only the named machines and workloads.
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
        let mut listed = json!({
            "machines": profiles.iter().map(machine_json).collect::<Value>(),
            "workloads": of.iter().map(|what| workload_json(what)).collect::<Value>(),
        });
        if all {
            let lock = |entry: &Entry| json!({"name": entry.id, "idea": entry.idea, "source": entry.source});
            listed["locks"] = LockSpec::published().map(lock).collect();
        }
        return output::print_json(&listed);
    }
    if all {
        let mut table =
            output::table(&["machine", "CPUs", "classes", "what"]).all_by("--format json");
        for profile in &profiles {
            let cpus = profile.cpus().to_string();
            table.add_row([profile.name.clone(), cpus, summary(profile), profile.title.clone()]);
        }
        output::print_table(&table)?;
        output::print("\nits CPUs and figures: lockwright sim --machine m1 --list\n\n")?;
        output::print("locks that are only simulated, to compare with their papers:\n\n")?;
        let mut table = output::table(&["lock", "idea"]).all_by("--format json");
        for entry in LockSpec::published() {
            table.add_row([entry.id, entry.idea]);
        }
        output::print_table(&table)?;
        output::print("\nall other locks: lockwright list\n\n")?;
    } else {
        for profile in &profiles {
            print_machine(profile)?;
        }
    }
    of.iter().try_for_each(|what| print_workload(what))
}

/// Fails unless there are a lock and a machine. Who gives neither sees which there are.
pub(crate) fn required(locks: &[String], machines: &[String]) -> Result<(), Failure> {
    let missing = match (locks.is_empty(), machines.is_empty()) {
        (false, false) => return Ok(()),
        (true, true) => {
            output::say(&choice());
            "--lock <LOCKS> --machine <MACHINES>"
        }
        (true, false) => "--lock <LOCKS>",
        (false, true) => "--machine <MACHINES>",
    };
    let one = |given: &[String], example: &str| match given {
        [] => example.to_owned(),
        given => given.join(","),
    };
    Err(Failure::new(format!("the following required arguments were not provided: {missing}"))
        .hint(format!(
            "lockwright sim --machine {} --lock {}",
            one(machines, BUILTIN[0].0),
            one(locks, EXAMPLE)
        )))
}

/// Two locks that show a difference on unequal cores.
const EXAMPLE: &str = "mcs,asl";

/// The names of all machines and locks, and an example.
fn choice() -> String {
    let machines: Vec<_> = BUILTIN.iter().map(|(name, _)| *name).collect();
    let published = LockSpec::published().map(|entry| entry.id.to_owned());
    let locks: Vec<_> = catalog::ANY.0().into_iter().chain(published).collect();
    format!(
        "{}{}{}\n",
        output::beside("machines: ", &machines.join(", ")),
        output::beside("locks:    ", &locks.join(", ")),
        output::beside(
            "more:     ",
            "lockwright sim --list describes the machines and workloads, lockwright list the locks"
        ),
    )
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

/// A cluster's CPUs. Their numbers are consecutive, and so are those of each core's hardware threads.
struct Cpus<'a> {
    of: &'a Cluster,
    first: u32,
    last: u32,
    /// Hardware threads per core.
    smt: u32,
}

impl Cpus<'_> {
    /// The CPUs of each core.
    fn cores(&self) -> impl Iterator<Item = Vec<u32>> {
        let (first, smt) = (self.first, self.smt);
        (0..self.of.cores).map(move |core| (0..smt).map(|n| first + core * smt + n).collect())
    }
}

fn cpus(profile: &Profile) -> Vec<Cpus<'_>> {
    let mut first = 0;
    let mut all = Vec::new();
    for of in &profile.cluster {
        let smt = profile.class_named(&of.class).map_or(1, |class| class.smt);
        let end = first + of.cores * smt;
        all.push(Cpus { of, first, last: end - 1, smt });
        first = end;
    }
    all
}

fn print_machine(profile: &Profile) -> Result<(), Failure> {
    let title = format!("{}: {}", profile.name, profile.title);
    output::print(&format!("{}\n\n", output::wrapped(&title)))?;
    let mut table =
        output::table(&["CPUs", "class", "cluster", "node", "hardware threads of a core"])
            .all_by("--format json");
    for (number, cpus) in cpus(profile).iter().enumerate() {
        let range = match cpus.first == cpus.last {
            true => cpus.first.to_string(),
            false => format!("{}-{}", cpus.first, cpus.last),
        };
        let core = |core: Vec<u32>| core.iter().map(u32::to_string).collect::<Vec<_>>().join("+");
        let siblings = match cpus.smt {
            1 => "1".to_owned(),
            _ => cpus.cores().map(core).collect::<Vec<_>>().join(" "),
        };
        let node = cpus.of.domain.to_string();
        table.add_row([range, cpus.of.class.clone(), number.to_string(), node, siblings]);
    }
    output::print_table(&table)?;
    output::print(
        "\nThe CPUs of a cluster share a cache. Figures, by the names that --sweep takes:\n\n",
    )?;
    let mut table = output::table(&["figure", "value", "from", "source"]).all_by("--format json");
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
    let head = format!("{}: {}\n  from {}", what.id, what.idea, what.source);
    output::print(&format!("{}\n", output::wrapped(&head)))?;
    let mut table = output::table(&["  option", "default", "range", "meaning"])
        .least(&["range"])
        .all_by("--format json");
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
    let cluster = |cpus: &Cpus<'_>| {
        json!({
            "class": cpus.of.class, "node": cpus.of.domain,
            "cores": cpus.cores().collect::<Vec<_>>(),
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
        "cpus": profile.cpus(), "clusters": cpus(profile).iter().map(cluster).collect::<Value>(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_nothing_sees_all_machines_and_locks() {
        let text = choice();
        for name in BUILTIN.iter().map(|(name, _)| (*name).to_owned()).chain(catalog::ANY.0()) {
            assert!(text.contains(&name), "no {name} in {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= output::WIDTH), "{text}");
    }

    #[test]
    fn the_example_keeps_what_was_given() {
        let said = |locks: &[&str], machines: &[&str]| {
            let words = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
            required(&words(locks), &words(machines)).map_err(|failure| failure.to_string())
        };
        assert!(said(&["tas"], &["m1"]).is_ok());
        assert!(said(&[], &["xeon-2x10"]).unwrap_err().contains("not provided: --lock <LOCKS>"));
        assert!(said(&["tas"], &[]).unwrap_err().contains("not provided: --machine <MACHINES>"));
    }
}
