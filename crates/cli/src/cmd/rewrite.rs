//! `lockwright rewrite`.

use crate::hints::{Failure, cause};
use crate::output::{self, plain, right, say, table};
use lockwright_files::read_text;
use lockwright_rewrite::config::Config;
use lockwright_rewrite::{Fate, Rewritten, SectionPlace, database, rewrite};
use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Rewrite a C or C++ program's critical sections as functions
///
/// The patch is for the sources' folder: patch -p1. Built with the program's own flags, the program runs as before. Under `lockwright run`,
/// the thread that holds a mutex may run the sections of those that wait for it, if that is faster; LOCKWRIGHT_SECTIONS says whether.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright rewrite                        all sections that can be
  lockwright rewrite --lock g_table --patch -
  lockwright rewrite --report sections.csv  and what became of each

Exit code: 0, or 1 if no section can be rewritten. More: docs/rewrite.md")]
pub(crate) struct Args {
    /// How the program is compiled; bear or CMake writes it
    #[arg(long, value_name = "FILE", default_value = "compile_commands.json")]
    database: PathBuf,
    /// Only sections of mutexes with this word in their expression, or of this function or wrapper
    #[arg(long, value_name = "NAME")]
    lock: Vec<String>,
    /// Only locks in whose sections threads spend 15 % of their time or more, by this report of `profile --format json`
    #[arg(long, value_name = "FILE", conflicts_with = "lock")]
    from_profile: Option<PathBuf>,
    /// Wrappers, and functions that any thread may call
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the patch goes; - for standard output
    #[arg(long, value_name = "FILE", default_value = "lockwright.patch")]
    patch: PathBuf,
    /// Also write what became of each section, as CSV
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// From this share of the threads' time in a lock's sections on, delegation beat POSIX locks on the RCL authors' machine (R09).
const SHARE: f64 = 0.15;

/// Which sections are wanted.
enum Wanted {
    All,
    /// These words.
    Words(Vec<String>),
    /// At these places, as `file.c:12`; or of variables with these names.
    Places(Vec<String>),
}

impl Wanted {
    fn is(&self, place: &SectionPlace) -> bool {
        let is_word = |text: &str, word: &str| {
            text.split(|it: char| !it.is_alphanumeric() && it != '_').any(|it| it == word)
        };
        match self {
            Self::All => true,
            Self::Words(words) => words.iter().any(|word| {
                is_word(&place.mutex, word)
                    || place.function == *word
                    || place.through.as_deref() == Some(word)
            }),
            Self::Places(places) => {
                let name = place.path.file_name().unwrap_or_default().to_string_lossy();
                let at = format!("{name}:{}", place.line);
                places.iter().any(|it| *it == at || is_word(&place.mutex, it))
            }
        }
    }
}

/// The busiest locks of a profile: the places where threads wait for them, and their variables' names.
fn busiest(path: &Path) -> Result<Vec<String>, Failure> {
    let wrong = |why: &str| {
        Failure::new(format!("'{}' is no profile: {why}", path.display()))
            .hint("lockwright profile --format json --output p.json -- ./program")
    };
    let text = read_text(path, LARGEST).map_err(|error| unreadable(path, &cause(&error)))?;
    let report: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| wrong(&error.to_string()))?;
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let processes = report["processes"].as_array().ok_or_else(|| wrong("no 'processes'"))?;
    let mut places = Vec::new();
    for lock in processes.iter().flat_map(|process| list(&process["locks"])) {
        if lock["advice"]["in_sections"].as_f64().unwrap_or(0.0) < SHARE {
            continue;
        }
        let by = list(&lock["waiters"]).into_iter().chain(list(&lock["holders"]));
        places.extend(by.filter_map(|it| it["place"].as_str().map(str::to_owned)));
        let name = lock["name"].as_str().unwrap_or_default();
        let name = name.split(['+', ' ', '[', '.']).next().unwrap_or_default();
        places.extend((!name.is_empty()).then(|| name.to_owned()));
    }
    if places.is_empty() {
        return Err(Failure::no(format!(
            "no lock of '{}' has threads in its sections for 15 % of their time",
            path.display()
        ))
        .hint("lockwright rewrite --lock NAME takes any lock"));
    }
    Ok(places)
}

/// The largest file that we read, bytes. Databases of large projects have tens of MiB.
const LARGEST: u64 = 1 << 30;

fn unreadable(path: &Path, why: &str) -> Failure {
    Failure::new(format!("cannot read '{}': {why}", path.display()))
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    let text = read_text(&args.database, LARGEST).map_err(|error| error.to_string());
    let units = text.and_then(|text| database::parse(&text)).map_err(|why| {
        unreadable(&args.database, &why)
            .hint("bear -- make writes it, or cmake -DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    })?;
    let config = match &args.config {
        None => Config::default(),
        Some(path) => {
            let text =
                read_text(path, LARGEST).map_err(|error| unreadable(path, &cause(&error)))?;
            Config::read(&text).map_err(|why| {
                Failure::new(format!("'{}': {why}", path.display()))
                    .hint("docs/rewrite.md has an example")
            })?
        }
    };
    let wanted = match (&args.from_profile, args.lock.is_empty()) {
        (Some(path), _) => Wanted::Places(busiest(path)?),
        (None, false) => Wanted::Words(args.lock.clone()),
        (None, true) => Wanted::All,
    };
    let bar = lockwright_bench::progress(units.len() as u64, "files", false);
    let rewritten = rewrite(&units, &config, &|place| wanted.is(place), &mut |_| bar.inc(1));
    bar.finish_and_clear();
    let rewritten = rewritten.map_err(|_| {
        Failure::new("no libclang, which reads C and C++")
            .hint("apt install libclang-dev, or LIBCLANG_PATH=DIR where it is")
    })?;
    let here = env::current_dir().unwrap_or_default();
    let root = root(&rewritten, &here);
    for (path, why) in &rewritten.unread {
        say(&format!("not read: {}: {why}\n", shorter(path, &root)));
    }
    if let Some(path) = &args.report {
        let text = output::csv(records(&rewritten, &root))?;
        lockwright_files::write(path, text).map_err(|error| unwritable(path, &error))?;
    }
    let patch = rewritten.patch(&root);
    let is_stdout = args.patch == Path::new("-");
    if is_stdout {
        output::print(&patch)?;
    } else if !patch.is_empty() {
        let written = lockwright_files::write(&args.patch, &patch);
        written.map_err(|error| unwritable(&args.patch, &error))?;
    }
    let elsewhere = (root != here).then_some(&root);
    let summary = summary(&rewritten, &args, elsewhere.map(PathBuf::as_path));
    if is_stdout {
        say(&summary)
    } else {
        output::print(&summary)?
    }
    Ok(ExitCode::from(u8::from(patch.is_empty())))
}

/// The folder that the patch is for: this one if all files are in it, else the deepest that has them all.
fn root(rewritten: &Rewritten, here: &Path) -> PathBuf {
    let mut folders = rewritten.changes.iter().filter_map(|change| change.path.parent());
    let is_here = folders.clone().all(|folder| folder.starts_with(here));
    let Some(first) = folders.next().filter(|_| !is_here) else { return here.to_owned() };
    let shared = |one: &Path, other: &Path| {
        one.ancestors().find(|it| other.starts_with(it)).unwrap_or(Path::new("/")).to_owned()
    };
    folders.fold(first.to_owned(), |root, folder| shared(&root, folder))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write '{}': {}", path.display(), cause(error)))
}

fn shorter(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

fn records(rewritten: &Rewritten, root: &Path) -> Vec<[String; 6]> {
    let head = ["file", "line", "function", "mutex", "fate", "why"].map(str::to_owned);
    let rows = rewritten.places.iter().map(|place| {
        let (fate, why) = match &place.fate {
            Fate::Converted => ("converted", ""),
            Fate::Refused(why) => ("refused", why.as_str()),
            Fate::Kept(why) => ("kept", why.as_str()),
            Fate::Unasked => ("not asked for", ""),
        };
        let (line, file) = (place.line.to_string(), shorter(&place.path, root));
        [file, line, place.function.clone(), place.mutex.clone(), fate.to_owned(), why.to_owned()]
    });
    [head].into_iter().chain(rows).collect()
}

/// How many reasons are told.
const REASONS: usize = 12;

fn summary(rewritten: &Rewritten, args: &Args, elsewhere: Option<&Path>) -> String {
    let count = |is: &dyn Fn(&Fate) -> bool| {
        rewritten.places.iter().filter(|place| is(&place.fate)).count()
    };
    let converted = count(&|fate| *fate == Fate::Converted);
    let refused = count(&|fate| matches!(fate, Fate::Refused(_)));
    let kept = count(&|fate| matches!(fate, Fate::Kept(_)));
    let mut text = format!(
        "{converted} of {} sections are functions now, in {} files; {kept} more need not be\n",
        converted + refused,
        rewritten.changes.len()
    );
    let mut reasons: BTreeMap<&str, Vec<&SectionPlace>> = BTreeMap::new();
    for place in &rewritten.places {
        if let Fate::Refused(why) = &place.fate {
            reasons.entry(why).or_default().push(place);
        }
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, places)| std::cmp::Reverse(places.len()));
    if !reasons.is_empty() {
        let mut all = table(&["left", "first", "why"]);
        right(&mut all, 0..1);
        for (why, places) in reasons.iter().take(REASONS) {
            let name = places[0].path.file_name().unwrap_or_default().to_string_lossy();
            let first = format!("{name}:{}", places[0].line);
            all.add_row([places.len().to_string(), first, (*why).to_owned()]);
        }
        text += &format!("\n{}", plain(&all));
        let more = reasons.len().saturating_sub(REASONS);
        if more > 0 {
            text += &format!("{more} more reasons: --report FILE\n");
        }
    }
    if converted > 0 && args.patch != Path::new("-") {
        let folder = elsewhere.map(|root| format!(" -d {}", root.display())).unwrap_or_default();
        text += &format!("\npatch -p1{folder} < {}\n", args.patch.display());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn place(line: usize, mutex: &str) -> SectionPlace {
        SectionPlace {
            path: "src/table.c".into(),
            line,
            last: line + 3,
            function: "put".to_owned(),
            mutex: mutex.to_owned(),
            through: Some("table_lock".to_owned()),
            fate: Fate::Unasked,
        }
    }

    #[test]
    fn words_name_mutexes_functions_and_wrappers_as_a_whole() {
        let is =
            |word: &str| Wanted::Words(vec![word.to_owned()]).is(&place(3, "&c->g_table.mutex"));
        assert!(["g_table", "mutex", "put", "table_lock"].into_iter().all(is));
        assert!(!["table", "g_tab", "pu"].into_iter().any(is));
    }

    #[test]
    fn a_profile_names_its_busy_locks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.json");
        let busy = |share: f64| {
            let text = format!(
                r#"{{"processes": [{{"locks": [
                    {{"name": "g_table+0x8", "advice": {{"in_sections": {share}}},
                      "waiters": [{{"place": "table.c:7"}}], "holders": []}},
                    {{"name": "g_idle", "advice": {{"in_sections": 0.1}},
                      "waiters": [{{"place": "table.c:9"}}]}}]}}]}}"#
            );
            fs::write(&path, text).unwrap();
            busiest(&path)
        };
        let wanted = Wanted::Places(busy(0.2).unwrap());
        assert!(wanted.is(&place(7, "&c->mutex")) && wanted.is(&place(1, "&g_table[i]")));
        assert!(!wanted.is(&place(9, "&g_idle")));
        assert!(busy(0.1).unwrap_err().message().contains("15 %"));
        fs::write(&path, "{}").unwrap();
        assert!(busiest(&path).unwrap_err().message().contains("is no profile"));
    }

    #[test]
    fn a_patch_is_for_the_folder_that_has_all_files() {
        let of = |files: &[&str]| {
            let changes = files.iter().map(|file| lockwright_rewrite::Change {
                path: PathBuf::from(file),
                old: String::new(),
                new: String::new(),
            });
            let rewritten = Rewritten { changes: changes.collect(), ..Rewritten::default() };
            root(&rewritten, Path::new("/p/build"))
        };
        assert_eq!(of(&[]), Path::new("/p/build"));
        assert_eq!(of(&["/p/build/made.c", "/p/build/x/y.c"]), Path::new("/p/build"));
        assert_eq!(of(&["/p/src/a.c"]), Path::new("/p/src"));
        assert_eq!(of(&["/p/src/a.c", "/p/build/made.c", "/p/src/x/b.c"]), Path::new("/p"));
    }
}
