//! A policy as its object file has it, before anybody has checked it.

mod btf;
mod constants;
mod elf;

pub use constants::{CantSet, NamedConstant};

use lockwright_contract::programs::maps::MapSpec;
use lockwright_platform::hooks::Hook;

/// An instruction of eBPF. One that loads 64 bits takes two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Insn {
    /// Class, operation, source.
    pub code: u8,
    /// The register that it writes.
    pub dst: u8,
    /// The register that it reads. In a load of 64 bits: 0 a number; 1 the address of the map with the number `imm`; 2 the address
    /// of that map's first value plus the second half's `imm`.
    pub src: u8,
    /// An offset.
    pub off: i16,
    /// A constant.
    pub imm: i32,
}

/// A line of the policy's source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceLine {
    /// The first instruction that belongs to it.
    pub insn: usize,
    /// The file.
    pub file: String,
    /// Its number, from 1.
    pub number: u32,
    /// The line itself.
    pub text: String,
}

/// A hook's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookCode {
    /// The hook.
    pub hook: Hook,
    /// Its instructions.
    pub insns: Vec<Insn>,
    /// Where they come from, in the order of the instructions; empty: the object doesn't say.
    pub lines: Vec<SourceLine>,
}

/// A map's name, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedMap {
    /// Its name in the source.
    pub name: String,
    /// The rest.
    pub spec: MapSpec,
    /// The first value, if it has one: a section of variables.
    pub initial: Vec<u8>,
    /// The numbers in it that may be changed: [`Object::set`].
    pub constants: Vec<NamedConstant>,
}

/// A policy that nobody has checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its hooks, each at most once.
    pub hooks: Vec<HookCode>,
    /// Its maps; instructions name them by their places here.
    pub maps: Vec<NamedMap>,
}

/// The most instructions of a hook, and the most that one call of it may execute.
pub const LONGEST: usize = 4096;
/// The most maps of a policy, those for its variables included.
pub const MOST_MAPS: usize = 64;
/// The largest file, bytes.
pub const LARGEST_FILE: usize = 16 << 20;

impl Object {
    /// Reads what `clang -O2 -g -target bpf -mcpu=v3 -c` has made of a policy.
    ///
    /// # Errors
    /// The file is no such object, or it asks for what policies can't have.
    pub fn read(file: &[u8]) -> Result<Self, ObjectError> {
        elf::read(file)
    }

    /// The sum of its hooks' [bits](Hook::bit).
    pub fn hooks(&self) -> u32 {
        self.hooks.iter().fold(0, |hooks, code| hooks | code.hook.bit())
    }

    /// The policy's hook of this kind.
    pub fn hook(&self, hook: Hook) -> Option<&HookCode> {
        self.hooks.iter().find(|code| code.hook == hook)
    }
}

impl HookCode {
    /// The line of the source to which an instruction belongs.
    pub fn line(&self, insn: usize) -> Option<&SourceLine> {
        let next = self.lines.partition_point(|line| line.insn <= insn);
        self.lines[..next].last()
    }
}

/// Why an object is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// Not ELF, or damaged.
    #[error("this isn't an object file: {0}\nhint: {COMPILE}")]
    NoElf(String),
    /// Compiled for something else.
    #[error("the object was compiled for {0}, not for eBPF\nhint: {COMPILE}")]
    OtherMachine(String),
    /// Too large.
    #[error(
        "the object has {0} bytes, at most {LARGEST_FILE} are allowed\nhint: llvm-strip --strip-debug keeps all that is needed"
    )]
    LargeFile(usize),
    /// There is no section `tp/lockwright/...`.
    #[error(
        "the object has no hook\nhint: a hook is a function that begins with LW_HOOK(cmp_node)"
    )]
    NoHook,
    /// Code in another section.
    #[error("section '{name}' isn't a hook{}", hint_hook(.nearest))]
    UnknownSection {
        /// The section.
        name: String,
        /// What was probably meant.
        nearest: Option<&'static str>,
    },
    /// A section has no function, or several.
    #[error(
        "{} has {count} functions, and needs one\nhint: write each hook once, and declare other functions static inline",
        .hook.name()
    )]
    Functions {
        /// The hook.
        hook: Hook,
        /// How many.
        count: usize,
    },
    /// A call of a function that isn't a helper.
    #[error(
        "{} calls the function '{function}', and hooks may only call helpers{}\nhint: declare it: static inline __attribute__((always_inline))",
        .hook.name(), at(.line)
    )]
    CallsFunction {
        /// The hook.
        hook: Hook,
        /// The function.
        function: String,
        /// Where.
        line: Option<SourceLine>,
    },
    /// A reference to something that is neither a map nor a variable.
    #[error("{} uses '{symbol}', which is neither a map nor a variable of the object{}", .hook.name(), at(.line))]
    UnknownSymbol {
        /// The hook.
        hook: Hook,
        /// What it uses.
        symbol: String,
        /// Where.
        line: Option<SourceLine>,
    },
    /// Something in the file contradicts the rest.
    #[error("the object is damaged: {0}\nhint: compile it again: {COMPILE}")]
    Damaged(&'static str),
    /// Maps need type information.
    #[error("the object does not say what its maps are\nhint: compile it with -g: {COMPILE}")]
    NoTypes,
    /// A map's definition isn't understood.
    #[error("map '{map}': {what}\nhint: {}", hint_map(.map))]
    Map {
        /// Its name.
        map: String,
        /// What is wrong.
        what: String,
    },
    /// More maps than [`MOST_MAPS`].
    #[error("the object has {0} maps, at most {MOST_MAPS} are allowed")]
    ManyMaps(usize),
    /// All maps together need too much memory.
    #[error("{0}\nhint: map '{1}' is the largest: give it fewer entries")]
    LargeMaps(String, String),
    /// Variables that hold addresses.
    #[error(
        "section '{0}' holds an address, and variables may only hold numbers\nhint: use an index instead of a pointer"
    )]
    Address(String),
}

/// How policies are compiled.
const COMPILE: &str = "clang -O2 -g -target bpf -mcpu=v3 -c policy.bpf.c -o policy.bpf.o";

fn hint_hook(nearest: &Option<&'static str>) -> String {
    match nearest {
        Some(name) => format!("\nhint: is '{}{name}' meant?", elf::PREFIX),
        None => {
            let names: Vec<_> = Hook::ALL.iter().map(|hook| hook.name()).collect();
            format!("\nhint: the hooks are {}", names.join(", "))
        }
    }
}

fn hint_map(name: &str) -> String {
    format!(
        "struct {{ __uint(type, LW_HASH); __type(key, __u64); __type(value, __u64); __uint(max_entries, 1024); }} {name} LW_MAP;"
    )
}

fn at(line: &Option<SourceLine>) -> String {
    line.as_ref().map_or(String::new(), |line| format!("\n  at {line}"))
}

impl std::fmt::Display for SourceLine {
    /// `policy.bpf.c:17: return 1;`
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let name = self.file.rsplit('/').next().unwrap_or_default();
        write!(f, "{name}:{}: {}", self.number, self.text.trim())
    }
}
