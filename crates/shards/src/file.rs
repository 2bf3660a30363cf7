//! A shard's file: a header, then one result per line.

use crate::words::{joined, stripped, with_output};
use crate::{Error, Shard};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use siphasher::sip128::{Hasher128 as _, SipHasher13};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::Hasher as _;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Version of the file's layout.
const FORMAT: u32 = 1;

/// The bytes with which every header begins.
const BEGINNING: &[u8] = b"{\"format\":";

/// What decides an experiment's results.
#[derive(Clone, Debug)]
pub struct Plan {
    program: String,
    command: Vec<String>,
    hash: String,
}

impl Plan {
    /// The plan of `program` (as users call it: `lockwright`, `cargo xtask`) for these words. `inputs` are the contents
    /// of the files that the results depend on, not the files' names.
    pub fn new(
        program: &str,
        words: impl IntoIterator<Item = String>,
        inputs: impl IntoIterator<Item: AsRef<[u8]>>,
    ) -> Self {
        let mut hasher = SipHasher13::new();
        for input in inputs {
            hasher.write_usize(input.as_ref().len());
            hasher.write(input.as_ref());
        }
        let hash = format!("{:032x}", hasher.finish128().as_u128());
        Self { program: program.to_owned(), command: stripped(words), hash }
    }

    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }
}

/// The first line of a shard's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardHeader {
    format: u32,
    /// The program's name, as users call it.
    pub(crate) program: String,
    /// The command's words, as they would be for one machine.
    pub(crate) command: Vec<String>,
    /// The release, and a hash of the sources that affect results.
    pub(crate) version: String,
    pub(crate) sources: String,
    pub(crate) plan: String,
    pub(crate) shard: u32,
    pub(crate) of: u32,
    /// A description of the machine that ran it.
    pub(crate) machine: String,
}

impl ShardHeader {
    /// The header of a shard made by this build.
    pub(crate) fn new(plan: &Plan, shard: Shard, machine: String) -> Self {
        Self {
            format: FORMAT,
            program: plan.program.clone(),
            command: plan.command.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sources: env!("LOCKWRIGHT_SOURCES").to_owned(),
            plan: plan.hash.clone(),
            shard: shard.number,
            of: shard.of,
            machine,
        }
    }

    /// The shard.
    pub(crate) fn shard(&self) -> Shard {
        Shard { number: self.shard, of: self.of }
    }

    /// A description of the machine that ran it.
    pub fn machine(&self) -> &str {
        &self.machine
    }

    /// The file's name in its folder.
    pub(crate) fn name(&self) -> String {
        format!("shard-{}-of-{}.jsonl", self.shard, self.of)
    }

    /// Was it made by this build?
    pub(crate) fn is_ours(&self) -> bool {
        self.version == env!("CARGO_PKG_VERSION") && self.sources == env!("LOCKWRIGHT_SOURCES")
    }

    /// Why the results of these two shards don't belong together.
    pub(crate) fn differs(&self, other: &Self) -> Option<&'static str> {
        if self.program != other.program {
            return Some("belongs to another program");
        }
        if self.version != other.version || self.sources != other.sources {
            return Some("was made by another build of lockwright");
        }
        if self.plan != other.plan {
            return Some("belongs to another plan");
        }
        (self.of != other.of).then_some("has another number of shards")
    }

    /// The command that finishes a shard.
    pub(crate) fn resume(&self, shard: Shard, folder: &Path) -> String {
        self.resume_as(&shard.to_string(), folder)
    }

    fn resume_as(&self, shard: &str, folder: &Path) -> String {
        let words = with_output(&self.command, Some(folder));
        format!("{} {} --shard {shard} --resume", self.program, joined(&words))
    }

    /// The command that finishes several shards, as one line of shell.
    pub(crate) fn resume_all(&self, shards: &[(u32, &Path)]) -> String {
        match shards {
            [(number, folder), others @ ..] if others.iter().all(|(_, other)| other == folder) => {
                if others.is_empty() {
                    return self.resume(Shard { number: *number, of: self.of }, folder);
                }
                let numbers: Vec<_> = shards.iter().map(|(number, _)| number.to_string()).collect();
                let command = self.resume_as(&format!("$i/{}", self.of), folder);
                format!("for i in {}; do {command}; done", numbers.join(" "))
            }
            _ => {
                let one = |(number, folder): &(u32, &Path)| {
                    self.resume(Shard { number: *number, of: self.of }, folder)
                };
                shards.iter().map(one).collect::<Vec<_>>().join("; ")
            }
        }
    }

    /// The command as it would be for one machine, without a folder.
    pub(crate) fn whole(&self) -> String {
        format!("{} {}", self.program, joined(&with_output(&self.command, None)))
    }
}

#[derive(Serialize, Deserialize)]
struct ResultLine<'a> {
    job: String,
    #[serde(borrow)]
    result: &'a RawValue,
}

/// Results as JSON, by the keys of their jobs.
pub(crate) type Known = BTreeMap<String, String>;

/// The contents of a shard's file.
pub(crate) struct Contents {
    pub(crate) header: ShardHeader,
    pub(crate) known: Known,
    /// Bytes up to the end of the last complete line.
    sound: u64,
}

/// Reads a shard's file; `None` if its header is incomplete.
pub(crate) fn read(path: &Path) -> Result<Option<Contents>, Error> {
    let failed = |error| unreadable(path, &error);
    let mut file = open(path, OpenOptions::new().read(true), 0).map_err(failed)??;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    parse(path, &bytes)
}

/// Opens a file with additional flags. It must be a regular file: reading another kind, such as a pipe, may never end.
fn open(path: &Path, how: &mut OpenOptions, flags: i32) -> io::Result<Result<File, Error>> {
    let file = how.custom_flags(libc::O_NONBLOCK | flags).open(path)?;
    Ok(if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(foreign(path, "is not a regular file"))
    })
}

/// The error for a file that isn't ours.
fn foreign(path: &Path, why: &str) -> Error {
    let shown = path.display();
    let hint = format!("ls -l '{shown}'; take another folder, or move it away");
    Error::new(format!("'{shown}' {why}"), hint)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Option<Contents>, Error> {
    let sound = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let text = String::from_utf8_lossy(&bytes[..sound]);
    let damaged = |line: usize| {
        let path = path.display();
        Error::new(
            format!("'{path}' is damaged: line {line} is not a result"),
            format!("rm '{path}', and run that shard again"),
        )
    };
    let mut lines = text.lines().enumerate();
    let Some((_, first)) = lines.next() else { return Ok(None) };
    let header: ShardHeader = serde_json::from_str(first).map_err(|_| damaged(1))?;
    if header.format != FORMAT || Shard::new(header.shard, header.of).is_none() {
        return Err(damaged(1));
    }
    let mut known = Known::new();
    for (number, line) in lines {
        let line: ResultLine<'_> = serde_json::from_str(line).map_err(|_| damaged(number + 1))?;
        add(&mut known, line.job, line.result.get(), path, None)?;
    }
    Ok(Some(Contents { header, known, sound: sound as u64 }))
}

/// Adds a result. Two results of one job must be equal, except for the key that `time` names.
pub(crate) fn add(
    known: &mut Known,
    job: String,
    result: &str,
    path: &Path,
    time: Option<&str>,
) -> Result<(), Error> {
    let agrees = |other: &str| {
        let same =
            |time| without(result, time).is_some_and(|one| Some(one) == without(other, time));
        result == other || time.is_some_and(same)
    };
    match known.get(&job) {
        Some(other) if !agrees(other) => Err(Error::new(
            format!("two results of one job disagree: '{job}', the second in '{}'", path.display()),
            "leave out the folder that you don't trust, and run its shard again",
        )),
        Some(_) => Ok(()),
        None => {
            known.insert(job, result.to_owned());
            Ok(())
        }
    }
}

/// A result, without this key at any level.
fn without(result: &str, key: &str) -> Option<Value> {
    fn drop(value: &mut Value, key: &str) {
        match value {
            Value::Object(fields) => {
                fields.remove(key);
                fields.values_mut().for_each(|value| drop(value, key));
            }
            Value::Array(values) => values.iter_mut().for_each(|value| drop(value, key)),
            _ => {}
        }
    }
    let mut value = serde_json::from_str(result).ok()?;
    drop(&mut value, key);
    Some(value)
}

/// A shard's file, open for appending. A lock keeps other processes from appending to it.
#[derive(Debug)]
pub(crate) struct Appended {
    file: File,
    path: PathBuf,
    /// Number of results that this process appended.
    appended: usize,
    /// Length of the complete lines, in bytes.
    sound: u64,
}

impl Appended {
    /// Creates a file, or opens an existing one and reads its header and results.
    pub(crate) fn open(
        header: &ShardHeader,
        folder: &Path,
        resume: bool,
    ) -> Result<(Self, Option<ShardHeader>, Known), Error> {
        let path = folder.join(header.name());
        let failed = |error: &io::Error| unwritable(&path, error);
        fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        // Others may write to the folder, and a link may lead anywhere.
        let is_link = |meta: fs::Metadata| meta.file_type().is_symlink();
        if fs::symlink_metadata(&path).is_ok_and(is_link) {
            return Err(foreign(&path, "is a symbolic link: results are not written through one"));
        }
        let mut how = OpenOptions::new();
        let how = how.read(true).append(true).create(true);
        let mut file = open(&path, how, libc::O_NOFOLLOW).map_err(|error| failed(&error))??;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let busy = format!("another process works on '{}'", path.display());
                return Err(Error::new(busy, "wait for it, or take another folder"));
            }
            // Some file systems don't support locks.
            Err(TryLockError::Error(_)) => {}
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        let contents = parse(&path, &bytes)?;
        let mut begun = bytes.iter().zip(BEGINNING);
        if contents.is_none() && begun.any(|(byte, expected)| byte != expected) {
            return Err(foreign(&path, "is not a shard's file"));
        }
        if let Some(contents) = &contents {
            let shown = path.display();
            if let Some(why) = header.differs(&contents.header) {
                let theirs = contents.header.whole();
                return Err(Error::new(
                    format!("'{shown}' {why}: {theirs}"),
                    "take another folder: --output DIR",
                ));
            }
            if !resume {
                return Err(Error::new(
                    format!("'{shown}' has results already"),
                    format!("go on with them: {}", header.resume(header.shard(), folder)),
                ));
            }
        }
        let sound = contents.as_ref().map_or(0, |contents| contents.sound);
        let mut appended = Self { file, path, appended: 0, sound };
        // Drops a line that a kill left incomplete.
        appended.file.set_len(sound).map_err(|error| unwritable(&appended.path, &error))?;
        let Some(contents) = contents else {
            appended.line(&serde_json::to_string(header).expect("texts and numbers"))?;
            appended.sync()?;
            return Ok((appended, None, Known::new()));
        };
        Ok((appended, Some(contents.header), contents.known))
    }

    fn line(&mut self, line: &str) -> Result<(), Error> {
        // One unbuffered write: once this returns, the line survives the end of the process.
        let line = format!("{line}\n");
        self.file.write_all(line.as_bytes()).map_err(|error| {
            // A full disk accepts only part of the line. The next line must not follow that part.
            let _ = self.file.set_len(self.sound);
            unwritable(&self.path, &error)
        })?;
        self.sound += line.len() as u64;
        Ok(())
    }

    /// Makes what was appended survive a crash of the machine, too.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(|error| unwritable(&self.path, &error))
    }

    pub(crate) fn append(&mut self, job: &str, result: &RawValue) -> Result<(), Error> {
        let line = ResultLine { job: job.to_owned(), result };
        self.line(&serde_json::to_string(&line).expect("a text and JSON"))?;
        self.appended += 1;
        Ok(())
    }

    pub(crate) fn appended(&self) -> usize {
        self.appended
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Error {
    let shown = path.display();
    Error::new(format!("cannot read '{shown}': {}", plain(error)), format!("ls -ld '{shown}'"))
}

fn unwritable(path: &Path, error: &io::Error) -> Error {
    let shown = path.display();
    Error::new(
        format!("cannot write '{shown}': {}", plain(error)),
        format!("ls -ld \"$(dirname '{shown}')\"; df '{shown}'"),
    )
}

/// The system's error message without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_lowercase().chain(chars).collect())
}
