//! Energy on a tree of files that stands for `/sys`, and what `calibrate --write` leaves for `run`.

use super::tune::tune;
use super::*;
use lockwright_bench::Machine;
use lockwright_energy::VARIABLE;

/// A machine with these files.
fn tree(files: &[(&str, &str)]) -> Result<TempDir> {
    let tree = TempDir::new()?;
    for (name, text) in files {
        let path = tree.path().join(name);
        fs::create_dir_all(path.parent().context("a folder")?)?;
        fs::write(path, format!("{text}\n"))?;
    }
    Ok(tree)
}

#[test]
fn topology_names_the_energy_source() -> Result<()> {
    let rapl = tree(&[
        ("class/powercap/intel-rapl:0/name", "package-0"),
        ("class/powercap/intel-rapl:0/energy_uj", "1"),
        ("class/powercap/intel-rapl:0/max_energy_range_uj", "1000"),
    ])?;
    let topology =
        |tree: &TempDir| lockwright().args(["doctor", "--topology"]).env(VARIABLE, tree.path());
    let text = topology(&rapl).run()?.text();
    assert!(text.contains("\nenergy: joules (rapl): intel-rapl:0\n"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&topology(&rapl).args(["--json"]).run()?.text())?;
    assert_eq!(json["energy"]["source"], "rapl");
    assert_eq!(json["energy"]["notes"], serde_json::json!([]));

    let text = topology(&tree(&[])?).run()?.text();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("energy: joules (model): 4.6 W busy, "), "{text}");
    assert!(text.contains("; nothing measures here"), "{text}");
    Ok(())
}

#[test]
fn tune_compares_throughput_latency_and_energy() -> Result<()> {
    let tree = tree(&[
        ("class/hwmon/hwmon0/name", "power_meter"),
        ("class/hwmon/hwmon0/power1_input", "30000000"),
    ])?;
    let options =
        ["--steps", "2", "--rounds", "1", "--time", "0.4", "--compare", "barging", "--pareto"];
    let (child, out) = tune("tune-pareto", &options, &[epochs_path(), "60", "annotated"]);
    let outcome = child.env(VARIABLE, tree.path()).run()?;
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    let text = outcome.text();
    assert!(text.contains("op/J (hwmon)") && text.contains("none *"), "{text}");
    assert!(text.contains("\njoules (hwmon): power_meter power1_input\n"), "{text}");
    let svg = fs::read_to_string(out.join("tune-pareto.svg"))?;
    assert!(svg.contains("executions per joule (hwmon)"), "{svg}");
    let json: serde_json::Value = serde_json::from_slice(&fs::read(out.join("tune.json"))?)?;
    assert_eq!(json["energy"]["source"], "hwmon");
    for run in json["runs"].as_array().context("an array")? {
        // 30 W for 0.4 s and longer.
        assert!(run["joules"].as_f64() >= Some(12.0), "{}", run["joules"]);
    }
    let point = &json["epochs"][0]["by_slo_ns"][0]["point"];
    assert!(point["per_joule"]["median"].as_f64() > Some(0.0), "{point}");
    Ok(())
}

#[test]
fn locks_run_with_what_calibrate_wrote() -> Result<()> {
    let config = TempDir::new()?;
    let file = config.path().join("lockwright/machine.toml");
    fs::create_dir_all(file.parent().context("a folder")?)?;
    let lock = |options: &[&str]| -> Result<(String, String)> {
        let child = lockwright().args(["run"]).args(options).args(["--", "env"]);
        let outcome = child.env("XDG_CONFIG_HOME", config.path()).run()?;
        ensure!(outcome.end == End::Code(0), outcome.describe());
        let text = outcome.text();
        let lock = text.lines().find_map(|line| line.strip_prefix("LOCKWRIGHT_LOCK="));
        Ok((lock.unwrap_or("-").to_owned(), outcome.errors()))
    };
    let alone = |lock: &str| (lock.to_owned(), String::new());
    let of = |cpu: &str| format!("cpu = {cpu:?}\nclass = []\n[lock.fifo]\nspin = 6300\n");
    assert_eq!(lock(&["--lock", "fifo"])?, alone("fifo"));
    fs::write(&file, of(&Machine::here().cpu))?;
    assert_eq!(lock(&["--lock", "fifo"])?, alone("fifo:spin=6300"));
    assert_eq!(lock(&["--lock", "fifo:spin=1"])?, alone("fifo:spin=1"));
    assert_eq!(lock(&["--lock", "barging"])?, alone("barging"));
    assert_eq!(lock(&[])?, alone("-"));
    let rules = config.path().join("locks.toml");
    fs::write(&rules, "default = \"fifo\"\n[[lock]]\nlibrary = \"libc.so.6\"\nuse = \"fifo\"\n")?;
    let child = lockwright().args(["run", "--config"]).args([&rules]).args(["--", "env"]);
    let text = child.env("XDG_CONFIG_HOME", config.path()).run()?.text();
    for line in ["LOCKWRIGHT_LOCK=fifo:spin=6300\n", "lib:libc.so.6=fifo:spin=6300"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // Homes are shared among machines.
    fs::write(&file, of("another processor"))?;
    assert_eq!(lock(&["--lock", "fifo"])?, alone("fifo"));
    fs::write(&file, "cpu = 1\n")?;
    let (runs, said) = lock(&["--lock", "fifo"])?;
    assert_eq!(runs, "fifo");
    assert!(
        said.starts_with("warning: '") && said.contains("machine.toml' is ignored: "),
        "{said}"
    );
    assert!(said.contains("\nhint: lockwright sim --calibrate --write\n"), "{said}");
    Ok(())
}
