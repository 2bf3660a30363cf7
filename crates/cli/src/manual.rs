//! The manual pages: clap's sections, and sections that clap doesn't generate: exit status, environment, files,
//! examples, see also.

use crate::spelling;
use clap_mangen::Man;
use lockwright_contract::environment::{VARIABLES, Variable};
use roff::{Roff, bold, italic, roman};
use std::io;

/// A manual page.
pub(crate) struct Page {
    pub(crate) name: String,
    pub(crate) section: char,
    pub(crate) text: Vec<u8>,
}

/// The page about the library's variables.
const ENVIRONMENT: &str = "lockwright-environment";

/// All pages; the first describes the command itself.
pub(crate) fn pages(command: clap::Command) -> io::Result<Vec<Page>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add(&command, None, &mut pages)?;
    pages.push(environment(&command)?);
    Ok(pages)
}

/// Adds the pages of a command and its subcommands. `top` is the word after `lockwright`, by which the tables below are
/// indexed.
fn add(command: &clap::Command, top: Option<&str>, pages: &mut Vec<Page>) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let mut text = Vec::new();
    let man = titled(Man::new(command.clone()), &name, '1');
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut rest = Roff::new();
    exit_status(&mut rest, top);
    variables(&mut rest, top);
    files(&mut rest, top);
    let help = command.get_after_long_help().or_else(|| command.get_after_help());
    if let Some(help) = help {
        examples(&mut rest, &help.to_string());
    }
    see_also(&mut rest, command, top);
    rest.to_writer(&mut text)?;
    pages.push(Page { name, section: '1', text });
    for sub in command.get_subcommands() {
        add(sub, top.or(Some(sub.get_name())), pages)?;
    }
    Ok(())
}

/// A page with this title. The date is blank but not empty: an empty one would vanish, and shift the words behind it.
fn titled(man: Man, name: &str, section: char) -> Man {
    let source = concat!("lockwright ", env!("CARGO_PKG_VERSION"));
    man.title(name).section(section).date(" ").source(source).manual("lockwright")
}

/// A term and its meaning.
fn term(page: &mut Roff, name: &str, meaning: &str) {
    page.control("TP", []).text([bold(name)]).text([roman(meaning)]);
}

/// Exit codes: the subcommands that use them (none listed: all), and their meaning. docs/exit-codes.md has the details.
const EXITS: &[(&str, &[&str], &str)] = &[
    ("0", &[], "Fine."),
    (
        "1",
        &["doctor"],
        "The program can't be reached, or, with --run, by less than a tenth of its waits.",
    ),
    ("1", &["bench"], "With --suite: a bar is missed."),
    ("1", &["sim"], "A check failed."),
    ("1", &["explore"], "A schedule breaks a rule."),
    ("1", &["reproduce"], "A result is not accepted, or a check failed."),
    ("1", &["sim --merge"], "As the experiment's own command."),
    ("1", &["profile"], "With --order --fail-on-inversion: a deadlock is possible."),
    ("1", &["sim --validate"], "A bar is missed."),
    ("1", &["switch"], "With --guard: the change made it worse, and is rolled back."),
    (
        "1",
        &["policy"],
        "The policy is rejected; with --guard: it made things worse, and is unloaded.",
    ),
    (
        "2",
        &[],
        "Wrong usage, or a failure of lockwright itself. One line says what, and often a hint follows.",
    ),
    (
        "125",
        &["run", "profile --record"],
        "The program was not started, since the library can't reach it.",
    ),
    (
        "126",
        &["run", "profile --record", "profile", "profile --kernel", "policy"],
        "The program can't be executed.",
    ),
    (
        "127",
        &["run", "profile --record", "profile", "profile --kernel", "policy"],
        "The program isn't found.",
    ),
    (
        "130",
        &["compare", "tune", "bench", "profile"],
        "Ctrl-C. What was measured so far is reported.",
    ),
    ("130", &["sim --calibrate", "sim --validate"], "Ctrl-C. Nothing is written."),
    (
        "130",
        &["sim", "reproduce"],
        "Ctrl-C. Nothing is written, unless --shard or --resume keeps results.",
    ),
    ("130", &["explore"], "Ctrl-C. The number of schedules that were explored is printed."),
    (
        "130",
        &["profile --kernel"],
        "Ctrl-C before --time was over. What was observed so far is reported.",
    ),
    ("130", &["switch", "policy"], "Ctrl-C with --guard. The old locks are back."),
    ("130", &["top", "top --export"], "Ctrl-C."),
    ("143", &["top", "top --export"], "SIGTERM."),
    (
        "other",
        &["run", "profile --record", "profile", "profile --kernel", "policy"],
        "The program's own.",
    ),
];

fn exit_status(page: &mut Roff, top: Option<&str>) {
    page.control("SH", ["EXIT STATUS"]);
    match top {
        Some(top) => {
            let ours = EXITS.iter().filter(|(_, of, _)| of.is_empty() || of.contains(&top));
            ours.for_each(|(code, _, meaning)| term(page, code, meaning));
        }
        None => {
            for (code, meaning) in [
                ("0", "Fine."),
                ("1", "The answer is no."),
                ("2", "Wrong usage, or a failure of lockwright itself."),
                ("125, 126, 127", "The program could not be started."),
                ("130", "Ctrl-C."),
                ("other", "The exit code of the program that was run."),
            ] {
                term(page, code, meaning);
            }
        }
    }
}

/// Commands that start a program under the library.
const STARTERS: &[&str] =
    &["run", "profile --record", "profile", "compare", "tune", "doctor", "policy"];

/// Foreign variables, and the subcommands that read them (none listed: all).
const FOREIGN: &[(&str, &[&str], &str)] = &[
    (
        "COLUMNS",
        &[],
        "How wide tables may be where there is no terminal; 80 if unset, at least 20.",
    ),
    (
        "XDG_CONFIG_HOME, HOME",
        &["run", "switch", "bench", "compare", "tune", "sim --calibrate", "doctor --topology"],
        "Where lockwright/machine.toml is, under HOME in .config.",
    ),
    (
        "CLANG",
        &["policy"],
        "The compiler for policies in C; clang or the newest clang-N in PATH if unset.",
    ),
    ("LD_PRELOAD", STARTERS, "Libraries named there are loaded in front of lockwright's own."),
    (
        "ASAN_OPTIONS",
        STARTERS,
        "Gets verify_asan_link_order=0 at its end, for programs with AddressSanitizer.",
    ),
    ("TMPDIR", STARTERS, "Where programs record, if there is no room in /dev/shm."),
    ("PATH", STARTERS, "Where programs are looked for."),
];

fn variables(page: &mut Roff, top: Option<&str>) {
    page.control("SH", ["ENVIRONMENT"]);
    let is_for = |commands: &[&str]| top.is_none_or(|top| commands.contains(&top));
    for variable in VARIABLES.iter().filter(|variable| is_for(variable.reader.commands())) {
        if !variable.reader.commands().is_empty() {
            describe(page, variable);
        }
    }
    for (name, commands, meaning) in FOREIGN {
        if commands.is_empty() || is_for(commands) {
            term(page, name, meaning);
        }
    }
    if is_for(STARTERS) {
        page.control("PP", []);
        page.text([
            roman("The library reads variables of its own in the program: "),
            bold(ENVIRONMENT),
            roman("(7)."),
        ]);
    }
}

/// One paragraph on a variable.
fn describe(page: &mut Roff, variable: &Variable) {
    let Variable { name, values, default, meaning, when, set_by, .. } = variable;
    term(page, name, meaning);
    page.control("br", []).text([italic("Values: "), roman(format!("{values}."))]);
    page.control("br", []).text([italic("Default: "), roman(format!("{default}."))]);
    page.control("br", []).text([italic("Read: "), roman(format!("{when}."))]);
    if !set_by.is_empty() {
        page.control("br", []).text([italic("Set by: "), roman(format!("{set_by}."))]);
    }
}

/// Files, the commands that use them, and their contents.
const FILES: &[(&str, &[&str], &str)] = &[
    (
        "liblockwright.so",
        &["run", "profile --record", "profile", "compare", "tune", "doctor", "bench", "attach"],
        "The library: beside the command, in ../lib/lockwright or ../lib from there, else the command's own copy in \
         ~/.cache/lockwright.",
    ),
    (
        "$XDG_CONFIG_HOME/lockwright/machine.toml",
        &["run", "switch", "bench", "compare", "tune", "sim --calibrate", "doctor --topology"],
        "What `lockwright sim --calibrate --write` has found out about this machine; else in ~/.config/lockwright.",
    ),
    (
        "$XDG_CONFIG_HOME/lockwright/policies/NAME",
        &["policy", "run", "sim"],
        "The versions of a policy that was stored; else in ~/.config/lockwright.",
    ),
    (
        "NAME.bpf.c, lockwright_policy.h",
        &["policy"],
        "A policy to begin with, and what it includes; in the current folder.",
    ),
    (
        "locks.toml",
        &["run", "switch"],
        "The file of --config, under any name: a default and [[lock]] rules.",
    ),
    (
        "lockwright-trace.bin",
        &["profile --record", "sim"],
        "A trace; --output and --trace name another.",
    ),
    (
        "here.toml",
        &["sim --calibrate", "sim --validate", "sim", "reproduce"],
        "A machine's profile, under any name.",
    ),
    (
        "tune/",
        &["tune"],
        "The report: tune.html, tune.svg, tune.json, tune.csv and tune.log; --output names another folder.",
    ),
    (
        "/dev/shm/lockwright-UID/PID-N.observe",
        &["profile", "top", "top --export", "switch", "attach"],
        "What a process counts, readable while it runs; else in /run/user/UID/lockwright.",
    ),
    (
        "/sys/devices/system/cpu",
        &["doctor --topology", "run", "bench", "sim --calibrate", "sim --validate"],
        "What the kernel says of the CPUs.",
    ),
    (
        "/sys/class/powercap",
        &["doctor --topology", "bench", "tune", "sim --calibrate"],
        "The processor's energy counters (RAPL).",
    ),
    (
        "/sys/kernel/btf/vmlinux",
        &["profile --kernel"],
        "The kernel's types, to which the observing program is fitted.",
    ),
    (
        "/proc/PID",
        &["attach", "attach --undo", "switch", "policy", "profile", "top"],
        "Memory, threads and files of the process.",
    ),
    ("~/.local/share/man", &["--man"], "Where manual pages of a user's own may lie."),
    (
        "~/.local/share/bash-completion/completions",
        &["--completions"],
        "Where bash looks for completions.",
    ),
];

fn files(page: &mut Roff, top: Option<&str>) {
    page.control("SH", ["FILES"]);
    let ours = FILES.iter().filter(|(_, of, _)| top.is_none_or(|top| of.contains(&top)));
    let mut ours = ours.peekable();
    if ours.peek().is_none() {
        page.text([roman("None.")]);
    }
    ours.for_each(|(name, _, meaning)| term(page, name, meaning));
}

/// The text after the options in `--help`: examples, then remarks.
fn examples(page: &mut Roff, help: &str) {
    let (first, rest) = help.split_once("\n\n").unwrap_or((help, ""));
    let (heading, examples) = match first.strip_prefix("Examples:\n") {
        Some(examples) => ("EXAMPLES", examples),
        None => ("NOTES", first),
    };
    for (heading, text) in [(heading, examples), ("NOTES", rest)] {
        if text.is_empty() {
            continue;
        }
        page.control("SH", [heading]).control("nf", []);
        for line in text.lines() {
            page.text([roman(line)]);
        }
        page.control("fi", []);
    }
}

/// The `see also` entries of each page.
const RELATED: &[(&str, &[&str])] = &[
    ("run", &["list", "explain", "doctor", "compare", "switch"]),
    ("switch", &["top", "profile", "run", "attach"]),
    ("attach", &["attach --undo", "switch", "top"]),
    ("attach --undo", &["attach"]),
    ("list", &["explain", "run"]),
    ("explain", &["list", "run", "sim"]),
    ("doctor", &["run", "profile", "profile --kernel", "doctor --topology"]),
    ("doctor --topology", &["sim --calibrate", "run"]),
    ("bench", &["compare", "sim"]),
    ("compare", &["profile", "run", "tune"]),
    ("tune", &["compare", "run"]),
    (
        "sim",
        &[
            "reproduce",
            "profile --record",
            "sim --calibrate",
            "sim --validate",
            "explore",
            "sim --merge",
        ],
    ),
    ("sim --merge", &["sim", "reproduce", "explore"]),
    ("reproduce", &["sim"]),
    ("profile --record", &["sim", "profile"]),
    ("profile", &["compare", "top", "switch", "profile --record", "profile --kernel"]),
    ("top", &["profile", "switch", "top --export"]),
    ("top --export", &["top", "switch"]),
    ("profile --kernel", &["profile", "doctor"]),
    ("sim --calibrate", &["sim --validate", "sim", "doctor --topology"]),
    ("sim --validate", &["sim --calibrate", "sim"]),
    ("explore", &["sim"]),
];

fn see_also(page: &mut Roff, command: &clap::Command, top: Option<&str>) {
    let mut names: Vec<(String, char)> = Vec::new();
    match top {
        None => names.extend(command.get_subcommands().map(|sub| (page_of(sub), '1'))),
        Some(top) => {
            names.push(("lockwright".to_owned(), '1'));
            let own = command.get_display_name().unwrap_or_default();
            let whole = page_named(top);
            if own != whole {
                names.push((whole, '1'));
            }
            let related =
                RELATED.iter().find(|(name, _)| *name == top).map_or(&[][..], |(_, to)| to);
            names.extend(related.iter().map(|name| (page_named(name), '1')));
        }
    }
    names.push((ENVIRONMENT.to_owned(), '7'));
    if top.is_none_or(|top| STARTERS.contains(&top)) {
        names.push(("ld.so".to_owned(), '8'));
        names.push(("pthread_mutex_lock".to_owned(), '3'));
    }
    list(page, &names);
}

fn page_named(command: &str) -> String {
    format!("lockwright-{}", spelling::page(command))
}

fn page_of(command: &clap::Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn list(page: &mut Roff, names: &[(String, char)]) {
    page.control("SH", ["SEE ALSO"]);
    let last = names.len() - 1;
    for (number, (name, section)) in names.iter().enumerate() {
        let end = if number < last { "," } else { "" };
        page.text([bold(name.as_str()), roman(format!("({section}){end}"))]);
    }
}

/// lockwright-environment(7).
fn environment(command: &clap::Command) -> io::Result<Page> {
    let mut text = Vec::new();
    let about = clap::Command::new(ENVIRONMENT)
        .about("Variables that the library reads in a program")
        .version(command.get_version().unwrap_or_default().to_owned());
    let man = titled(Man::new(about), ENVIRONMENT, '7');
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    let mut page = Roff::new();
    page.control("SH", ["DESCRIPTION"]).text([
        bold("liblockwright.so"),
        roman(", preloaded into a program or linked with it, reads these variables. "),
        bold("lockwright run"),
        roman(
            " and other commands set most of them by options. An empty variable counts as unset. A value that the library can't \
             understand is reported in one line on standard error, and the program goes on with the default. In a program that \
             runs with more rights than its caller (setuid, file capabilities) all of them are ignored.",
        ),
    ]);
    page.control("SH", ["ENVIRONMENT"]);
    for variable in VARIABLES.iter().filter(|variable| variable.reader.is_library()) {
        describe(&mut page, variable);
    }
    page.control("SH", ["EXIT STATUS"])
        .text([roman("The library never changes a program's exit status.")]);
    files(&mut page, Some("switch"));
    examples(
        &mut page,
        "Examples:\n  LD_PRELOAD=/usr/lib/liblockwright.so LOCKWRIGHT_LOCK=fifo ./server\n  \
         LD_PRELOAD=/usr/lib/liblockwright.so LOCKWRIGHT_LOCK=glibc ./server   its locks stay",
    );
    let also = ["lockwright", "lockwright-run", "lockwright-switch", "lockwright-profile"];
    let mut also: Vec<_> = also.iter().map(|name| ((*name).to_owned(), '1')).collect();
    also.push(("ld.so".to_owned(), '8'));
    list(&mut page, &also);
    page.to_writer(&mut text)?;
    Ok(Page { name: ENVIRONMENT.to_owned(), section: '7', text })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command in the tables above exists.
    #[test]
    fn every_command_that_a_table_names_exists() {
        let command = crate::described();
        let variables = VARIABLES.iter().flat_map(|variable| variable.reader.commands());
        let named = (EXITS.iter().flat_map(|(_, of, _)| *of))
            .chain(FOREIGN.iter().flat_map(|(_, of, _)| *of))
            .chain(FILES.iter().flat_map(|(_, of, _)| *of))
            .chain(RELATED.iter().flat_map(|(_, to)| *to))
            .chain(RELATED.iter().map(|(name, _)| name))
            .chain(STARTERS)
            .chain(variables);
        for name in named {
            assert!(command.find_subcommand(name).is_some(), "no command '{name}'");
        }
    }

    #[test]
    fn every_page_has_every_section() {
        let pages = pages(crate::described()).unwrap();
        assert!(pages.iter().any(|page| page.name == "lockwright-switch-set"));
        for page in &pages {
            let text = String::from_utf8(page.text.clone()).unwrap();
            for heading in
                ["NAME", "DESCRIPTION", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"]
            {
                let heading = [format!(".SH {heading}\n"), format!(".SH \"{heading}\"\n")];
                let found = heading.iter().any(|heading| text.contains(heading));
                assert!(found, "{}: {heading:?}", page.name);
            }
        }
    }

    /// `man` prints title, manual and title in one line.
    #[test]
    fn every_title_fits_a_terminal() {
        for page in &pages(crate::described()).unwrap() {
            let text = String::from_utf8(page.text.clone()).unwrap();
            let title = text.lines().find(|line| line.starts_with(".TH ")).unwrap();
            let (head, source) = title.split_once(" \" \" \"lockwright ").unwrap();
            assert_eq!(head, format!(".TH {} {}", page.name, page.section));
            assert!(source.ends_with("\" lockwright"), "{title}");
            assert!(2 * (page.name.len() + 3) + " lockwright ".len() <= 80, "{title}");
        }
    }

    /// Every page in a `see also` section exists. Otherwise `man` would find nothing, and links would be broken.
    #[test]
    fn every_page_that_another_one_names_exists() {
        let pages = pages(crate::described()).unwrap();
        let names: Vec<_> =
            pages.iter().map(|page| format!("{}({})", page.name, page.section)).collect();
        for page in &pages {
            let text = String::from_utf8(page.text.clone()).unwrap();
            let (_, also) = text.split_once("SEE ALSO").unwrap();
            let plain = also.replace("\\fB", "").replace("\\fR", "").replace("\\-", "-");
            for name in plain.split([',', '\n']).filter(|name| name.starts_with("lockwright")) {
                assert!(names.iter().any(|one| one == name), "{}: '{name}'", page.name);
            }
        }
    }
}
