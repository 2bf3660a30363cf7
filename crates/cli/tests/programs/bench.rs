//! `bench`: whose lock was measured.

use super::*;

/// The locks that each worker says that it ran, beside those that it was asked for.
fn ran(options: &[&str]) -> Result<Vec<(String, String)>> {
    let file = FOLDER.path().join("bench.json");
    let name = file.to_str().context("a path in UTF-8")?;
    let tiny = [
        "--threads",
        "2",
        "--time",
        "0.01",
        "--rounds",
        "1",
        "--quiet",
        "--limit",
        "300s",
        "--json",
        name,
    ];
    let outcome = lockwright().args(["bench"]).args(options).args(tiny).run()?;
    ensure!(outcome.end == End::Code(0), outcome.describe());
    let json: serde_json::Value = serde_json::from_slice(&fs::read(&file)?)?;
    let samples = json["measured"]["samples"].as_array().context("samples")?;
    let pair = |sample: &serde_json::Value| {
        let subject = &json["subjects"][sample["subject"].as_u64()? as usize];
        let wanted = subject["choice"].as_str().unwrap_or("-");
        let in_force = &sample["answer"]["in_force"];
        let ran = in_force["locks"]["default"].as_str().or(in_force.as_str())?;
        Some((wanted.to_owned(), ran.to_owned()))
    };
    let unsaid = || format!("a sample doesn't say what it ran: {}", json["measured"]);
    samples.iter().map(pair).collect::<Option<_>>().with_context(unsaid)
}

#[test]
fn bench_asks_the_library_which_lock_it_ran() -> Result<()> {
    let pairs = ran(&["--lock", "fifo:bypass=8", "mcs", "in:mcs"])?;
    for lock in ["fifo:bypass=8", "mcs"] {
        ensure!(pairs.contains(&(lock.into(), lock.into())), "{pairs:?}");
    }
    // glibc, in:mcs, and the ceilings: no library is there.
    ensure!(pairs.contains(&("-".into(), "no_library".into())), "{pairs:?}");
    ensure!(pairs.iter().all(|(wanted, ran)| wanted == ran || ran == "no_library"), "{pairs:?}");

    let cpus = std::thread::available_parallelism()?.get();
    if cpus > 1 {
        // Emulated, glibc's algorithm and the ceiling's lock are the library's.
        let pairs = ran(&["--lock", "fifo", "--emulate", "big:0,little:1x2"])?;
        for lock in ["glibc", "fifo", "tas"] {
            ensure!(pairs.contains(&(lock.into(), lock.into())), "{pairs:?}");
        }
        ensure!(pairs.iter().all(|(wanted, ran)| wanted == ran), "{pairs:?}");
    }
    Ok(())
}
