//! Names of the locks in a trace.

use crate::elf::ObjectFile;
use lockwright_stats::trace::{LockInfo, Trace};
use lockwright_text::shown;
use std::collections::HashMap;

/// Maximum length of a lock's name in a table.
pub const NAME: usize = 32;

/// Names the locks that are variables, if the symbols of programs and libraries show them.
pub fn name(trace: &mut Trace) {
    let mut objects = HashMap::new();
    for place in trace.locks.iter_mut().filter_map(|lock| lock.place.as_mut()) {
        let object = objects
            .entry(place.object.clone())
            .or_insert_with(|| ObjectFile::read(place.object.as_ref(), String::new()).ok());
        place.symbol = object.as_ref().and_then(|object| object.variable(place.offset));
    }
}

/// The variable, or else the offset in its object, or else the address.
pub fn place(info: &LockInfo) -> String {
    let Some(place) = &info.place else { return address(info) };
    let mut name = place.symbol.clone().unwrap_or_else(|| {
        let file = place.object.rsplit('/').next().unwrap_or_default();
        format!("{file}+{:#x}", place.offset)
    });
    if let Some((end, _)) = name.char_indices().nth(NAME) {
        name.replace_range(end.., "...");
    }
    shown(&name).into_owned()
}

/// The address.
pub fn address(info: &LockInfo) -> String {
    format!("{:#x}", info.address)
}
