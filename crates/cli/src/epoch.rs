//! `--epoch NAME=FUNCTION:SLO[@pP]`: makes each call of a function an epoch. The flags are checked before the program
//! starts, and converted to the variable that the library reads: `LOCKWRIGHT_EPOCHS`.
//!
//! The library sees only calls through the dynamic linker's slots, so some object must have such a slot. A program may
//! load more libraries later, or start other programs, which inherit the variable. So an unknown name only causes a
//! warning, unless it looks misspelt. A function that is certainly out of reach is refused.

use crate::hints::{Failure, nearest, warn};
use lockwright_locks::amp::feedback::Percentile;
use lockwright_numbers::units;
use lockwright_observer::elf::{ObjectFile, Program};
use lockwright_observer::written;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The variable that the library reads.
pub(crate) const VARIABLE: &str = "LOCKWRIGHT_EPOCHS";

/// The library's limits: functions, their bytes, and the bytes of a name. See `crates/runtime/src/got.rs` and
/// `epoch.rs`.
const FUNCTIONS_MAX: usize = 32;
const BYTES_MAX: usize = 16 * 1024 - 1;
const NAME_MAX: usize = 63;

/// Functions that a trampoline would break, or whose epoch would never end.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "it returns twice",
        &[
            "setjmp",
            "_setjmp",
            "__sigsetjmp",
            "sigsetjmp",
            "savectx",
            "vfork",
            "getcontext",
            "setcontext",
            "swapcontext",
        ],
    ),
    (
        "it inspects its caller",
        &["dlopen", "dlmopen", "dlsym", "dlvsym", "mcount", "_mcount", "__fentry__"],
    ),
    ("the compiler calls it in its own way", &["__tls_get_addr"]),
    (
        "it does not return",
        &[
            "exit",
            "_exit",
            "_Exit",
            "quick_exit",
            "abort",
            "pthread_exit",
            "thrd_exit",
            "longjmp",
            "_longjmp",
            "siglongjmp",
            "__longjmp_chk",
            "__cxa_throw",
            "__cxa_rethrow",
            "_Unwind_Resume",
            "__libc_start_main",
        ],
    ),
];

/// One parsed flag.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spec {
    pub(crate) name: String,
    /// The function's name, mangled or demangled, as the user wrote it.
    pub(crate) function: String,
    /// `None`: LOCKWRIGHT_SLO sets it for the run.
    pub(crate) slo_ns: Option<u64>,
    /// In the library's notation: `99.9`; `None`: the default, 99.
    pub(crate) percentile: Option<String>,
}

/// The lock for a run with epochs if the user names none: the one that uses epochs, if there is one.
pub(crate) fn lock() -> Option<String> {
    lockwright_locks::catalog::find("asl").map(|entry| entry.id.to_owned())
}

/// Parses the flags. `needs_slo`: each flag must state its SLO.
pub(crate) fn read(flags: &[String], needs_slo: bool) -> Result<Vec<Spec>, Failure> {
    if !cfg!(target_arch = "x86_64") && !flags.is_empty() {
        return Err(Failure::new(format!(
            "epoch '{}': calls can be caught on x86-64 only",
            flags[0]
        ))
        .hint("lw_epoch_start and lw_epoch_end of lockwright.h work everywhere"));
    }
    let mut specs: Vec<Spec> = Vec::new();
    for flag in flags {
        let fail = |cause: String| {
            Failure::new(format!("epoch '{flag}': {cause}"))
                .hint("for example --epoch 'get=leveldb_get:50us' or 'get=leveldb_get:50us@p99.9'")
        };
        let spec = parse(flag).map_err(fail)?;
        if needs_slo && spec.slo_ns.is_none() {
            return Err(fail("no SLO after the function".to_owned()));
        }
        for other in &specs {
            if other.name == spec.name {
                return Err(fail(format!("two epochs are called '{}'", spec.name)));
            }
            if other.function == spec.function {
                return Err(fail(format!("'{}' is epoch '{}' already", spec.function, other.name)));
            }
        }
        specs.push(spec);
    }
    if specs.len() > FUNCTIONS_MAX {
        return Err(Failure::new(format!(
            "{} epochs: the library holds {FUNCTIONS_MAX} functions",
            specs.len()
        ))
        .hint("leave out --epoch flags"));
    }
    Ok(specs)
}

fn parse(flag: &str) -> Result<Spec, String> {
    let (name, rest) = flag.split_once('=').ok_or("no '=' between its name and the function")?;
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(format!("a name has 1 to {NAME_MAX} bytes"));
    }
    if name.contains([';', '@', ':']) || name.contains(char::is_control) {
        return Err("a name has no ';', '@', ':' or control character".to_owned());
    }
    let (function, slo) = match last_colon(rest) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    if function.is_empty() {
        return Err("no function after the '='".to_owned());
    }
    if function.contains([';', '\0']) {
        return Err("a function's name has no ';'".to_owned());
    }
    let (slo, percentile) = match slo.map(|slo| slo.split_once('@').unwrap_or((slo, ""))) {
        None => (None, None),
        Some((slo, percentile)) => {
            let ns = units::nanoseconds(slo).map_err(|why| format!("SLO '{slo}': {why}"))?;
            (Some(ns), Some(percentile).filter(|text| !text.is_empty() || rest.ends_with('@')))
        }
    };
    let percentile = percentile
        .map(|text| {
            let digits = text.strip_prefix(['p', 'P']).unwrap_or(text);
            match Percentile::parse(digits.as_bytes()) {
                Some(_) => Ok(digits.to_owned()),
                None => Err(format!("percentile '{text}': not within p90 to p99.9")),
            }
        })
        .transpose()?;
    Ok(Spec { name: name.to_owned(), function: function.to_owned(), slo_ns: slo, percentile })
}

/// The last colon that isn't half of a C++ `::`.
fn last_colon(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let single = |&at: &usize| {
        bytes[at] == b':' && bytes.get(at + 1) != Some(&b':') && (at == 0 || bytes[at - 1] != b':')
    };
    (0..bytes.len()).rev().find(single)
}

/// The variable's value for this program, or the reason why a function is out of reach.
pub(crate) fn resolve(specs: &[Spec], program: &Program) -> Result<String, Failure> {
    if let (Some(spec), true) = (specs.first(), program.is_static()) {
        return Err(Failure::new(format!(
            "epoch '{}': '{}' is static, its calls don't go through the dynamic linker",
            spec.name,
            program.path.display()
        ))
        .hint(ANNOTATE));
    }
    let objects = if specs.is_empty() { Vec::new() } else { program.objects()? };
    let mut value = String::new();
    for spec in specs {
        let function = reach(&spec.function, &objects)
            .map_err(|failure| failure.within(&format!("epoch '{}': ", spec.name)))?;
        if !value.is_empty() {
            value.push(';');
        }
        // Without an SLO, use one that can't be missed.
        let slo = spec.slo_ns.unwrap_or(u64::MAX);
        let _ = write!(value, "{}={function}:{slo}", spec.name);
        if let Some(percentile) = &spec.percentile {
            let _ = write!(value, "@{percentile}");
        }
    }
    if value.len() > BYTES_MAX {
        return Err(Failure::new(format!(
            "the epochs take {} bytes: the library holds {BYTES_MAX}",
            value.len()
        ))
        .hint("leave out --epoch flags"));
    }
    Ok(value)
}

/// The symbol of the function that the user calls `wanted`.
fn reach(wanted: &str, objects: &[ObjectFile]) -> Result<String, Failure> {
    for (why, names) in REFUSED {
        if names.contains(&wanted) {
            return Err(Failure::new(format!("'{wanted}' can't be an epoch: {why}"))
                .hint("name the function that does the work, or the one that calls this"));
        }
    }
    let called = |names: &BTreeSet<String>| -> Vec<String> {
        names.iter().filter(|name| written::is_called(name, wanted)).cloned().collect()
    };
    let found: BTreeSet<String> = objects.iter().flat_map(|object| called(&object.slots)).collect();
    let found: Vec<&String> = found.iter().collect();
    match found[..] {
        [one] => return callable(wanted, one, objects),
        [] => {}
        [first, second, ..] => {
            return Err(Failure::new(format!(
                "'{wanted}' is {} functions: '{first}', '{second}'{}",
                found.len(),
                if found.len() > 2 { ", ..." } else { "" }
            ))
            .hint("give one of these names, or the parameters too"));
        }
    }
    let exported = objects
        .iter()
        .find_map(|object| Some((object, called(&object.exports).into_iter().next()?)));
    let opener = objects.iter().find(|object| opens(object));
    let program = objects.first().map_or("", |object| object.name.as_str());
    let own = || {
        Failure::new(format!(
            "'{wanted}' is a function of '{program}' itself: its calls are bound when the program is linked, and don't \
             go through the dynamic linker"
        ))
        .hint(format!("{ANNOTATE}; or link the function from a shared library (cc -shared -fPIC)"))
    };
    if let Some((object, symbol)) = exported {
        let message = format!(
            "'{wanted}' is in '{}', but nothing that the program loads calls it through the dynamic linker",
            object.name
        );
        let Some(opener) = opener else {
            let is_own = object.name == program;
            return Err(if is_own { own() } else { Failure::new(message).hint(ANNOTATE) });
        };
        warn(
            message,
            format!("fine if something is opened later: '{}' opens libraries", opener.name),
        );
        return callable(wanted, &symbol, objects);
    }
    let inside = objects.iter().find(|object| {
        object
            .symbols
            .iter()
            .any(|symbol| symbol.is_function && written::is_called(&symbol.name, wanted))
    });
    if let Some(object) = inside {
        if object.name == program {
            return Err(own());
        }
        return Err(Failure::new(format!(
            "'{wanted}' is bound inside '{}' (static or hidden): its calls don't go through the dynamic linker",
            object.name
        ))
        .hint(ANNOTATE));
    }
    let called: Vec<String> = objects
        .iter()
        .flat_map(|object| &object.slots)
        .flat_map(|name| [name.clone(), written::written(name)])
        .collect();
    if let Some(close) = nearest(wanted, called.iter().map(String::as_str)) {
        return Err(Failure::new(format!("no function '{wanted}' is called"))
            .hint(format!("did you mean '{close}'?")));
    }
    let functions = objects.iter().take(1).flat_map(|object| &object.symbols);
    let functions = functions.filter(|symbol| symbol.is_function).map(|symbol| &symbol.name[..]);
    warn(
        format!("'{wanted}' is unknown to everything that the program loads at its start"),
        match nearest(wanted, functions) {
            Some(close) => format!("did you mean '{close}'? Else fine {LATER}"),
            None => format!("fine {LATER}; else nm -DC --undefined-only PROGRAM"),
        },
    );
    Ok(wanted.to_owned())
}

/// When an unknown function may still be called.
const LATER: &str = "if it comes with dlopen, or if another program is started";

/// The hint for functions that are out of reach.
const ANNOTATE: &str =
    "put lw_epoch_start(ID) and lw_epoch_end(ID, SLO_NS) of lockwright.h into the program";

/// Returns `symbol`, unless it is a variable.
fn callable(wanted: &str, symbol: &str, objects: &[ObjectFile]) -> Result<String, Failure> {
    let definition = objects
        .iter()
        .filter(|object| object.exports.contains(symbol))
        .flat_map(|object| object.symbols.iter().filter(|known| known.name == symbol))
        .next();
    if definition.is_some_and(|definition| !definition.is_function) {
        return Err(Failure::new(format!("'{wanted}' is a variable"))
            .hint("nm -D --defined-only PROGRAM lists functions as T, W or i"));
    }
    Ok(symbol.to_owned())
}

/// Does it load libraries later? (The C library itself does so only for name services and character sets.)
fn opens(object: &ObjectFile) -> bool {
    let own = [
        "libc.so.",
        "libm.so.",
        "ld-linux",
        "libpthread.so.",
        "libdl.so.",
        "libgcc_s.so.",
        "libstdc++.so.",
    ];
    !own.iter().any(|name| object.name.starts_with(name))
        && ["dlopen", "dlsym", "dlmopen"].iter().any(|name| object.imports.contains(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, function: &str, slo_ns: Option<u64>, percentile: Option<&str>) -> Spec {
        Spec {
            name: name.to_owned(),
            function: function.to_owned(),
            slo_ns,
            percentile: percentile.map(str::to_owned),
        }
    }

    #[test]
    fn flags_are_understood() {
        for (flag, want) in [
            ("get=leveldb_get:50us", spec("get", "leveldb_get", Some(50_000), None)),
            (
                "get=leveldb_get:1.5ms@p99.9",
                spec("get", "leveldb_get", Some(1_500_000), Some("99.9")),
            ),
            ("g=f:20us@95", spec("g", "f", Some(20_000), Some("95"))),
            ("g=f", spec("g", "f", None, None)),
            ("g=db::Db::get", spec("g", "db::Db::get", None, None)),
            ("g=db::Db::get(int):1us", spec("g", "db::Db::get(int)", Some(1000), None)),
            (
                "set=A::operator=(A const&):1us",
                spec("set", "A::operator=(A const&)", Some(1000), None),
            ),
        ] {
            assert_eq!(parse(flag), Ok(want), "{flag}");
        }
        for bad in [
            "",
            "f",
            "f:20us",
            "=f:20us",
            "g=:20us",
            "g=f:",
            "g=f:20",
            "g=f:20us@",
            "g=f:20us@p50",
            "g=f:20us@p100",
            "g=f:20us@q99",
            "a;b=f:20us",
            "g=f;h:20us",
        ] {
            parse(bad).unwrap_err();
        }
    }

    #[test]
    fn two_flags_differ_in_name_and_function() {
        let flags = |list: &[&str]| list.iter().map(|&flag| flag.to_owned()).collect::<Vec<_>>();
        assert!(read(&flags(&["a=f:1us", "b=g:1us"]), true).is_ok());
        read(&flags(&["a=f:1us", "a=g:1us"]), true).unwrap_err();
        read(&flags(&["a=f:1us", "b=f:1us"]), true).unwrap_err();
        read(&flags(&["a=f"]), true).unwrap_err();
        assert!(read(&flags(&["a=f"]), false).is_ok());
    }

    fn object(name: &str, slots: &[&str], exports: &[&str], imports: &[&str]) -> ObjectFile {
        let set =
            |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
        let symbol = |name: &&str, is_function| lockwright_observer::elf::Symbol {
            name: (*name).to_owned(),
            is_function,
            offset: 0,
            size: 1,
        };
        let mut symbols: Vec<_> =
            exports.iter().map(|name| symbol(name, *name != "table")).collect();
        symbols.push(symbol(if name == "prog" { &"inner" } else { &"hidden" }, true));
        ObjectFile {
            name: name.to_owned(),
            path: name.into(),
            imports: set(imports),
            exports: set(exports),
            slots: set(slots),
            has_rseq: false,
            symbols,
        }
    }

    #[test]
    fn functions_out_of_reach_are_refused() {
        let program = object("prog", &["get", "_Z3puti", "_Z3putl", "table"], &[], &["get"]);
        let library = object(
            "libdb.so",
            &["own"],
            &["get", "own", "quiet", "_Z3puti", "_Z3putl", "table"],
            &[],
        );
        let objects = [program, library];
        let reach = |wanted: &str| reach(wanted, &objects).map_err(|failure| failure.to_string());
        assert_eq!(reach("get"), Ok("get".to_owned()));
        assert_eq!(reach("own"), Ok("own".to_owned()), "a slot of its own object");
        assert_eq!(reach("put(long)"), Ok("_Z3putl".to_owned()));
        assert!(reach("put").unwrap_err().contains("is 2 functions"));
        assert!(reach("table").unwrap_err().contains("is a variable"));
        assert!(reach("quiet").unwrap_err().contains("nothing that the program loads calls it"));
        let inner = reach("inner").unwrap_err();
        assert!(inner.contains("'inner' is a function of 'prog' itself"), "{inner}");
        assert!(inner.contains("link the function from a shared library"), "{inner}");
        let hidden = reach("hidden").unwrap_err();
        assert!(hidden.contains("bound inside 'libdb.so' (static or hidden)"), "{hidden}");
        assert!(reach("gett").unwrap_err().contains("did you mean 'get'?"));
        assert!(reach("puts").unwrap_err().contains("did you mean 'put'?"), "as in the source");
        assert!(reach("setjmp").unwrap_err().contains("returns twice"));
        assert_eq!(reach("something_else"), Ok("something_else".to_owned()), "it may come later");
    }

    #[test]
    fn who_opens_libraries_may_call_what_nobody_calls_now() {
        let objects =
            [object("prog", &[], &[], &["dlopen"]), object("libdb.so", &[], &["quiet"], &[])];
        assert_eq!(reach("quiet", &objects).ok(), Some("quiet".to_owned()));
    }
}
