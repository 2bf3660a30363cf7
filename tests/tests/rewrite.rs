//! `lockwright rewrite` (R07): programs of `rewrite/` are rewritten, built with every warning an error, and run as they are, and under the
//! library in each mode. They check their own results.
//!
//! A program's first lines say what becomes of each function's sections:
//! `// converted: FUNCTION ...`, `// kept: FUNCTION ...`, `// refused: FUNCTION: WHY`.

use anyhow::{Context, Result, ensure};
use lockwright_rewrite::config::Config;
use lockwright_rewrite::database::Unit;
use lockwright_rewrite::{Change, Fate, Rewritten, SectionPlace, rewrite};
use lockwright_tests::{Child, End, compile, library, preload_list, scratch, source_dir};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn program(name: &str) -> PathBuf {
    source_dir().join("rewrite").join(name)
}

fn rewritten(source: &Path, wanted: &dyn Fn(&SectionPlace) -> bool) -> Result<Rewritten> {
    let folder = source.parent().context("a folder")?.to_owned();
    let of = |flag: &str| vec![flag.to_owned()];
    let (flags, others) = match source.ends_with("builds.c") {
        true => (of("-mpreferred-stack-boundary=5"), vec![of("-DWITHOUT_THREADS")]), // gcc's own, and another build
        false => (Vec::new(), Vec::new()),
    };
    let unit = Unit { path: source.to_owned(), folder, flags, others };
    let config =
        "harmless = ['place']\n[[guard]]\ntype = 'OwnGuard'\nmutex = '($1)->native_handle()'\n";
    let config = Config::read(config).map_err(anyhow::Error::msg)?;
    let result = rewrite(&[unit], &config, wanted, &mut |_| ()).map_err(anyhow::Error::msg)?;
    ensure!(result.unread.is_empty(), "{:?}", result.unread);
    Ok(result)
}

/// What the program's first lines expect, by function.
fn expected(source: &Path) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for line in fs::read_to_string(source)?.lines() {
        let Some(said) = line.strip_prefix("// ") else { break };
        let (fate, rest) = said.split_once(": ").context("what becomes of it")?;
        if fate == "refused" {
            let (function, why) = rest.split_once(": ").context("why")?;
            all.insert(function.to_owned(), why.to_owned());
        } else {
            let names = rest.split(' ').map(|name| (name.to_owned(), fate.to_owned()));
            all.extend(names);
        }
    }
    Ok(all)
}

/// All lines outside of sections are there, to the byte, in the same order.
fn changes_sections_alone(result: &Rewritten, change: &Change) -> Result<()> {
    let is_section = |number: usize| {
        let is_converted = |it: &&SectionPlace| it.fate == Fate::Converted;
        result.places.iter().filter(is_converted).any(|it| (it.line..=it.last).contains(&number))
    };
    let mut new = change.new.lines();
    let old = change.old.lines().enumerate();
    for (number, line) in old.map(|(at, line)| (at + 1, line)).filter(|(at, _)| !is_section(*at)) {
        ensure!(new.any(|other| other == line), "line {number}, outside of sections: {line}");
    }
    Ok(())
}

/// What became of each function's first section is what the program says; and the rewritten text.
fn fates_as_expected(source: &Path) -> Result<Change> {
    let result = rewritten(source, &|_| true)?;
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for place in &result.places {
        let fate = match &place.fate {
            Fate::Converted => "converted",
            Fate::Kept(_) => "kept",
            Fate::Refused(why) => why,
            Fate::Unasked => "unasked",
        };
        // The first of a function.
        found.entry(place.function.clone()).or_insert_with(|| fate.to_owned());
    }
    let expected = expected(source)?;
    for (function, fate) in &expected {
        assert_eq!(found.get(function), Some(fate), "{function}");
    }
    assert_eq!(found.len(), expected.len(), "{found:?}");
    let [change] = result.changes.as_slice() else { anyhow::bail!("one file") };
    changes_sections_alone(&result, change)?;
    Ok(change.clone())
}

/// The program gives the same answers without the library, and with it in each mode.
fn is_right_everywhere(binary: &Path) -> Result<()> {
    let ours = preload_list(&[&library()?]);
    for (how, lock) in [
        (None, None),
        (Some("never"), Some("auto")),
        (Some("always"), Some("auto")),
        (Some("always"), Some("glibc")),
        (Some("if-faster"), Some("fifo")),
    ] {
        let mut child = Child::new(binary).limit(60);
        if let (Some(how), Some(lock)) = (how, lock) {
            child = child.env("LOCKWRIGHT_SECTIONS", how).env("LOCKWRIGHT_LOCK", lock);
            child = child.env("LD_PRELOAD", &ours);
        }
        let outcome = child.run()?;
        let is_right = outcome.end == End::Code(0) && outcome.text() == "ok\n";
        ensure!(
            is_right && outcome.errors().is_empty(),
            "{how:?} {lock:?}: {}",
            outcome.describe()
        );
    }
    Ok(())
}

#[test]
fn sections_of_every_shape() -> Result<()> {
    let change = fates_as_expected(&program("ways.c"))?;
    let folder = scratch("rewrite")?;
    let (new, binary) = (folder.join("ways.c"), folder.join("ways"));
    fs::write(&new, &change.new)?;
    let strict = ["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"];
    let more = ["-Wmissing-prototypes", "-Wmissing-declarations", "-Wredundant-decls"];
    // Another build, which leaves out the first section; and the one that runs.
    let without = ["-DWITHOUT_IT"];
    compile(&new, &binary, &[&strict[..], &more[..], &without[..]].concat())?;
    compile(&new, &binary, &[&strict[..], &more[..]].concat())?;
    is_right_everywhere(&binary)
}

/// A file of which a program without threads is built, too.
#[test]
fn sections_of_two_builds() -> Result<()> {
    let change = fates_as_expected(&program("builds.c"))?;
    let folder = scratch("rewrite-builds")?;
    let (new, binary) = (folder.join("builds.c"), folder.join("builds"));
    fs::write(&new, &change.new)?;
    let strict = ["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"];
    for build in [&["-DWITHOUT_THREADS"][..], &[]] {
        compile(&new, &binary, &[&strict[..], build].concat())?;
        is_right_everywhere(&binary)?;
    }
    Ok(())
}

/// Nobody looks into a function whose text is in several files, and the report says so.
#[test]
fn a_function_with_an_include_is_told() -> Result<()> {
    let folder = scratch("rewrite-include")?;
    let source = folder.join("parts.c");
    fs::write(folder.join("part.inc"), "    for (int i = 0; i < 3; i++)\n        count += i;\n")?;
    let text = "#include <pthread.h>\nstatic pthread_mutex_t m;\nint count;\nvoid f(void)\n{\n    \
                pthread_mutex_lock(&m);\n#include \"part.inc\"\n    pthread_mutex_unlock(&m);\n}\n";
    fs::write(&source, text)?;
    let unit = Unit { path: source, folder: folder.to_owned(), flags: vec![], others: vec![] };
    let result = rewrite(&[unit], &Config::default(), &|_| true, &mut |_| ());
    let result = result.map_err(anyhow::Error::msg)?;
    assert!(result.places.is_empty() && result.changes.is_empty());
    let [(_, why)] = result.unread.as_slice() else { anyhow::bail!("{:?}", result.unread) };
    assert_eq!(why, "'f' has an #include in its body: not looked at");
    Ok(())
}

/// C++'s guards: the rewritten program, in two standards.
#[test]
fn guards_scopes() -> Result<()> {
    let change = fates_as_expected(&program("guards.cpp"))?;
    let folder = scratch("rewrite-guards")?;
    let (new, binary) = (folder.join("guards.cpp"), folder.join("guards"));
    fs::write(&new, &change.new)?;
    for standard in ["-std=c++20", "-std=c++17"] {
        let outcome = Child::new("c++")
            .args([standard, "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"])
            .args([new.as_os_str(), "-o".as_ref(), binary.as_os_str()])
            .limit(120)
            .run()?;
        ensure!(outcome.end == End::Code(0), "{standard}: {}", outcome.describe());
    }
    is_right_everywhere(&binary)
}

/// All sections of a mutex, or none: `other` has one that is asked for by its function.
#[test]
fn only_the_sections_that_are_asked_for() -> Result<()> {
    let source = program("ways.c");
    let result = rewritten(&source, &|place| place.function == "recursive")?;
    for place in &result.places {
        let is_other = place.mutex == "&other";
        assert_eq!(place.fate == Fate::Unasked, !is_other, "{place:?}");
    }
    let none = rewritten(&source, &|_| false)?;
    assert!(none.changes.is_empty() && none.patch(source_dir()).is_empty());
    // The patch makes of the old file the new one.
    let folder = scratch("rewrite-patch")?;
    fs::copy(&source, folder.join("ways.c"))?;
    let patch = result.patch(&source_dir().join("rewrite"));
    let outcome = Child::new("patch").args(["-p1", "-s"]).dir(&folder).input(patch).run()?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    assert_eq!(fs::read_to_string(folder.join("ways.c"))?, result.changes[0].new);
    // A second time, nothing changes.
    let again = rewritten(&folder.join("ways.c"), &|_| true)?;
    assert!(again.changes.is_empty());
    let why = again.places.iter().filter_map(|place| match &place.fate {
        Fate::Refused(why) => Some(why.as_str()),
        _ => None,
    });
    assert!(why.into_iter().any(|why| why.starts_with("the file has been rewritten already")));
    Ok(())
}

/// A thread that runs another one's section: seen by its address on another stack.
#[test]
fn another_thread_runs_a_section() -> Result<()> {
    let source = program("elsewhere.c");
    let result = rewritten(&source, &|_| true)?;
    let folder = scratch("rewrite-elsewhere")?;
    let (new, binary) = (folder.join("elsewhere.c"), folder.join("elsewhere"));
    fs::write(&new, &result.changes[0].new)?;
    compile(&new, &binary, &["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"])?;
    let run = |how: &str| -> Result<String> {
        let ours = preload_list(&[&library()?]);
        let child = Child::new(&binary).env("LD_PRELOAD", &ours).limit(60);
        let outcome = child.env("LOCKWRIGHT_SECTIONS", how).run()?;
        ensure!(outcome.end == End::Code(0), "{how}: {}", outcome.describe());
        Ok(outcome.text())
    };
    assert_eq!(run("always")?, "elsewhere\n");
    assert_eq!(run("never")?, "here\n");
    Ok(())
}
