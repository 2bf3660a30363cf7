//! Why the kernel's verifier refuses a program.

use std::collections::BTreeSet;
use std::fmt;
use std::io;

/// A class of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// Instructions that nothing reaches. The kernel refuses them without looking at them; they are harmless.
    DeadCode,
    /// A field of an instruction that means nothing there is not 0.
    ReservedFields,
    /// A register or a byte of the stack is read before it is written.
    Uninitialised,
    /// The kernel isn't sure that an access stays inside its map's value, or its memory.
    Bounds,
    /// A pointer is used as something that it is not.
    Pointers,
    /// A loop, or more states than the kernel looks at.
    Complexity,
    /// A helper's arguments.
    Helper,
    /// A field of the context at no multiple of its size, or two at once.
    Context,
    /// The kernel follows a branch for a pointer at 0, though this pointer never is: the stack's, the context's, a value's.
    NeverNull,
    /// Behind a quotient or a remainder, about which the kernel knows nothing: it may follow a branch that nothing takes.
    Quotient,
    /// Something else.
    Other,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::DeadCode => "dead code",
            Self::ReservedFields => "reserved fields",
            Self::Uninitialised => "uninitialised",
            Self::Bounds => "bounds",
            Self::Pointers => "pointers",
            Self::Complexity => "complexity",
            Self::Helper => "helper",
            Self::Context => "context",
            Self::NeverNull => "never null",
            Self::Quotient => "quotient",
            Self::Other => "other",
        })
    }
}

/// Parts of the kernel's messages, most specific first.
const WORDS: &[(Why, &[&str])] = &[
    (Why::DeadCode, &["unreachable insn"]),
    (Why::ReservedFields, &["reserved field", "uses reserved", "unrecognized bpf_ld_imm64"]),
    (Why::Complexity, &["infinite loop", "back-edge", "too large", "too many", "is too complex"]),
    (
        Why::Uninitialised,
        &[
            "!read_ok",
            "invalid read from stack",
            "invalid indirect read from stack",
            "uninitialized",
        ],
    ),
    (
        Why::Context,
        &["invalid bpf_context access", "misaligned context", "dereference of modified ctx"],
    ),
    (Why::Helper, &["helper", "unknown func", "invalid func", "expected="]),
    (
        Why::Bounds,
        &[
            "invalid access to map value",
            "min value",
            "max value",
            "unbounded",
            "outside of the allowed",
            "math between",
            "value is",
            "misaligned",
            "out of range",
            "invalid zero-sized",
        ],
    ),
    (Why::Pointers, &["pointer", "invalid mem access", "cannot write into", "leak", "ctx"]),
];

/// The kernel's refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its class.
    pub why: Why,
    /// The kernel's reason: a line of its log; if it wrote none, its error.
    pub reason: String,
    /// The last lines of its log.
    pub log: Vec<String>,
}

/// This many lines of a log are kept.
const KEPT: usize = 8;

impl Refusal {
    pub(super) fn new(error: io::Error, log: &str) -> Self {
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        // The last that is neither statistics nor a state.
        let is_said = |line: &&&str| {
            !["processed ", "verification time", "cur state", "old state"]
                .iter()
                .any(|word| line.starts_with(word))
        };
        let said = lines.iter().rfind(is_said);
        let reason = said.map_or_else(|| error.to_string(), |line| (*line).to_owned());
        let log = lines
            .iter()
            .skip(lines.len().saturating_sub(KEPT))
            .map(|line| (*line).to_owned())
            .collect();
        let why = match why(&reason) {
            is_plain @ (Why::DeadCode | Why::ReservedFields | Why::Context) => is_plain,
            // What lies behind such a branch or number may be an accident.
            _ if compares_with_null(&lines) => Why::NeverNull,
            _ if lines.iter().any(|line| line.contains(" /= ") || line.contains(" %= ")) => {
                Why::Quotient
            }
            why => why,
        };
        Self { why, reason, log }
    }
}

/// Is there a branch that compares such a pointer with 0? Then what was refused may lie behind it. (A look-up's check is none: the log
/// shows what is known after it.)
fn compares_with_null(lines: &[&str]) -> bool {
    let mut may_be_null = BTreeSet::new();
    lines.iter().any(|line| {
        let states = || {
            let states = line.split_whitespace().filter_map(|word| word.split_once('='));
            states.filter_map(|(name, kind)| Some((name.strip_prefix('R')?, kind)))
        };
        let branch = line.split_once("if r").and_then(|(_, rest)| rest.split_once(' '));
        let is_it = branch.is_some_and(|(number, rest)| {
            let is_null = rest.starts_with("== 0x0 ") || rest.starts_with("!= 0x0 ");
            let is_pointer = |kind: &str| {
                ["ctx", "fp", "map_ptr", "map_value("].iter().any(|one| kind.starts_with(one))
            };
            let is = states().any(|(name, kind)| name == number && is_pointer(kind));
            is_null && is && !may_be_null.contains(number)
        });
        for (name, kind) in states() {
            if kind.contains("_or_null") {
                may_be_null.insert(name);
            } else {
                may_be_null.remove(name);
            }
        }
        is_it
    })
}

fn why(reason: &str) -> Why {
    let reason = reason.to_lowercase();
    let known = WORDS.iter().find(|(_, words)| words.iter().any(|word| reason.contains(word)));
    known.map_or(Why::Other, |(why, _)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_last_line_that_is_no_statistics() {
        let log = "0: R1=ctx() R10=fp0\n0: (bf) r0 = r6\nR6 !read_ok\nprocessed 1 insns (limit 1000000)\n\n";
        let refusal = Refusal::new(io::Error::from_raw_os_error(libc::EACCES), log);
        assert_eq!((refusal.why, refusal.reason.as_str()), (Why::Uninitialised, "R6 !read_ok"));
        assert_eq!(refusal.log.len(), 4);
        let silent = Refusal::new(io::Error::from_raw_os_error(libc::EINVAL), "");
        assert_eq!(silent.why, Why::Other);
        assert!(silent.reason.starts_with("Invalid argument"), "{}", silent.reason);
    }

    #[test]
    fn what_lies_behind_a_branch_that_nothing_takes_is_told_apart() {
        let of = |log: &str| Refusal::new(io::Error::from_raw_os_error(libc::EACCES), log).why;
        let end = "7: (bf) r0 = r6\nR6 !read_ok\n";
        assert_eq!(of(end), Why::Uninitialised);
        assert_eq!(
            of(&format!("1: (15) if r1 == 0x0 goto pc+1 3: R0=0 R1=ctx() R10=fp0\n{end}")),
            Why::NeverNull
        );
        assert_eq!(
            of(&format!("8: (55) if r10 != 0x0 goto pc+2       ; R10=fp0\n{end}")),
            Why::NeverNull
        );
        assert_eq!(
            of(&format!("8: (55) if r0 != 0x0 goto pc+2 11: R0=scalar() R1=ctx()\n{end}")),
            Why::Uninitialised
        );
        // The check of a look-up, and the same check once more.
        let call = "6: (85) call bpf_map_lookup_elem#1 ; R0=map_value_or_null(id=1,ks=4,vs=8)\n";
        let check = "7: (15) if r0 == 0x0 goto pc+1    ; R0=map_value(ks=4,vs=8)\n";
        assert_eq!(of(&format!("{call}{check}{end}")), Why::Uninitialised);
        assert_eq!(of(&format!("{call}{check}{check}{end}")), Why::NeverNull);
        assert_eq!(
            of(&format!("3: (94) w5 %= 1                       ; R5=scalar()\n{end}")),
            Why::Quotient
        );
        let endless = "1: (05) goto pc-1 infinite loop detected at insn 1\ncur state: R0=0\nold state: R0=0\nprocessed 10 insns\n";
        assert_eq!(of(endless), Why::Complexity);
    }

    #[test]
    fn the_kernels_messages_have_their_classes() {
        for (message, class) in [
            ("BPF_MOV uses reserved fields", Why::ReservedFields),
            ("back-edge from insn 3 to 1", Why::Complexity),
            ("BPF program is too large. Processed 1000001 insn", Why::Complexity),
            ("R0 invalid mem access 'map_value_or_null'", Why::Pointers),
            ("invalid access to map value, value_size=8 off=8 size=8", Why::Bounds),
            ("invalid bpf_context access off=0 size=8", Why::Context),
            ("R2 type=scalar expected=fp, pkt, pkt_meta", Why::Helper),
        ] {
            assert_eq!(why(message), class, "{message}");
        }
    }
}
