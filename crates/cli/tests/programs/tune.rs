//! `tune`: which setting suits a program.

use super::*;

#[test]
fn makes_epochs_of_functions() -> Result<()> {
    let options =
        ["--steps", "2", "--rounds", "1", "--compare", "", "--epoch", "lock=clock_gettime@p95"];
    let (child, out) = tune("tune-function", &options, &[epochs_path(), "0.1", "plain"]);
    let outcome = child.run()?;
    if cfg!(not(target_arch = "x86_64")) {
        assert_eq!(outcome.end, End::Code(2), "{}", outcome.describe());
        return Ok(());
    }
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    let value: serde_json::Value = serde_json::from_slice(&fs::read(out.join("tune.json"))?)?;
    assert_eq!(value["epochs"][0]["epoch"], "lock");
    assert_eq!(value["epochs"][0]["percentile"], "P95");
    let slos: Vec<_> = value["runs"].as_array().context("an array")?.iter().collect();
    let slos: Vec<_> = slos.iter().map(|run| run["epochs"][0]["slo_ns"].as_u64()).collect();
    assert_eq!(slos, [Some(20_000), Some(2_000_000)]);
    Ok(())
}

/// `tune` with small figures; the program runs forever unless `--time` ends it.
pub(super) fn tune(out: &str, options: &[&str], program: &[&str]) -> (Child, PathBuf) {
    let out = FOLDER.path().join(out);
    let child = lockwright()
        .args(["tune", "--quiet", "--lock", "fifo", "--slo-range", "20us..2ms", "--out"])
        .args([&out])
        .args(options)
        .args(["--"])
        .args(program);
    (child, out)
}

#[test]
fn measures_a_program_and_recommends() -> Result<()> {
    let classes = two_classes()?;
    let mut options =
        vec!["--steps", "3", "--rounds", "2", "--time", "0.3", "--compare", "barging"];
    if let Some(classes) = &classes {
        options.extend(["--topology", classes]);
    }
    // On a busy machine, the threads of one class may get no CPU during a run. Then it has no row, but the run has.
    let columns = if classes.is_some() { 2..=3 } else { 2..=2 };
    let is_complete = |table: &str| {
        let cores = |line: &str| line.split(',').nth(6).map(str::to_owned);
        let rows = table.lines().skip(1).filter_map(cores);
        let (all, others): (Vec<_>, Vec<_>) = rows.partition(|cores| cores == "all");
        all.len() == 8
            && (8 * (columns.start() - 1)..=8 * (columns.end() - 1)).contains(&others.len())
    };
    let measure = || -> Result<(Outcome, PathBuf)> {
        let (child, out) = tune("tune", &options, &[epochs_path(), "60", "annotated"]);
        Ok((child.run()?, out))
    };
    let is_whole = |outcome: &Outcome, out: &Path| {
        let table = fs::read_to_string(out.join("tune.csv")).unwrap_or_default();
        outcome.end == End::Code(0) && is_complete(&table)
    };
    let (mut outcome, mut out) = measure()?;
    // If the machine stands still for as long as a run, the program ends before its first epoch.
    for _ in 0..3 {
        if !is_whole(&outcome, &out) {
            (outcome, out) = measure()?;
        }
    }
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    // The load is the test machine's own affair.
    assert!(outcome.errors().is_empty() || outcome.errors().starts_with("warning: other programs"));
    let text = outcome.text();
    assert!(text.starts_with("real: "), "{text}");
    assert!(text.contains("8 runs: 2 rounds of 4 settings, interleaved\n"), "{text}");
    for row in ["\nbarging ", "\nfifo, SLO 20us ", "\nfifo, SLO 200us ", "\nfifo, SLO 2ms "] {
        assert!(text.contains(row), "{row}: {text}");
    }
    assert!(text.contains("recommended for 'work': "), "{text}");
    let value: serde_json::Value = serde_json::from_slice(&fs::read(out.join("tune.json"))?)?;
    let curve = &value["epochs"][0];
    let slos: Vec<_> = curve["by_slo_ns"].as_array().context("an array")?.iter().collect();
    let given: Vec<_> = slos.iter().map(|point| point["setting"].as_u64()).collect();
    assert_eq!(given, [Some(20_000), Some(200_000), Some(2_000_000)]);
    assert!(slos.iter().all(|point| point["point"]["rate"]["median"].as_f64() > Some(100.0)));
    // The SLO of each run reached the program's epochs.
    for run in value["runs"].as_array().context("an array")? {
        let slo = run["epochs"][0]["slo_ns"].as_u64().context("a number")?;
        let setting = run["setting"].as_str().context("a setting")?;
        assert!(setting == "barging" || setting.starts_with("SLO "), "{setting}");
        let given = [("SLO 20us", 20_000), ("SLO 200us", 200_000), ("SLO 2ms", 2_000_000)];
        assert!(given.iter().all(|(name, ns)| *name != setting || *ns == slo), "{setting}: {slo}");
    }
    let table = fs::read_to_string(out.join("tune.csv"))?;
    assert!(is_complete(&table), "{table}");
    let page = fs::read_to_string(out.join("tune.html"))?;
    assert!(page.contains("<span class=\"tag\">real</span>") && page.contains("Y = X"), "{page}");
    assert!(!page.contains("<script") && !page.contains("src="), "needs no network");
    assert!(fs::read_to_string(out.join("tune.svg"))?.contains("&apos;work&apos; under fifo"));
    Ok(())
}

#[test]
fn keeps_what_was_measured_when_interrupted() -> Result<()> {
    // The program interrupts its grandparent in its third run.
    let script = format!(
        "echo >> {0}; {1} 0.1 annotated; [ $(wc -l < {0}) -lt 3 ] || {{ kill -INT $PPID; sleep 50; }}",
        FOLDER.path().join("turns").display(),
        epochs_path()
    );
    let options = ["--steps", "2", "--rounds", "9", "--compare", ""];
    let (child, out) = tune("tune-interrupted", &options, &["sh", "-c", &script]);
    let outcome = child.run()?;
    assert_eq!(outcome.end, End::Code(130), "{}", outcome.describe());
    let text = outcome.text();
    assert!(
        text.contains("2 runs: ") && text.contains("interrupted: 16 runs are missing"),
        "{text}"
    );
    let page = fs::read_to_string(out.join("tune.html"))?;
    assert!(page.contains("Incomplete: interrupted."), "{page}");
    Ok(())
}

#[test]
fn says_what_is_wrong_with_the_program() -> Result<()> {
    let options = ["--steps", "2", "--runs", "1"]; // its old name
    let (child, _) = tune("tune-none", &options, &[epochs_path(), "0.1", "plain"]);
    let outcome = child.run()?;
    assert_eq!(outcome.end, End::Code(2), "{}", outcome.describe());
    let errors = outcome.errors();
    assert!(errors.contains("executed no epoch with fifo\nhint: "), "{errors}");
    let script = format!("{} 0.1 annotated; echo 'disk full'; exit 3", epochs_path());
    let (child, out) = tune("tune-failed", &options, &["sh", "-c", &script]);
    let outcome = child.run()?;
    assert_eq!(outcome.end, End::Code(2), "{}", outcome.describe());
    let log = out.join("tune.log");
    let expected = format!(
        "error: 'sh' failed (exit code 3) with fifo: disk full\nhint: its output is in '{}'\n",
        log.display()
    );
    assert!(outcome.errors().ends_with(&expected), "{}", outcome.errors());
    Ok(())
}
