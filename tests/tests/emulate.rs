//! Emulated little cores (LOCKWRIGHT_EMULATE), seen from a C program (`emulate/emulate.c`).
//!
//! Bounds are so wide that only a broken emulation misses them; how exact it is, is measured
//! (docs/emulation.md). Both sides of each ratio run on the same CPU, one right after the other; a pair in which
//! the machine was slow for other reasons is taken again.

use anyhow::{Context, Result, ensure};
use lockwright_tests::{Child, End, Outcome, compile, library, preload_list, scratch, source_dir};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;

struct Setup {
    program: PathBuf,
    preload: OsString,
    /// CPUs that we may run on.
    cpus: Vec<usize>,
    /// Every CPU that is online.
    online: Vec<usize>,
}

static SETUP: LazyLock<Setup> = LazyLock::new(|| setup().expect("the program, and the library"));

fn setup() -> Result<Setup> {
    let program = scratch("emulate")?.join("emulate");
    compile(&source_dir().join("emulate/emulate.c"), &program, &[])?;
    // SAFETY: a zeroed set is an empty set; pid 0 is the calling thread; the numbers are within the set.
    let cpus = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        ensure!(libc::sched_getaffinity(0, size_of_val(&set), &mut set) == 0, "no affinity mask");
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    };
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    let range = |piece: &str| -> Option<Vec<usize>> {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        Some((first.parse().ok()?..=last.parse().ok()?).collect())
    };
    let online = text.trim().split(',').map(range).collect::<Option<Vec<_>>>();
    let online = online.context("a list of CPUs")?.concat();
    Ok(Setup { program, preload: preload_list(&[&library()?]), cpus, online })
}

impl Setup {
    /// The CPU that is slowed, if any is.
    fn little(&self) -> String {
        self.cpus.last().expect("at least one").to_string()
    }

    /// Another one; the same where there is only one.
    fn big(&self) -> String {
        self.cpus[0].to_string()
    }

    /// The last CPU slowed by `factor`, the others big.
    fn spec(&self, factor: &str) -> String {
        let little = self.little();
        let big: Vec<_> =
            self.online.iter().map(usize::to_string).filter(|c| *c != little).collect();
        match big.is_empty() {
            true => format!("little:{little}x{factor}"),
            false => format!("big:{},little:{little}x{factor}", big.join(",")),
        }
    }

    fn child(&self, arguments: &[&str], emulate: Option<&str>) -> Result<Outcome> {
        let child = Child::new(&self.program).args(arguments).lock(Some("fifo"), &self.preload);
        match emulate {
            Some(spec) => child.env("LOCKWRIGHT_EMULATE", spec).run(),
            None => child.run(),
        }
    }

    /// The figures that the program prints, the last word of each line.
    fn figures(&self, arguments: &[&str], factor: Option<&str>) -> Result<Vec<(String, f64)>> {
        let spec = factor.map(|factor| self.spec(factor));
        let outcome = self.child(arguments, spec.as_deref())?;
        ensure!(outcome.end == End::Code(0), "{arguments:?}: {}", outcome.describe());
        ensure!(outcome.stderr.is_empty(), "{arguments:?}: {}", outcome.describe());
        let figure = |line: &str| {
            let (name, figure) = line.rsplit_once(' ').unwrap_or(("", line));
            Some((name.to_owned(), figure.parse().ok()?))
        };
        let text = outcome.text();
        text.lines().map(figure).collect::<Option<Vec<_>>>().context("figures")
    }

    fn figure(&self, arguments: &[&str], factor: Option<&str>) -> Result<f64> {
        Ok(self.figures(arguments, factor)?.first().context("a figure")?.1)
    }

    /// Takes a figure until it lies within bounds, twenty times at most: the machine has other work too.
    fn within(&self, low: f64, high: f64, measure: impl Fn() -> Result<f64>) {
        let mut seen = Vec::new();
        for _ in 0..20 {
            let figure = measure().unwrap();
            if (low..=high).contains(&figure) {
                return;
            }
            seen.push(figure);
        }
        panic!("{seen:?}, not within {low} to {high}");
    }

    /// How much longer the slowed CPU takes than the same CPU as it is.
    fn slowdown(&self, arguments: &[&str], factor: &str) -> Result<f64> {
        Ok(self.figure(arguments, Some(factor))? / self.figure(arguments, None)?)
    }
}

#[test]
fn a_lock_loop_is_slowed_on_the_little_cpu() {
    let it = &*SETUP;
    let little = it.little();
    let arguments = ["loop", little.as_str(), "100"];
    it.within(2.0, 8.0, || Ok(1.0 / it.slowdown(&arguments, "4")?));
}

#[test]
fn it_keeps_its_speed_on_the_big_cpu() {
    let it = &*SETUP;
    let big = it.big();
    if big == it.little() {
        return; // one CPU: there is no big one
    }
    it.within(0.0, 2.0, || Ok(1.0 / it.slowdown(&["loop", &big, "100"], "8")?));
}

#[test]
fn one_long_critical_section_is_slowed_too() {
    let it = &*SETUP;
    it.within(2.0, 8.0, || it.slowdown(&["one", &it.little()], "4"));
}

#[test]
fn a_child_of_fork_is_slowed_as_its_parent() {
    let it = &*SETUP;
    it.within(2.0, 8.0, || it.slowdown(&["fork", &it.little()], "4"));
}

#[test]
fn every_kind_of_lock_ends_an_interval() {
    let it = &*SETUP;
    let little = it.little();
    let arguments = ["kinds", little.as_str()];
    let kinds = it.figures(&arguments, None).unwrap();
    assert_eq!(kinds.len(), 10, "{kinds:?}");
    for (at, (kind, _)) in kinds.iter().enumerate() {
        println!("{kind}");
        it.within(2.0, 8.0, || {
            Ok(it.figures(&arguments, Some("4"))?[at].1 / it.figures(&arguments, None)?[at].1)
        });
    }
}

#[test]
fn sleeping_in_a_critical_section_is_not_slowed() {
    let it = &*SETUP;
    // 100 ms of sleep: slowed by 20 it were 2 s.
    it.within(90e3, 600e3, || it.figure(&["sleep", &it.little()], Some("20")));
}

#[test]
fn waiting_for_a_lock_is_not_slowed() {
    let it = &*SETUP;
    it.within(50e3, 600e3, || it.figure(&["wait", &it.little(), &it.big()], Some("20")));
}

#[test]
fn waiting_for_a_condvar_is_not_slowed() {
    let it = &*SETUP;
    it.within(90e3, 700e3, || it.figure(&["cond", &it.little(), &it.big()], Some("20")));
}

#[test]
fn a_bad_machine_is_said_once_and_nothing_is_emulated() {
    let it = &*SETUP;
    let little = it.little();
    for (spec, said) in [
        ("little:9x2x", "at 'little:9x2x': a factor is a number from 1 to 100, as in x3.75"),
        ("big:1000", "at 'big:1000': this machine has no such cpu"),
        ("nonsense", "at 'nonsense': not as in big:0,little:1x3.75"),
    ] {
        let outcome = it.child(&["one", &little], Some(spec)).unwrap();
        assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
        let line = format!("lockwright: bad LOCKWRIGHT_EMULATE, {said}; nothing is emulated\n");
        assert_eq!(outcome.errors(), line);
    }
}
