//! The locks of a running process: reads its table from the memory in which our library keeps it, and posts new tables.

use crate::elf::{self, Obstacle};
use crate::objects;
use crate::process::{Mapping, Process, mappings};
use crate::table::Table;
use lockwright_contract::attached::{self, Attached, DETACHED};
use lockwright_contract::mailbox::{
    LEASE, MAGIC, Mailbox, ON_LEASE, RULES, SLOTS, SYMBOL, TABLE, TEXT,
};
use lockwright_contract::post::remote::{Answer, Begun, Memory, RemotePosts};
use lockwright_contract::post::{Post, PostState};
use lockwright_native::futex::{self, Clock};
use lockwright_text::Failure;
use std::ffi::OsStr;
use std::mem::offset_of;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// How long we wait for a thread that waits for a lock.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// A process's mailbox.
pub struct Remote<'a> {
    process: &'a Process,
    at: u64,
    /// The address of [`Attached`].
    attached: Option<u64>,
}

/// Where a process's mailbox is, as long as the process runs.
#[derive(Clone, Copy, Debug)]
pub struct MailboxPlace {
    at: u64,
    attached: Option<u64>,
}

impl MailboxPlace {
    /// The mailbox there, for a process that was opened again.
    pub fn of(self, process: &Process) -> Remote<'_> {
        Remote { process, at: self.at, attached: self.attached }
    }
}

impl<'a> Remote<'a> {
    /// Finds the mailbox of the preloaded library, or of the runtime that is linked into the program.
    pub fn find(process: &'a Process) -> Result<Self, Failure> {
        let at = symbol_in(process, SYMBOL)?;
        let attached = symbol_in(process, attached::SYMBOL).ok();
        settled(process, || Ok(process.has::<Mailbox>(at, MAGIC)?.then_some(())))?;
        Ok(Self { process, at, attached })
    }

    /// Where it is, since finding it again takes long.
    pub fn place(&self) -> MailboxPlace {
        MailboxPlace { at: self.at, attached: self.attached }
    }

    /// Have the program's calls been redirected to glibc again?
    pub fn is_detached(&self) -> Result<bool, Failure> {
        let Some(at) = self.attached else { return Ok(false) };
        Ok(self.process.word(at + offset_of!(Attached, how) as u64)? == DETACHED)
    }

    /// Posts this default lock with the current rules. Doesn't wait until the process takes it up.
    #[cfg(target_arch = "x86_64")] // for `attach`
    pub fn set_default(&self, lock: &str) -> Result<(), Failure> {
        let table = Table { default: lock.to_owned(), ..base(self)? };
        self.post(&table.words(), 0, Duration::ZERO).map(drop)
    }

    fn word(&self, offset: usize) -> Result<u32, Failure> {
        self.process.word(self.at + offset as u64)
    }

    fn word64(&self, offset: usize) -> Result<u64, Failure> {
        self.process.word64(self.at + offset as u64)
    }

    fn posts(&self) -> RemotePosts<'a, Process> {
        RemotePosts::new(self.process, self.at + offset_of!(Mailbox, posts) as u64)
    }

    /// The last post.
    pub(crate) fn seen(&self) -> Result<Post, Failure> {
        self.posts().seen()
    }

    /// What is on lease: [`TABLE`], [`SLOTS`].
    pub fn leased(&self) -> Result<u32, Failure> {
        self.word(offset_of!(Mailbox, leased))
    }

    /// Does nobody renew the lease any more?
    pub fn is_lease_over(&self) -> Result<bool, Failure> {
        Ok(futex::now(Clock::Monotonic) > self.word64(offset_of!(Mailbox, lease_ns))?)
    }

    /// Renews the lease.
    pub fn renew_lease(&self) -> Result<(), Failure> {
        self.set_lease(futex::now(Clock::Monotonic) + LEASE.as_nanos() as u64)
    }

    /// Ends it.
    pub fn end_lease(&self) -> Result<(), Failure> {
        self.set_lease(0)
    }

    fn set_lease(&self, until_ns: u64) -> Result<(), Failure> {
        let at = self.at + offset_of!(Mailbox, lease_ns) as u64;
        self.process.write(at, &until_ns.to_ne_bytes())
    }

    /// Waits this long until nothing is on lease that has run out. (In a program in which nobody waits, that may be never, and makes no
    /// difference.)
    pub fn await_end(&self, patience: Duration) -> Result<(), Failure> {
        let begun = Begun::new();
        while self.leased()? & (TABLE | SLOTS) != 0 && begun.elapsed() < patience {
            begun.pause();
        }
        Ok(())
    }

    /// The table in force, or the one that is back at the next wait since a lease is over.
    pub fn table(&self) -> Result<Table, Failure> {
        self.read(|leased| Ok(leased & TABLE != 0 && self.is_lease_over()?))
    }

    /// The last table that came for good, whatever is in force on lease.
    pub fn for_good(&self) -> Result<Table, Failure> {
        self.read(|leased| Ok(leased & TABLE != 0))
    }

    /// The current table, or the one that lies behind it, as `is_back` says of what is on lease.
    fn read(&self, is_back: impl Fn(u32) -> Result<bool, Failure>) -> Result<Table, Failure> {
        let fail = || {
            Failure::new(format!(
                "process {} has not loaded our locks yet, or runs under a tool that needs glibc's",
                self.process.pid
            ))
            .hint("try again once it has started")
        };
        /// Where a table's text is, how long it is, and where its places are.
        const NOW: [usize; 3] =
            [offset_of!(Mailbox, now), offset_of!(Mailbox, now_len), offset_of!(Mailbox, places)];
        const BACK: [usize; 3] = [
            offset_of!(Mailbox, back),
            offset_of!(Mailbox, back_len),
            offset_of!(Mailbox, back_places),
        ];
        let look = || {
            let leased = self.leased()?;
            let [at, len, places] = if is_back(leased)? { BACK } else { NOW };
            Ok((leased, self.word64(at)?, self.word(len)? as usize, self.word64(places)?))
        };
        for _ in 0..100 {
            let seen = look()?;
            let (_, at, len, places_at) = seen;
            if at == 0 || len > TEXT {
                return Err(fail());
            }
            let mut bytes = vec![0; len];
            self.process.read(at, &mut bytes)?;
            let mut places = [0; RULES];
            self.process.read(places_at, &mut places)?;
            // If it changed while we read it, try again.
            if seen == look()? {
                let mut table = Table::read(&String::from_utf8_lossy(&bytes));
                for (rule, place) in table.rules.iter_mut().zip(places) {
                    rule.place = Some(place);
                }
                return Ok(table);
            }
        }
        Err(fail())
    }

    /// The table that was posted for good but not yet taken up. (One on lease is nothing to rely on.)
    pub fn posted(&self) -> Result<Option<Table>, Failure> {
        let post = self.posts().seen()?;
        let is_on_lease = self.word(offset_of!(Mailbox, terms))? & ON_LEASE != 0;
        let mut text = vec![0; (self.word(offset_of!(Mailbox, len))? as usize).min(TEXT)];
        self.process.read(self.at + offset_of!(Mailbox, text) as u64, &mut text)?;
        let is_there = post.is(PostState::Posted) && post == self.posts().seen()?;
        Ok((is_there && !is_on_lease).then(|| Table::read(&String::from_utf8_lossy(&text))))
    }

    /// Posts a table on these terms ([`Mailbox::terms`]), and waits this long for the process to take it up.
    pub fn post(&self, table: &str, terms: u32, patience: Duration) -> Result<Answer, Failure> {
        if table.len() > TEXT {
            return Err(Failure::new(format!("more than {TEXT} bytes of rules"))
                .hint("name whole libraries, or functions by their full signature"));
        }
        self.posts().post(patience, |writing| {
            writing.replace()?;
            self.process.write(self.at + offset_of!(Mailbox, text) as u64, table.as_bytes())?;
            self.process.set_word(self.at + offset_of!(Mailbox, len) as u64, table.len() as u32)?;
            self.process.set_word(self.at + offset_of!(Mailbox, terms) as u64, terms)?;
            Ok(true)
        })
    }
}

/// What a process has of ours. `None`: it is another version's, or the loader is just mapping it, which doesn't take long.
pub fn settled<T>(
    process: &Process,
    look: impl Fn() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    for _ in 0..10 {
        if let Some(seen) = look()? {
            return Ok(seen);
        }
        sleep(Duration::from_millis(1));
    }
    Err(other_version(process))
}

/// The address of a symbol of ours in a process, in the preloaded library or in the program's own runtime.
pub fn symbol_in(process: &Process, symbol: &str) -> Result<u64, Failure> {
    find_symbol(process, symbol).map_err(|failure| process.unless_ended(failure))
}

fn find_symbol(process: &Process, symbol: &str) -> Result<u64, Failure> {
    let maps = mappings(process.pid).map_err(|error| process.gone(&error))?;
    if maps.is_empty() {
        return Err(process.ended());
    }
    let file = |map: &&Mapping| map.is_file() && map.offset == 0;
    let is_ours = |map: &&Mapping| {
        map.path.file_name().and_then(OsStr::to_str).is_some_and(|n| n.contains("lockwright"))
    };
    let program = process.program();
    let library = maps.iter().filter(file).filter(is_ours);
    let own = maps.iter().filter(file).filter(|map| map.path == program);
    let mut is_old = false;
    for map in library.chain(own) {
        // Open the mapped file itself if we are allowed to: another file may now have its name.
        let mapped = format!("/proc/{}/map_files/{:x}-{:x}", process.pid, map.start, map.end);
        let read = |name| {
            objects::offset(Path::new(&mapped), name)
                .or_else(|_| objects::offset(&process.sees(&map.path), name))
        };
        match read(symbol) {
            Ok(Some(offset)) => return Ok(map.start.wrapping_add(offset)),
            Ok(None) => is_old |= read(SYMBOL).is_ok_and(|other| other.is_some()),
            // A program for other processors can't have it.
            Err(_) if map.path == program && is_foreign(&mapped, &process.sees(&map.path)) => {}
            Err(_) => {
                return Err(Failure::new(format!(
                    "process {} runs with '{}', but that file is gone",
                    process.pid,
                    map.path.display()
                ))
                .hint("restart it with the current library"));
            }
        }
    }
    if is_old {
        return Err(other_version(process));
    }
    let pid = process.pid;
    let without = format!("process {pid} ({}) runs without lockwright", process.name());
    let program = elf::inspect(Path::new(&format!("/proc/{pid}/exe")));
    if program.is_ok_and(|program| program.is_static()) {
        return Err(Failure::new(format!("{without}, and is statically linked"))
            .hint("a static program may link our locks: docs/sync.md"));
    }
    Err(Failure::new(without).hint(format!(
        "attach first: lockwright attach {pid}; or start it with `lockwright run -- PROGRAM` (under --stats or with \
         policies the program is a child of that command). To only look: lockwright profile -p {pid} --sample"
    )))
}

/// The error for a process that runs with another version's library.
pub fn other_version(process: &Process) -> Failure {
    Failure::new(format!(
        "process {} runs with another version of lockwright than this command",
        process.pid
    ))
    .hint("restart it with this version's library; lockwright --version says which that is")
}

/// Is one of these a program that isn't ours to read, since it is built for other processors?
fn is_foreign(mapped: &str, named: &Path) -> bool {
    let program = elf::inspect(Path::new(mapped)).or_else(|_| elf::inspect(named));
    program.is_ok_and(|program| matches!(program.obstacle(), Some(Obstacle::OtherArchitecture(_))))
}

/// The table on which a change is based: the posted one if it isn't in force yet, else the last one that came for good. What another
/// command tries is no part of it.
pub fn base(mailbox: &Remote<'_>) -> Result<Table, Failure> {
    match mailbox.posted()? {
        Some(posted) => Ok(posted),
        None => mailbox.for_good(),
    }
}

/// Posts a table, and waits a while. Returns whether it is in force already.
pub fn post(process: &Process, mailbox: &Remote<'_>, table: &Table) -> Result<bool, Failure> {
    post_for(process, mailbox, table, 0, PATIENCE)
}

/// As [`post`], but on these terms, and waits this long.
pub fn post_for(
    process: &Process,
    mailbox: &Remote<'_>,
    table: &Table,
    terms: u32,
    patience: Duration,
) -> Result<bool, Failure> {
    let pid = process.pid;
    match mailbox.post(&table.words(), terms, patience)? {
        Answer::Done => Ok(true),
        Answer::Nothing | Answer::NotPosted => Ok(false),
        Answer::Refused(why) => {
            let why = String::from_utf8_lossy(why.text());
            Err(Failure::new(format!("process {pid} keeps its locks: {why}"))
                .hint(format!("to see which it has: lockwright switch {pid}")))
        }
        Answer::Stopped => {
            Err(Failure::new(format!("process {pid} is stopped while it changes its locks"))
                .hint(format!("kill -CONT {pid}, and try again")))
        }
    }
}

/// Fails if the process was detached.
pub fn refuse_detached(process: &Process, mailbox: &Remote<'_>) -> Result<(), Failure> {
    match mailbox.is_detached()? {
        false => Ok(()),
        true => {
            let message = format!("process {} ({}) has been detached", process.pid, process.name());
            Err(Failure::new(message).hint(format!("lockwright attach {}", process.pid)))
        }
    }
}
