//! README's "What to expect": the table and the picture of a run, with its date, machine and command.

use super::{DemoResults, picture, report, stats};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;

const BEGIN: &str = "<!-- expect: made by `cargo xtask demo --readme` -->";
const END: &str = "<!-- /expect -->";

/// The picture's path, relative to README.
const PICTURE: &str = "docs/demo.svg";

/// The picture of a run's output.
const TERMINAL: &str = "docs/demo-terminal.svg";

/// Minimum number of rounds for a published table.
const ROUNDS: u32 = 9;

/// Fails before the run if it would have too few rounds.
pub(super) fn check(rounds: u32) -> Result<()> {
    ensure!(
        rounds >= ROUNDS,
        "--readme: {rounds} rounds are too few; it needs {ROUNDS}\nhint: cargo xtask demo --readme"
    );
    Ok(())
}

/// Writes README's section and its picture, below `root`.
pub(super) fn write(root: &Path, results: &DemoResults, command: &str) -> Result<()> {
    if results.has_one_cpu() {
        bail!(
            "--readme: this machine has one CPU, so that a part of the table is missing\nhint: nproc"
        );
    }
    let machine = report::machine(&results.libc);
    let path = root.join("README.md");
    let text = fs::read_to_string(&path).context("cannot read README.md")?;
    let fresh = replaced(&text, &section(results, &machine, &report::date()?, command))?;
    let svg = picture::svg(results, &machine);
    fs::write(root.join(PICTURE), svg).with_context(|| format!("cannot write {PICTURE}"))?;
    fs::write(path, fresh).context("cannot write README.md")
}

/// Draws a terminal with the output of `command`. Paths are relative to `root`.
pub(super) fn terminal(root: &Path, command: &str, output: &str) -> Result<()> {
    fs::write(root.join(TERMINAL), lockwright_plot::terminal(command, output))
        .with_context(|| format!("cannot write {TERMINAL}"))
}

/// `text`, with `section` inserted between the marks.
fn replaced(text: &str, section: &str) -> Result<String> {
    let (before, rest) =
        text.split_once(BEGIN).with_context(|| format!("README.md: lacks '{BEGIN}'"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("README.md: lacks '{END}'"))?;
    Ok(format!("{before}{BEGIN}\n{section}{END}{after}"))
}

fn section(results: &DemoResults, machine: &str, date: &str, command: &str) -> String {
    let day = date.split(' ').next().unwrap_or(date);
    let disturbed = match stats::disturbed(results.disturbance) {
        Some(warning) => format!(" {}{}.", warning[..1].to_uppercase(), &warning[1..]),
        None => String::new(),
    };
    format!(
        "{day}, {machine}; `{command}`: {} interleaved rounds of {} s a lock (beside hogs {}).{disturbed}\n\n\
         ![Throughput, P99, P99.9, longest operation and CPU time of each lock, times glibc's]({PICTURE})\n\n\
         Medians of the ratios to glibc within each round; **bold**: better, *italic*: worse, where the rounds agree.\n\n\
         {}",
        results.rounds,
        results.seconds,
        results.busy_rounds(),
        picture::markdown(results)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_is_replaced_and_nothing_else() {
        let text = format!("# a\n{BEGIN}\nold\n{END}\n## b\n");
        let fresh = replaced(&text, "new\n").unwrap();
        assert_eq!(fresh, format!("# a\n{BEGIN}\nnew\n{END}\n## b\n"));
        assert_eq!(replaced(&fresh, "new\n").unwrap(), fresh);
        for bad in ["# a", &format!("# a\n{BEGIN}\n")] {
            assert!(replaced(bad, "new\n").is_err());
        }
    }

    #[test]
    fn readme_has_the_marks_and_the_picture() {
        let root = crate::root::root();
        let text = fs::read_to_string(root.join("README.md")).unwrap();
        assert!(replaced(&text, "").is_ok());
        assert!(text.contains(&format!("]({PICTURE})")) && root.join(PICTURE).exists());
    }

    #[test]
    fn few_rounds_are_refused() {
        assert!(check(ROUNDS).is_ok());
        let said = check(8).unwrap_err().to_string();
        assert!(said.starts_with("--readme: 8 rounds are too few") && said.contains("\nhint: "));
    }
}
