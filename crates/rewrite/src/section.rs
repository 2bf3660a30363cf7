//! Finds critical sections, and the ways out of them.
//!
//! ```text
//!     pthread_mutex_lock(&m);          ┐ the section: from here ...
//!     if (full) {                      │
//!         pthread_mutex_unlock(&m);    │ an exit: what follows, its tail, runs after the section, on its own thread
//!         return -1;                   │
//!     }                                │
//!     put(item);                       │
//!     pthread_mutex_unlock(&m);        ┘ ... to here
//! ```
//!
//! A section begins at a statement that locks a mutex, and ends in the same block. Each way through it unlocks that mutex once.
//!
//! ```text
//!     pthread_mutex_lock(&m);
//!     while (empty)                    ┐ an exit, too: whoever runs the section doesn't wait. The thread that asked locks the mutex, waits,
//!         pthread_cond_wait(&c, &m);   ┘ and runs the rest. To the program, that is a wait that ends without a signal, as any may
//!     take();
//!     pthread_mutex_unlock(&m);
//! ```

use crate::c::tokens;
use crate::facts::{self, Calls};
use crate::names::{Act, LockNames, LockOp, bare, normal};
use crate::tree::{Function, SourceFile, Statement, StatementKind};
use crate::ways::{Around, Exit, Flow, RELEASED, unlabelled};
use crate::writes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A section that can be turned into a function.
#[derive(Clone, Debug)]
pub struct Section {
    /// The statement that locks.
    pub lock: Range<usize>,
    /// What it locks.
    pub act: Act,
    /// What runs inside.
    pub body: Range<usize>,
    /// The end of what is replaced.
    pub end: usize,
    /// A statement that unlocks.
    pub unlock: Range<usize>,
    /// The wrappers that its text called, and that may have no other caller now.
    pub wrappers: BTreeSet<String>,
    /// The other ways out.
    pub exits: Vec<Exit>,
    /// Where it waits for a condition variable.
    pub waits: Option<CondWait>,
}

impl Section {
    /// Does the section's function have what is at this place?
    pub fn runs(&self, at: usize) -> bool {
        let is_dropped = self.exits.iter().any(|exit| exit.dropped.contains(&at))
            || self.waits.as_ref().is_some_and(|waits| waits.body.contains(&at));
        self.body.contains(&at) && !is_dropped
    }

    /// The number of the exit by which its thread goes to wait.
    pub fn waiting_exit(&self) -> usize {
        self.exits.len() + 1
    }
}

/// A loop or a branch that waits for a condition variable.
#[derive(Clone, Debug)]
pub struct CondWait {
    /// All of it.
    pub whole: Range<usize>,
    /// `while` or `if`.
    pub keyword: Range<usize>,
    /// What waits.
    pub body: Range<usize>,
}

/// What became of a place that locks a mutex.
#[derive(Clone, Debug)]
pub enum Finding {
    /// A section.
    Section(Box<Section>),
    /// It stays as it is.
    Refused(String),
    /// It stays as it is, and nothing is lost: a thread that doesn't wait has nothing to hand over.
    Kept(&'static str),
}

/// A place that locks a mutex.
#[derive(Clone, Debug)]
pub struct LockSite {
    /// Where, in the file.
    pub at: usize,
    /// The mutex, if it is known.
    pub mutex: String,
    /// What became of it.
    pub found: Finding,
}

/// Looks for the sections of one function.
struct Search<'a> {
    flow: Flow<'a>,
    calls: &'a Calls,
    sites: Vec<LockSite>,
    /// Sites up to here are inside of a section that was found.
    inside: usize,
    /// The mutex of a section that lets go of it in between, and where its block ends: what locks it again is the same section.
    goes_on: (String, usize),
}

/// All places of a function that lock a mutex.
pub fn sites(
    file: &SourceFile,
    function: &Function,
    names: &LockNames,
    calls: &Calls,
) -> Vec<LockSite> {
    if names.0.contains_key(&function.name) {
        return Vec::new(); // its callers are the sections
    }
    let mut search = Search {
        flow: Flow { file, function, names },
        calls,
        sites: Vec::new(),
        inside: 0,
        goes_on: Default::default(),
    };
    search.look(&function.body);
    search.sites
}

impl Search<'_> {
    /// Looks at each statement of a block, and into it.
    fn look(&mut self, block: &Statement) {
        for (number, child) in block.children.iter().enumerate() {
            let inner = unlabelled(child);
            let found = match (self.flow.act(child), &block.kind) {
                (Some(act), StatementKind::Block) if act.what == LockOp::Lock => {
                    let found = self.section(block, number, &act);
                    let found =
                        found.map_or_else(Finding::Refused, |it| Finding::Section(Box::new(it)));
                    Some((act.mutex, found))
                }
                (Some(act), _) if act.what == LockOp::Lock => {
                    Some((act.mutex, Finding::Refused("locked in one branch only".to_owned())))
                }
                (None, _) => self.hidden(inner),
                _ => None,
            };
            if let Some((mutex, mut found)) = found {
                if inner.range.start < self.inside {
                    found = Finding::Kept("inside another section, whose thread runs it, too");
                } else if let Finding::Section(section) = &found {
                    self.inside = section.end;
                } else if let Finding::Refused(why) = &found {
                    let (same, end) = &self.goes_on;
                    if *same == mutex && inner.range.start < *end {
                        found = Finding::Kept("goes on with a section that is refused");
                    } else if why == RELEASED {
                        self.goes_on = (mutex.clone(), block.range.end);
                    }
                }
                self.sites.push(LockSite { at: inner.range.start, mutex, found });
            }
            self.look(inner);
        }
    }

    /// A statement that locks, and does more.
    fn hidden(&self, statement: &Statement) -> Option<(String, Finding)> {
        let acts = self.flow.names.acts(self.flow.file, statement);
        let (what, mutex) = acts.iter().find(|(what, _)| *what != LockOp::Unlock)?;
        let mutex = mutex.clone().unwrap_or_default();
        Some(match what {
            LockOp::Try => (mutex, Finding::Kept("a trylock: its thread doesn't wait")),
            _ => (mutex, Finding::Refused("locked inside an expression or a macro".to_owned())),
        })
    }

    /// The section that begins with the block's statement `from`; or why there is none.
    fn section(&self, block: &Statement, from: usize, act: &Act) -> Result<Section, String> {
        let lock = unlabelled(&block.children[from]).range.clone();
        let mut exits = Vec::new();
        let (mut last, mut waits) = (None, None);
        for (number, statement) in block.children.iter().enumerate().skip(from + 1) {
            if self.flow.does(statement, LockOp::Unlock, &act.mutex) {
                let unlock = unlabelled(statement).range.clone();
                if statement.kind == StatementKind::Label(None) {
                    return Err("a case stands before the unlock".to_owned());
                }
                last = Some((unlock.start, unlock));
                break;
            }
            let before = &block.children[from + 1..number];
            if exits.is_empty() && waits.is_none() {
                waits = self.waiting(before, statement, act);
                if waits.is_some() {
                    continue;
                }
            }
            let ways = self.flow.ways(statement, &act.mutex, Around::default())?;
            exits.extend(ways.exits);
            if ways.locked && ways.unlocked {
                return Err("unlocked on some ways only".to_owned());
            }
            if let Some(exit) = exits.last().filter(|_| !ways.locked) {
                last = Some((statement.range.end, exit.unlock.start..statement.range.end));
                break;
            }
        }
        let Some((body_end, Range { start, end })) = last else {
            return Err("not unlocked in the same block".to_owned());
        };
        if block.is_hidden || body_end < lock.end {
            return Err("inside of a macro".to_owned());
        }
        let all = self.flow.function.body.all();
        let within = all.iter().filter(|it| (lock.start..end).contains(&it.range.start));
        let acts = within.filter_map(|it| self.flow.names.act(self.flow.file, it));
        let wrappers = acts.filter_map(|act| act.through.map(|(name, _)| name)).collect();
        // Nothing would be left to run elsewhere.
        let is_blank = |part: Range<usize>| tokens(&self.flow.file.text[part]).is_empty();
        let waits = waits.filter(|it| {
            let (before, behind) = (lock.end..it.whole.start, it.whole.end..body_end);
            !is_blank(before) || !is_blank(behind)
        });
        let section = Section {
            wrappers,
            unlock: start..end,
            body: lock.end..body_end,
            lock,
            act: act.clone(),
            end,
            exits,
            waits,
        };
        self.check(&section)?;
        Ok(section)
    }

    /// `statement`, if it waits for a condition variable, and may be left to the section's own thread:
    /// - a loop that only waits, behind what may be done once: the thread goes on as if the wait had ended without a signal;
    /// - a loop or a branch that the section begins with: nothing has been done yet.
    fn waiting(&self, before: &[Statement], statement: &Statement, act: &Act) -> Option<CondWait> {
        let Flow { file, names, .. } = self.flow;
        let [body] = statement.children.as_slice() else { return None };
        let text = &file.text[statement.range.start..body.range.start];
        let keyword = ["while", "if"].into_iter().find(|word| text.starts_with(word))?;
        let is_kind = matches!(statement.kind, StatementKind::Loop | StatementKind::If);
        if !is_kind || statement.is_hidden || !names.acts(file, statement).is_empty() {
            return None;
        }
        let mutex = bare(&act.mutex);
        let is_wait = |it: &Statement| {
            it.calls.iter().any(|call| {
                let mut given = call.arguments.iter().flatten();
                self.calls.only_waits(&call.name) && given.any(|it| bare(&normal(it)) == mutex)
            })
        };
        let only = match (&body.kind, body.children.as_slice()) {
            (StatementKind::Block, [only]) => only,
            _ => body,
        };
        let only_waits = keyword == "while"
            && only.kind == StatementKind::Other
            && only.children.is_empty()
            && !only.is_hidden
            && matches!(only.calls.as_slice(), [call] if call.is_whole)
            && is_wait(only);
        let is_done_once = |it: &Statement| {
            names.acts(file, it).is_empty()
                && !matches!(it.kind, StatementKind::Declaration(_) | StatementKind::Label(_))
        };
        let may_split =
            only_waits && before.iter().all(|it| it.all().into_iter().all(is_done_once));
        let is_first = before.is_empty()
            && statement.calls.is_empty()
            && !writes::may_assign(file, &text[keyword.len()..])
            && body.all().into_iter().any(is_wait);
        let found = CondWait {
            whole: statement.range.clone(),
            keyword: statement.range.start..statement.range.start + keyword.len(),
            body: body.range.clone(),
        };
        (may_split || is_first).then_some(found)
    }

    /// Another mutex that is locked inside is unlocked inside, and the other way round: by the same thread.
    fn leaves_others(&self, section: &Section, runs: impl Fn(usize) -> bool) -> Result<(), String> {
        // Where it is first locked, and where it is first unlocked.
        let mut others: BTreeMap<String, [Option<usize>; 2]> = BTreeMap::new();
        for it in self.flow.function.body.all().into_iter().filter(|it| runs(it.range.start)) {
            for (what, mutex) in self.flow.names.acts(self.flow.file, it) {
                let Some(mutex) = mutex else {
                    return Err("locks or unlocks a mutex that isn't known".to_owned());
                };
                if mutex != section.act.mutex {
                    let first =
                        &mut others.entry(mutex).or_default()[usize::from(what == LockOp::Unlock)];
                    *first = Some(first.unwrap_or(usize::MAX).min(it.range.start));
                }
            }
        }
        for (mutex, firsts) in others {
            if !matches!(firsts, [Some(locked), Some(unlocked)] if locked <= unlocked) {
                return Err(format!("holds '{mutex}' beyond its end, or lets go of it"));
            }
        }
        Ok(())
    }

    /// Labels, cases and calls.
    fn check(&self, section: &Section) -> Result<(), String> {
        if section.exits.is_empty() && self.flow.file.text[section.body.clone()].trim().is_empty() {
            return Err("empty: it waits for others, and does nothing".to_owned());
        }
        let runs = |at: usize| section.runs(at);
        let all = self.flow.function.body.all();
        let mut labels = Vec::new();
        for it in &all {
            if let StatementKind::Label(Some(name)) = &it.kind {
                labels.push((name.as_str(), runs(it.range.start)));
            }
        }
        for it in &all {
            if let StatementKind::Goto(Some(to)) = &it.kind {
                let target = labels.iter().find(|(name, _)| name == to);
                let (from, to) = (runs(it.range.start), target.is_some_and(|(_, runs)| *runs));
                if from && !to {
                    return Err("leaves by goto with the mutex locked".to_owned());
                }
                if to && !from {
                    return Err("is entered by goto".to_owned());
                }
            }
        }
        self.leaves_others(section, runs)?;
        self.check_left_out(runs)?;
        if self.has_case_of_outer_switch(&self.flow.function.body, section, false) {
            return Err("has a case of a switch around it".to_owned());
        }
        let called: Vec<&str> = all
            .iter()
            .filter(|it| runs(it.range.start))
            .flat_map(|it| it.calls.iter())
            .filter(|call| runs(call.at))
            .map(|call| call.name.as_str())
            .collect();
        let text = &self.flow.file.text[section.body.clone()];
        let words = tokens(text);
        if words.iter().any(|(_, word)| ["__func__", "__FUNCTION__"].contains(word)) {
            return Err("names its function (__func__)".to_owned());
        }
        if called.contains(&"__builtin_va_start") {
            return Err("reads its function's own arguments (va_start)".to_owned());
        }
        self.calls.objection(&called).map_or(Ok(()), |it| Err(facts::told(it)))
    }

    /// What this build leaves out of the section, and another one has.
    fn check_left_out(&self, runs: impl Fn(usize) -> bool) -> Result<(), String> {
        let file = self.flow.file;
        for part in file.skipped.iter().filter(|part| runs(part.start)) {
            let all = tokens(&file.text[part.clone()]);
            let has = |words: &[&str]| all.iter().any(|(_, token)| words.contains(token));
            let is_around = has(&["for", "while", "do", "switch"]);
            if has(&["return", "goto"]) || !is_around && has(&["break", "continue"]) {
                return Err("leaves in a part that #if leaves out here".to_owned());
            }
            let words: Vec<&str> = all.iter().map(|(_, token)| *token).collect();
            if let Some(it) = self.calls.objection(&words) {
                return Err(format!("{}, in a part that #if leaves out here", facts::told(it)));
            }
            if all.iter().any(|(_, token)| self.flow.names.0.contains_key(*token)) {
                return Err("locks or unlocks in a part that #if leaves out here".to_owned());
            }
        }
        Ok(())
    }

    fn has_case_of_outer_switch(&self, it: &Statement, section: &Section, inner: bool) -> bool {
        let is_inside = section.body.contains(&it.range.start);
        let inner = inner || is_inside && it.kind == StatementKind::Switch;
        if is_inside && it.kind == StatementKind::Label(None) && !inner {
            return true;
        }
        it.children.iter().any(|child| self.has_case_of_outer_switch(child, section, inner))
    }
}
