//! The targets of rules, as they are written in a table: which mutexes a rule selects.

use crate::elf::{ObjectFile, Symbol};
use crate::written::is_called;
use lockwright_contract::mailbox::KINDS;
use lockwright_text::Failure;

/// Assumed size of a mutex whose symbol has no size.
pub const MUTEX_SIZE: u64 = 40;

/// The target of every mutex.
pub const ALL: &str = "mutex:+0x0-0xffffffffffffffff";

/// The end of the target of all calls of a library.
const LIBRARY: &str = "+0x0-0xffffffff";

/// Rule targets for the mutexes in variables with this name, or for mutexes that functions with this name contend for.
pub fn named(objects: &[ObjectFile], name: &str, is_function: bool) -> Vec<String> {
    // Rules can't contain these characters.
    let objects = objects.iter().filter(|object| !object.name.contains([';', '=', '+']));
    let of_object = |object: &ObjectFile| -> Vec<String> {
        let wanted = object.symbols.iter().filter(|symbol| {
            symbol.is_function == is_function
                && is_called(&symbol.name, name)
                && !(is_function && symbol.size == 0)
        });
        let key = if is_function { "call" } else { "mutex" };
        let target = |symbol: &Symbol| {
            let size = if symbol.size == 0 { MUTEX_SIZE } else { symbol.size };
            let (low, high) = (symbol.offset, symbol.offset + size);
            format!("{key}:{}+{low:#x}-{high:#x}", object.name)
        };
        wanted.map(target).collect()
    };
    objects.flat_map(of_object).collect()
}

/// The rule target for all mutexes of this kind.
pub fn of_kind(kind: &str) -> Result<String, Failure> {
    match KINDS.contains(&kind) {
        true => Ok(format!("kind:{kind}+0x0-{:#x}", u64::MAX)),
        false => Err(Failure::new(format!("unknown kind of mutex '{kind}'"))
            .hint(format!("the kinds are {}", KINDS.join(", ")))),
    }
}

/// Another target for the same mutexes: a range that ends a byte earlier, or all calls of a library.
pub fn beside(target: &str) -> String {
    if let Some(library) = target.strip_prefix("lib:") {
        return format!("call:{library}{LIBRARY}");
    }
    let shorter = || {
        let (start, high) = target.rsplit_once("-0x")?;
        Some(format!("{start}-{:#x}", u64::from_str_radix(high, 16).ok()?.checked_sub(1)?))
    };
    shorter().unwrap_or_else(|| target.to_owned())
}

/// A description of a target that only policies have.
pub fn whose(target: &str) -> Option<String> {
    if target == ALL {
        return Some("all mutexes".to_owned());
    }
    let library = target.strip_prefix("call:")?.strip_suffix(LIBRARY)?;
    Some(format!("library {library}"))
}
