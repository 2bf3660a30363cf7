//! The ways through a section: where each statement leads, with the mutex locked or unlocked.

use crate::names::{Act, LockNames, LockOp};
use crate::tree::{Function, SourceFile, Statement, StatementKind};
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

/// How a statement may end.
#[derive(Clone, Debug, Default)]
pub struct Ways {
    /// It may end with the mutex locked.
    pub locked: bool,
    /// It may end with the mutex unlocked.
    pub unlocked: bool,
    /// Where it unlocks.
    pub exits: Vec<Exit>,
}

/// What of a section is around a statement: where do `break` and `continue` lead?
#[derive(Clone, Copy, Default)]
pub struct Around {
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

/// Why a section is refused that lets go of its mutex in between.
pub const RELEASED: &str = "locked again, or released in between";

/// A statement, and where it stands: a label is part of the statement behind it.
pub fn unlabelled(statement: &Statement) -> &Statement {
    match (&statement.kind, statement.children.last()) {
        (StatementKind::Label(_), Some(inner)) => unlabelled(inner),
        _ => statement,
    }
}

/// A function's statements, and what they do to mutexes.
pub struct Flow<'a> {
    /// Its file.
    pub file: &'a SourceFile,
    /// The function.
    pub function: &'a Function,
    /// What locks and unlocks.
    pub names: &'a LockNames,
}

impl Flow<'_> {
    /// What the statement does to a mutex, behind its labels.
    pub fn act(&self, statement: &Statement) -> Option<Act> {
        self.names.act(self.file, unlabelled(statement))
    }

    /// Does the statement do this to the mutex?
    pub fn does(&self, statement: &Statement, what: LockOp, mutex: &str) -> bool {
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

    /// How a statement within a section may end.
    ///
    /// # Errors
    /// It makes the section one that can't be a function.
    pub fn ways(&self, statement: &Statement, mutex: &str, around: Around) -> Result<Ways, String> {
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
                let dropped = unlabelled(statement).range.start
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
                    let between = statement.range.end..first.range.start;
                    let is_directive = |line: &str| line.trim_start().starts_with('#');
                    let start = match self.file.text[between.clone()].lines().any(is_directive) {
                        true => between.start, // an #if that ends in the tail begins there
                        false => between.end,
                    };
                    let range = start..last.range.end;
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
}
