//! The commands as users see them: by task in `--help`, and those that are an option of another one, such as `profile --kernel`.
//!
//! clap knows such a command by its whole name, `profile --kernel`, so its usage, help and errors say it right. Before clap reads the words,
//! [`routed`] makes the two one, and leads there from the name that the command had before.

use crate::output::beside;
use clap::{Arg, ArgAction, Command};
use clap_complete::Shell;
use std::ffi::OsString;

/// The command itself.
pub(crate) const PROGRAM: &str = "lockwright";

/// The commands by task.
const GROUPS: [(&str, &[&str]); 3] = [
    ("Look", &["doctor", "profile", "top", "compare"]),
    ("Change", &["run", "attach", "switch", "policy", "tune", "rewrite"]),
    ("Study", &["sim", "bench", "reproduce", "explore", "list", "explain"]),
];

/// Commands that are options: the names they had before, and how they are called now.
const OPTIONS: [(&str, &str); 10] = [
    ("detach", "attach --undo"),
    ("record", "profile --record"),
    ("kernel", "profile --kernel"),
    ("export", "top --export"),
    ("topology", "doctor --topology"),
    ("calibrate", "sim --calibrate"),
    ("validate", "sim --validate"),
    ("merge", "sim --merge"),
    ("completions", "--completions"),
    ("man", MAN),
];

const MAN: &str = "--man";

/// The heading of such options in the help of their parent.
const HEADING: &str = "Instead, as the first word";

/// `kernel` of `profile --kernel`, behind `profile`.
fn parts(spelling: &'static str) -> (Option<&'static str>, &'static str) {
    let (parent, option) = spelling.split_once("--").unwrap_or(("", spelling));
    (Some(parent.trim_end()).filter(|parent| !parent.is_empty()), option)
}

/// `profile-kernel`, as the page `lockwright-profile-kernel` is called behind `lockwright-`.
pub(crate) fn page(spelling: &str) -> String {
    spelling.replace(" --", "-").replace("--", "")
}

/// How a command is called that had this name, if it has another one now.
pub(crate) fn now(old: &str) -> Option<&'static str> {
    if old == "ctl" {
        return Some("switch");
    }
    OPTIONS.iter().find(|(name, _)| *name == old).map(|(_, spelling)| *spelling)
}

/// The names that commands had before.
pub(crate) fn olds() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|(old, _)| *old).chain(["ctl"])
}

/// The whole name of `--kernel` behind `profile`.
pub(crate) fn behind(parent: &str, option: &str) -> Option<&'static str> {
    let whole = format!("{parent} {option}");
    OPTIONS.iter().map(|(_, spelling)| *spelling).find(|spelling| *spelling == whole)
}

/// The words as clap knows them, and what to tell a user who wrote an old name.
pub(crate) fn routed(words: impl IntoIterator<Item = OsString>) -> (Vec<OsString>, Option<String>) {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let is = |words: &[OsString], at: usize, word: &str| words.get(at).is_some_and(|at| at == word);
    let asks_help = is(&words, 1, "help");
    let first = if asks_help { 2 } else { 1 };
    let Some(word) = words.get(first).and_then(|word| word.to_str()) else { return (words, None) };
    let mut note = None;
    if let Some(new) = now(word) {
        note = Some(format!("note: lockwright {word} is now lockwright {new}\n"));
        // `ctl PID switch LOCK RULE` had the word for what `switch` does anyway.
        let verb = first + if asks_help { 1 } else { 2 };
        if word == "ctl" && is(&words, verb, "switch") {
            words.remove(verb);
        }
        words[first] = new.into();
    } else if let Some(whole) = words
        .get(first + 1)
        .and_then(|option| option.to_str())
        .and_then(|option| behind(word, option))
    {
        words.splice(first..=first + 1, [whole.into()]);
    }
    if !asks_help && is(&words, first, "switch") {
        crate::cmd::switch::mark_lock(&mut words[first + 1..]);
    }
    let is_option = |word: &OsString| OPTIONS.iter().any(|(_, spelling)| word == spelling);
    if is(&words, first, MAN) {
        name_page(&mut words, first + 1);
    }
    if asks_help && is_option(&words[first]) {
        words = vec![words[0].clone(), words[first].clone(), "--help".into()];
    }
    (words, note)
}

/// `--man` gets a command that is an option as the name of its page: clap would take the option for one of `--man`'s own.
fn name_page(words: &mut Vec<OsString>, at: usize) {
    let text = |at: usize| words.get(at).and_then(|word: &OsString| word.to_str());
    let Some(word) = text(at) else { return };
    if let Some(whole) = text(at + 1).and_then(|option| behind(word, option)) {
        words.splice(at..=at + 1, [page(whole).into()]);
    } else if let Some(new) = now(word) {
        words[at] = page(new).into();
    }
}

/// The command as it is parsed: its help is by task, and the help of a parent has its options.
pub(crate) fn command(command: Command) -> Command {
    let abouts: Vec<_> = OPTIONS
        .iter()
        .map(|(_, spelling)| {
            let known = command.find_subcommand(spelling).expect("Cli has each of OPTIONS");
            (parts(spelling), known.get_about().cloned().unwrap_or_default())
        })
        .collect();
    let options = |of: Option<&str>| -> Vec<Arg> {
        let own = abouts.iter().filter(|((parent, _), _)| *parent == of);
        own.map(|((_, option), about)| {
            let arg = Arg::new(*option).long(*option).help(about.clone()).help_heading(HEADING);
            arg.action(ArgAction::SetTrue).exclusive(true)
        })
        .collect()
    };
    let command = command.args(options(None)).mut_subcommands(|sub| {
        let name = sub.get_name().to_owned();
        match OPTIONS.iter().any(|(_, spelling)| *spelling == name) {
            true => sub.hide(true).display_name(format!("lockwright-{}", page(&name))),
            false => sub.args(options(Some(&name))),
        }
    });
    let template = template(&command);
    command.help_template(template)
}

/// clap has no groups of subcommands.
fn template(command: &Command) -> String {
    let mut groups = String::new();
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let width = names.map(|name| name.len()).max().unwrap_or_default();
    for (group, names) in GROUPS {
        groups.push_str(&format!("{group}:\n"));
        for name in names {
            let known = command.find_subcommand(name).expect("Cli has each of GROUPS");
            let about = known.get_about().map(ToString::to_string).unwrap_or_default();
            groups.push_str(&beside(&format!("  {name:width$}  "), &about));
        }
        groups.push('\n');
    }
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    )
}

/// The command as a shell sees it: word by word, so an option that is a command is one below its parent.
pub(crate) fn words(command: &Command, shell: Shell) -> Command {
    // fish offers words with a dash as options alone. Elsewhere the word would be offered twice, and zsh would take it for an option that
    // has nothing behind it.
    let has_options = shell == Shell::Fish;
    let below = |of: Option<&str>| -> Vec<Command> {
        let own = OPTIONS.iter().filter(|(_, spelling)| parts(spelling).0 == of);
        own.map(|(_, spelling)| {
            let known = command.find_subcommand(spelling).expect("Cli has each of OPTIONS");
            let option = spelling.rsplit(' ').next().unwrap_or(spelling);
            known.clone().name(option).hide(false)
        })
        .collect()
    };
    let args = |command: &Command| -> Vec<Arg> {
        let own = command.get_arguments();
        own.filter(|arg| has_options || arg.get_help_heading() != Some(HEADING)).cloned().collect()
    };
    let mut tree = Command::new(PROGRAM).args(args(command)).subcommand_required(true).version("");
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = sub.get_name();
        let mut own = Command::new(name.to_owned())
            .args(args(sub))
            .subcommands(sub.get_subcommands().cloned())
            .subcommands(below(Some(name)));
        if let Some(about) = sub.get_about() {
            own = own.about(about.clone());
        }
        tree = tree.subcommand(own);
    }
    tree.subcommands(below(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::collections::BTreeSet;

    fn whole() -> Command {
        command(crate::Cli::command())
    }

    fn words_of(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn each_visible_command_is_in_one_group_and_they_are_few() {
        let whole = whole();
        let visible: BTreeSet<_> = (whole.get_subcommands().filter(|sub| !sub.is_hide_set()))
            .map(|sub| sub.get_name().to_owned())
            .collect();
        let grouped: Vec<_> =
            GROUPS.iter().flat_map(|(_, names)| *names).map(|name| (*name).to_owned()).collect();
        assert_eq!(grouped.len(), visible.len(), "a command in two groups, or in none");
        assert_eq!(grouped.into_iter().collect::<BTreeSet<_>>(), visible);
        assert!(visible.len() <= 16, "{visible:?}");
    }

    #[test]
    fn the_help_has_each_group_with_the_summaries_of_clap() {
        let help = whole().render_help().to_string();
        let flat = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for (group, names) in GROUPS {
            let (_, list) = help.split_once(&format!("\n{group}:\n")).expect("the group");
            let list = list.split("\n\n").next().unwrap_or_default();
            for name in names {
                let about = whole().find_subcommand(name).unwrap().get_about().unwrap().to_string();
                assert!(
                    list.contains(&format!("\n  {name} "))
                        || list.starts_with(&format!("  {name} "))
                );
                assert!(flat.contains(&format!(" {name} {about}")), "{name}: {help}");
            }
        }
    }

    #[test]
    fn each_command_that_is_hidden_is_an_option_of_a_visible_one() {
        let whole = whole();
        let hidden: BTreeSet<_> = (whole.get_subcommands().filter(|sub| sub.is_hide_set()))
            .map(|sub| sub.get_name().to_owned())
            .collect();
        assert_eq!(hidden, OPTIONS.iter().map(|(_, new)| (*new).to_owned()).collect());
        for (_, spelling) in OPTIONS {
            let (parent, option) = parts(spelling);
            let parent = parent.map_or(&whole, |name| whole.find_subcommand(name).unwrap());
            assert!(!parent.is_hide_set());
            let known = parent.get_arguments().find(|arg| arg.get_long() == Some(option)).unwrap();
            let about = whole.find_subcommand(spelling).unwrap().get_about().unwrap();
            assert_eq!(known.get_help().unwrap().to_string(), about.to_string());
        }
    }

    #[test]
    fn old_and_new_names_lead_to_the_same_command() {
        for (old, new) in OPTIONS {
            let (by_old, note) = routed(words_of(&format!("lockwright {old} 42 --x")));
            assert_eq!(note, Some(format!("note: lockwright {old} is now lockwright {new}\n")));
            let (by_new, note) = routed(words_of(&format!("lockwright {new} 42 --x")));
            assert_eq!((&by_new, note), (&by_old, None));
            assert_eq!(by_new, ["lockwright", new, "42", "--x"]);
            for (asked, is_old) in [(old, true), (new, false)] {
                let (help, note) = routed(words_of(&format!("lockwright help {asked}")));
                assert_eq!(help, ["lockwright", new, "--help"]);
                assert_eq!(note.is_some(), is_old);
            }
        }
    }

    #[test]
    fn ctl_leads_to_switch_without_its_verb_for_that() {
        for (old, new) in [
            ("ctl 42", "switch 42"),
            ("ctl --help", "switch --help"),
            ("ctl 42 switch all fifo --guard 5s", "switch 42 all fifo --guard 5s"),
            ("ctl 42 set all spin=5", "switch 42 set all spin=5"),
            ("ctl 42 slo switch 5us", "switch 42 slo switch 5us"),
            ("help ctl", "help switch"),
            ("help ctl switch", "help switch"),
        ] {
            let (words, note) = routed(words_of(&format!("lockwright {old}")));
            assert_eq!(words, words_of(&format!("lockwright {new}")));
            assert_eq!(note.as_deref(), Some("note: lockwright ctl is now lockwright switch\n"));
        }
    }

    #[test]
    fn words_of_a_program_stay_as_they_are() {
        for text in [
            "lockwright run -- profile --kernel",
            "lockwright profile -- ./server --kernel",
            "lockwright run record",
            "lockwright",
            "lockwright switch 42 record",
            "lockwright explain --kernel",
        ] {
            assert_eq!(routed(words_of(text)), (words_of(text), None));
        }
    }

    #[test]
    fn pages_have_the_new_names() {
        for (text, page) in [
            ("--man profile --kernel", "--man profile-kernel"),
            ("--man kernel", "--man profile-kernel"),
            ("--man ctl set", "--man switch set"),
            ("--man run", "--man run"),
            ("--man", "--man"),
            ("--man man", "--man man"),
        ] {
            let (words, note) = routed(words_of(&format!("lockwright {text}")));
            assert_eq!((words, note), (words_of(&format!("lockwright {page}")), None));
        }
    }
}
