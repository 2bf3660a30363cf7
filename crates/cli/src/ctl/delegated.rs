//! A running process's delegated data (`Delegated`, `lw_execute`): who runs their sections, and why; sets that by hand.

use crate::hints::{Failure, nearest};
use crate::output::{plain, shown, table};
use lockwright_contract::delegated::{DelegatedState, List, MAGIC, PLACES, SYMBOL};
use lockwright_locks::delegation::dynamic::{ANY, BY_HAND, COMBINE, HOME, MODE, SERVE};
use lockwright_numbers::format::si;
use lockwright_observer::mailbox;
use lockwright_observer::process::Process;
use lockwright_symbols::Symboliser;
use serde::Serialize;
use std::mem::offset_of;

/// Delegated data for which a thread had to wait.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Data {
    /// The variable, or the place.
    pub(crate) name: String,
    /// Of the data's lock.
    pub(crate) address: u64,
    /// Who runs the sections of threads that have to wait, in words.
    pub(crate) run_by: &'static str,
    pub(crate) is_by_hand: bool,
    /// Sections a second in the last trial: each thread its own, and all by a combiner; 0: there was none.
    pub(crate) own_per_s: u32,
    pub(crate) combined_per_s: u32,
    /// How many times it has changed by itself.
    pub(crate) changes: u16,
}

/// Who runs the sections of threads that have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum How {
    /// The lock finds out which is faster (the default)
    IfFaster,
    /// Each thread its own
    Never,
    /// The thread that runs a section goes on with those of the others
    Always,
}

/// Those of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delegated {
    pub(crate) data: Vec<Data>,
    /// How many more there are, which a process doesn't list.
    missed: u32,
}

fn run_by(mode: u32) -> &'static str {
    match mode & MODE {
        HOME => "each thread",
        COMBINE => "a combiner",
        SERVE if mode & ANY != 0 => "any server",
        SERVE => "a server",
        _ => "not known",
    }
}

impl Delegated {
    /// Reads them. A process without our locks has none.
    pub(crate) fn read(process: &Process) -> Result<Self, Failure> {
        let at = mailbox::symbol_in(process, SYMBOL)?;
        let mut list = [0; size_of::<List>()];
        process.read(at, &mut list)?;
        let word = |at: usize| u64::from_ne_bytes(list[at..at + 8].try_into().expect("8 bytes"));
        if word(0) != MAGIC {
            return Err(mailbox::other_version(process));
        }
        let missed = offset_of!(List, missed);
        let missed = u32::from_ne_bytes(list[missed..missed + 4].try_into().expect("4 bytes"));
        let places = (0..PLACES).map(|place| word(offset_of!(List, places) + 8 * place));
        let mut symbols = None;
        let mut data = Vec::new();
        for address in places.filter(|&address| address != 0) {
            let mut state = [0; DelegatedState::SIZE];
            if process.read(address + DelegatedState::AT as u64, &mut state).is_err() {
                continue; // it has ended meanwhile
            }
            let state = DelegatedState::of(&state);
            if symbols.is_none() {
                let found = Symboliser::of_process(process.pid);
                symbols = Some(found.map_err(|error| process.gone(&error))?);
            }
            let name = symbols.as_mut().map(|symbols| symbols.data(address).to_string());
            data.push(Data {
                name: name.unwrap_or_default(),
                address,
                run_by: run_by(state.mode),
                is_by_hand: state.mode & BY_HAND != 0,
                own_per_s: state.rates[0],
                combined_per_s: state.rates[1],
                changes: state.changes,
            });
        }
        Ok(Self { data, missed })
    }

    /// What a line about a lock says of its sections; `None`: it is no delegated data, as far as the process says.
    pub(crate) fn of(&self, address: u64) -> Option<String> {
        let data = self.data.iter().find(|data| data.address == address)?;
        let by_hand = if data.is_by_hand { ", by hand" } else { "" };
        Some(format!("sections run by {}{by_hand}", data.run_by))
    }

    /// A table.
    pub(crate) fn text(&self) -> String {
        let head = ["delegated data", "sections run by", "why", "own/s", "combined/s", "changes"];
        let mut drawn = table(&head).all_by("--format json");
        let rate = |rate: u32| if rate == 0 { "-".to_owned() } else { si(rate.into()) };
        for data in &self.data {
            drawn.add_row([
                shown(&data.name).into_owned(),
                data.run_by.to_owned(),
                match (data.is_by_hand, data.own_per_s > 0) {
                    (true, _) => "by hand",
                    (false, true) => "measured",
                    (false, false) => "not tried",
                }
                .to_owned(),
                rate(data.own_per_s),
                rate(data.combined_per_s),
                data.changes.to_string(),
            ]);
        }
        let mut text = plain(&drawn);
        if self.missed > 0 {
            text += &format!("and {} more, which are not listed\n", self.missed);
        }
        text
    }

    /// Changes who runs the sections of the data with this name or address, or of `all`. Returns their names.
    pub(crate) fn set(
        &self,
        process: &Process,
        wanted: &str,
        how: How,
    ) -> Result<Vec<String>, Failure> {
        let is_it = |data: &&Data| {
            wanted == "all" || data.name == wanted || format!("{:#x}", data.address) == wanted
        };
        let found: Vec<&Data> = self.data.iter().filter(is_it).collect();
        let pid = process.pid;
        if found.is_empty() {
            let what =
                format!("process {pid} ({}) has no delegated data '{wanted}'", process.name());
            let failure = Failure::new(format!("{what} for which a thread had to wait"));
            let names = self.data.iter().map(|data| data.name.as_str());
            return Err(failure.hint(match nearest(wanted, names) {
                Some(near) => format!("lockwright switch {pid} delegate '{near}' ..."),
                None => format!("to see them: lockwright switch {pid}"),
            }));
        }
        let mode = match how {
            How::IfFaster => HOME,
            How::Never => BY_HAND | HOME,
            How::Always => BY_HAND | COMBINE,
        };
        for data in &found {
            process.write(data.address + DelegatedState::AT as u64, &mode.to_ne_bytes())?;
        }
        Ok(found.iter().map(|data| data.name.clone()).collect())
    }
}
