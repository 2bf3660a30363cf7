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

use crate::facts::Calls;
use crate::names::{Act, LockNames, LockOp};
use crate::tree::{Function, SourceFile, Statement, StatementKind};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A way out of a section, other than its end.
#[derive(Clone, Debug)]
pub struct Exit {
    /// The statement that unlocks.
    pub unlock: Range<usize>,
    /// What runs after it, until the section's last statement is over; maybe empty.
    pub tail: Vec<Range<usize>>,
    /// What the section's function drops: the unlock, and all of the first block's tail.
    pub dropped: Range<usize>,
}

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
}

/// What became of a place that locks a mutex.
#[derive(Clone, Debug)]
pub enum Finding {
    /// A section.
    Section(Section),
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

/// How a statement may end.
#[derive(Clone, Debug, Default)]
struct Ways {
    /// It may end with the mutex locked.
    locked: bool,
    /// It may end with the mutex unlocked.
    unlocked: bool,
    exits: Vec<Exit>,
}

/// What of a section is around a statement: where do `break` and `continue` lead?
#[derive(Clone, Copy, Default)]
struct Around {
    /// A loop or a switch: `break` stays in the section.
    breaks: bool,
    /// A loop: `continue` does.
    continues: bool,
}

impl Around {
    /// In this statement's body.
    fn within(self, statement: &Statement) -> Self {
        let is_loop = statement.kind == StatementKind::Loop;
        let is_switch = statement.kind == StatementKind::Switch;
        Self { breaks: self.breaks || is_loop || is_switch, continues: self.continues || is_loop }
    }

    /// Does this jump stay in the section?
    fn keeps(self, jump: &StatementKind) -> bool {
        match jump {
            StatementKind::Break => self.breaks,
            StatementKind::Continue => self.continues,
            _ => false,
        }
    }
}

/// Looks for the sections of one function.
struct Search<'a> {
    file: &'a SourceFile,
    function: &'a Function,
    names: &'a LockNames,
    calls: &'a Calls,
    sites: Vec<LockSite>,
    /// Sites up to here are inside of a section that was found.
    inside: usize,
    /// The mutex of a section that lets go of it in between, and where its block ends: what locks it again is the same section.
    goes_on: (String, usize),
}

/// Why a section is refused that lets go of its mutex in between.
const RELEASED: &str = "locked again, or released in between";

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
        file,
        function,
        names,
        calls,
        sites: Vec::new(),
        inside: 0,
        goes_on: Default::default(),
    };
    search.look(&function.body);
    search.sites
}

/// A statement, and where it stands: a label is part of the statement behind it.
fn unlabelled(statement: &Statement) -> &Statement {
    match (&statement.kind, statement.children.last()) {
        (StatementKind::Label(_), Some(inner)) => unlabelled(inner),
        _ => statement,
    }
}

impl Search<'_> {
    fn act(&self, statement: &Statement) -> Option<Act> {
        self.names.act(self.file, unlabelled(statement))
    }

    /// Looks at each statement of a block, and into it.
    fn look(&mut self, block: &Statement) {
        for (number, child) in block.children.iter().enumerate() {
            let inner = unlabelled(child);
            let found = match (self.act(child), &block.kind) {
                (Some(act), StatementKind::Block) if act.what == LockOp::Lock => {
                    let found = self.section(block, number, &act);
                    let found = found.map_or_else(Finding::Refused, Finding::Section);
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
        let acts = self.names.acts(self.file, statement);
        let (what, mutex) = acts.iter().find(|(what, _)| *what != LockOp::Unlock)?;
        let mutex = mutex.clone().unwrap_or_default();
        Some(match what {
            LockOp::Try => (mutex, Finding::Kept("a trylock: its thread doesn't wait")),
            _ => (mutex, Finding::Refused("locked inside an expression or a macro".to_owned())),
        })
    }

    fn does(&self, statement: &Statement, what: LockOp, mutex: &str) -> bool {
        self.act(statement).is_some_and(|act| act.what == what && act.mutex == mutex)
    }

    /// Does anything in the statement unlock the mutex, or one that isn't known?
    fn unlocks(&self, statement: &Statement, mutex: &str) -> bool {
        statement.all().into_iter().any(|inner| {
            let acts = self.names.acts(self.file, inner);
            acts.iter().any(|(what, which)| {
                *what == LockOp::Unlock && which.as_deref().is_none_or(|which| which == mutex)
            })
        })
    }

    /// The section that begins with the block's statement `from`; or why there is none.
    fn section(&self, block: &Statement, from: usize, act: &Act) -> Result<Section, String> {
        let lock = unlabelled(&block.children[from]).range.clone();
        let mut exits = Vec::new();
        let mut last = None;
        for statement in &block.children[from + 1..] {
            if self.does(statement, LockOp::Unlock, &act.mutex) {
                if matches!(statement.kind, StatementKind::Label(_)) {
                    return Err("a label stands before the unlock".to_owned());
                }
                last = Some((statement.range.start, statement.range.clone()));
                break;
            }
            let ways = self.ways(statement, &act.mutex, Around::default())?;
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
        let all = self.function.body.all();
        let within = all.iter().filter(|it| (lock.start..end).contains(&it.range.start));
        let acts = within.filter_map(|it| self.names.act(self.file, it));
        let wrappers = acts.filter_map(|act| act.through.map(|(name, _)| name)).collect();
        let section = Section {
            wrappers,
            unlock: start..end,
            body: lock.end..body_end,
            lock,
            act: act.clone(),
            end,
            exits,
        };
        self.check(&section)?;
        Ok(section)
    }

    /// How a statement within a section may end.
    fn ways(&self, statement: &Statement, mutex: &str, around: Around) -> Result<Ways, String> {
        let still = Ways { locked: true, ..Ways::default() };
        if self.does(statement, LockOp::Lock, mutex) {
            return Err(RELEASED.to_owned());
        }
        if !self.unlocks(statement, mutex) {
            self.leaves_locked(statement, around)?;
            return Ok(still);
        }
        if statement.is_hidden {
            return Err("the unlock is hidden in a macro".to_owned());
        }
        match &statement.kind {
            StatementKind::Block => self.ways_of_block(statement, mutex, around),
            StatementKind::Label(_) => self.ways(&statement.children[0], mutex, around),
            StatementKind::If => {
                let mut all = Ways { locked: statement.children.len() < 2, ..Ways::default() };
                for branch in &statement.children {
                    // A branch that is one statement.
                    let ways = if self.does(branch, LockOp::Unlock, mutex) {
                        let exit = Exit {
                            unlock: branch.range.clone(),
                            tail: Vec::new(),
                            dropped: branch.range.clone(),
                        };
                        Ways { unlocked: true, exits: vec![exit], ..Ways::default() }
                    } else {
                        self.ways(branch, mutex, around)?
                    };
                    all.locked |= ways.locked;
                    all.unlocked |= ways.unlocked;
                    all.exits.extend(ways.exits);
                }
                Ok(all)
            }
            StatementKind::Loop | StatementKind::Switch => {
                let mut all = still;
                for child in &statement.children {
                    let ways = self.ways(child, mutex, around.within(statement))?;
                    if ways.unlocked {
                        return Err("unlocked in a loop or a switch that goes on".to_owned());
                    }
                    all.exits.extend(ways.exits);
                }
                Ok(all)
            }
            _ => Err("unlocked inside an expression or a macro".to_owned()),
        }
    }

    fn ways_of_block(
        &self,
        block: &Statement,
        mutex: &str,
        around: Around,
    ) -> Result<Ways, String> {
        let mut all = Ways { locked: true, ..Ways::default() };
        for (number, statement) in block.children.iter().enumerate() {
            let rest = &block.children[number + 1..];
            let is_last = self.does(statement, LockOp::Unlock, mutex);
            let ways = if is_last {
                let dropped = statement.range.start
                    ..rest.last().map_or(statement.range.end, |last| last.range.end);
                let exit = Exit { unlock: statement.range.clone(), tail: Vec::new(), dropped };
                Ways { unlocked: true, exits: vec![exit], ..Ways::default() }
            } else {
                self.ways(statement, mutex, around)?
            };
            if ways.locked && ways.unlocked {
                return Err("unlocked on some ways only".to_owned());
            }
            let unlocked = ways.unlocked;
            let before = all.exits.len();
            all.exits.extend(ways.exits);
            if ways.locked {
                continue;
            }
            all.locked = false;
            if unlocked {
                let leaves = self.tail(rest, mutex, around)?;
                all.unlocked = !leaves;
                if let (Some(first), Some(last)) = (rest.first(), rest.last()) {
                    let range = first.range.start..last.range.end;
                    for exit in &mut all.exits[before..] {
                        // Only those that go on here.
                        if !exit.tail.last().is_some_and(|tail| self.jumps(tail)) {
                            exit.tail.push(range.clone());
                        }
                    }
                    if !is_last {
                        return Err("more follows after branches that unlock".to_owned());
                    }
                }
            }
            return Ok(all);
        }
        Ok(all)
    }

    /// Does this part of the file end in a statement that jumps?
    fn jumps(&self, range: &Range<usize>) -> bool {
        let all = self.function.body.all();
        let is_jump = |it: &&Statement| {
            matches!(
                it.kind,
                StatementKind::Return
                    | StatementKind::Goto(_)
                    | StatementKind::Break
                    | StatementKind::Continue
            )
        };
        all.into_iter().filter(is_jump).any(|it| it.range.end == range.end)
    }

    /// What follows an unlock in its block. `true`: it doesn't go on behind the block.
    fn tail(&self, rest: &[Statement], mutex: &str, around: Around) -> Result<bool, String> {
        for statement in rest {
            let relocks = statement.all().into_iter().any(|it| {
                let acts = self.names.acts(self.file, it);
                acts.iter().any(|(what, which)| {
                    *what != LockOp::Unlock && which.as_deref().is_none_or(|which| which == mutex)
                })
            });
            if relocks {
                return Err(RELEASED.to_owned());
            }
            if matches!(statement.kind, StatementKind::Label(_)) {
                return Err("a label stands behind an unlock".to_owned());
            }
        }
        // A jump within the tail that stays in the section would lead elsewhere outside of it.
        for statement in rest {
            if self.jumps_back(statement, Around::default(), around) {
                return Err("unlocked in a loop or a switch that goes on".to_owned());
            }
        }
        let last = rest.last().map(|last| &last.kind);
        Ok(matches!(
            last,
            Some(
                StatementKind::Return
                    | StatementKind::Goto(_)
                    | StatementKind::Break
                    | StatementKind::Continue
            )
        ))
    }

    /// Does a `break` or `continue` of this part of a tail, outside of the tail's own loops, lead to a loop or switch of the section?
    fn jumps_back(&self, statement: &Statement, own: Around, around: Around) -> bool {
        if !own.keeps(&statement.kind) && around.keeps(&statement.kind) {
            return true;
        }
        let own = own.within(statement);
        statement.children.iter().any(|child| self.jumps_back(child, own, around))
    }

    /// Nothing in the statement unlocks. Does anything leave the section?
    fn leaves_locked(&self, statement: &Statement, around: Around) -> Result<(), String> {
        match statement.kind {
            StatementKind::Return => return Err("returns with the mutex locked".to_owned()),
            StatementKind::Break | StatementKind::Continue if !around.keeps(&statement.kind) => {
                return Err("leaves a loop or a switch with the mutex locked".to_owned());
            }
            StatementKind::Goto(None) => return Err("has a computed goto".to_owned()),
            _ => {}
        }
        let around = around.within(statement);
        statement.children.iter().try_for_each(|child| self.leaves_locked(child, around))
    }

    /// Another mutex that is locked inside is unlocked inside, and the other way round: by the same thread.
    fn leaves_others(&self, section: &Section, runs: impl Fn(usize) -> bool) -> Result<(), String> {
        // Where it is first locked, and where it is first unlocked.
        let mut others: BTreeMap<String, [Option<usize>; 2]> = BTreeMap::new();
        for it in self.function.body.all().into_iter().filter(|it| runs(it.range.start)) {
            for (what, mutex) in self.names.acts(self.file, it) {
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
        if section.exits.is_empty() && self.file.text[section.body.clone()].trim().is_empty() {
            return Err("empty: it waits for others, and does nothing".to_owned());
        }
        let runs = |at: usize| {
            section.body.contains(&at)
                && !section.exits.iter().any(|exit| exit.dropped.contains(&at))
        };
        let all = self.function.body.all();
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
        if self.has_case_of_outer_switch(&self.function.body, section, false) {
            return Err("has a case of a switch around it".to_owned());
        }
        let called: Vec<&str> = all
            .iter()
            .filter(|it| runs(it.range.start))
            .flat_map(|it| it.calls.iter())
            .filter(|call| runs(call.at))
            .map(|call| call.name.as_str())
            .collect();
        if called.contains(&"__builtin_va_start") {
            return Err("reads its function's own arguments (va_start)".to_owned());
        }
        if let Some((way, what)) = self.calls.objection(&called) {
            return Err(match way.as_slice() {
                [only] => format!("{what} ({only})"),
                _ => format!("a callee {what}: {}", way.join(" > ")),
            });
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
