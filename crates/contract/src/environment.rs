//! Every variable whose name begins with `LOCKWRIGHT_`: who reads it, what it may be, and when it matters.
//!
//! The one list: the manual pages and docs/environment.md are made from it, and `cargo xtask tidy` finds a variable in the
//! source that is not here, or one here that nobody reads. The texts are plain, since Markdown and troff both print them.

/// Who reads a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The library, preloaded or linked, in the user's program. Commands that start programs set it, or pass it on.
    Library,
    /// The library, and these commands, which look at it themselves.
    Both(&'static [&'static str]),
    /// These commands alone.
    Commands(&'static [&'static str]),
    /// The project's own tests.
    Tests,
    /// The project's own build.
    Build,
}

impl Reader {
    /// Is it read inside the user's program?
    pub const fn is_library(self) -> bool {
        matches!(self, Self::Library | Self::Both(_))
    }

    /// The commands that look at it themselves.
    pub const fn commands(self) -> &'static [&'static str] {
        match self {
            Self::Both(commands) | Self::Commands(commands) => commands,
            Self::Library | Self::Tests | Self::Build => &[],
        }
    }
}

/// A variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its whole name.
    pub name: &'static str,
    /// Who reads it.
    pub reader: Reader,
    /// What it may be, with the unit of numbers.
    pub values: &'static str,
    /// What holds without it.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// When it is read, or from when on it matters.
    pub when: &'static str,
    /// The options that set it for a program; empty if none do.
    pub set_by: &'static str,
}

/// All there are: the user's first, in the order in which they are likely to be needed.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "LOCKWRIGHT_LOCK",
        reader: Reader::Both(&["run", "profile --record", "profile"]),
        values: "NAME[:key=value,...], as in fifo:bypass=100; 256 bytes at most. `lockwright list` has the names, \
                 `lockwright explain NAME` the keys. glibc: glibc's algorithm",
        default: "auto; under `profile`: glibc",
        meaning: "The lock of every mutex that no rule names. If it is wrong, one line on standard error says so, and the \
                  program runs on glibc's algorithm.",
        when: "when the program starts; `lockwright switch` changes the lock later",
        set_by: "--lock",
    },
    Variable {
        name: "LOCKWRIGHT_RWLOCK",
        reader: Reader::Both(&["run", "profile --record", "profile"]),
        values: "own, readers, writers, strict or patient",
        default: "own: as the program asks, lock by lock",
        meaning: "Who goes first at readers-writer locks that no rule names, if readers and a writer wait. With patient, readers let \
                  a waiting writer go first, for 10 ms at most, so writers do not starve; with strict, a thread that reads again \
                  may deadlock. It does nothing with LOCKWRIGHT_LOCK=glibc, unless the program starts with LOCKWRIGHT_OBSERVE, as under `profile`.",
        when: "when the program starts; `lockwright switch PID --rwlock` changes it later",
        set_by: "--rwlock",
    },
    Variable {
        name: "LOCKWRIGHT_RULES",
        reader: Reader::Library,
        values: "rules separated by semicolons, as in lib:libc.so.6=fifo; about 16 KB at most. The command writes them, since \
                 rules for variables and functions hold addresses",
        default: "no rule",
        meaning: "Locks of their own for some mutexes, by library, variable, caller or kind. A wrong rule is reported and left \
                  out; the others hold.",
        when: "when the program starts; `lockwright switch` changes rules later",
        set_by: "run --config FILE",
    },
    Variable {
        name: "LOCKWRIGHT_SECTIONS",
        reader: Reader::Library,
        values: "if-faster, never or always",
        default: "if-faster",
        meaning: "In a program that `lockwright rewrite` has changed: does the thread that holds a mutex run the sections of those \
                  that wait for it?",
        when: "when the first section runs",
        set_by: "",
    },
    Variable {
        name: "LOCKWRIGHT_DELEGATE",
        reader: Reader::Library,
        values: "[FILE:]all, or [FILE:]places: +LOW-HIGH in the program, NAME+LOW-HIGH in a library, hexadecimal, separated by commas. \
                 FILE: the program that delegates, not those that it starts. The command writes them",
        default: "nothing is delegated",
        meaning: "Read by liblockwright_delegate.so, an experiment: the sections that are locked at these places may run on other \
                  threads.",
        when: "when the program starts",
        set_by: "--delegate",
    },
    Variable {
        name: "LOCKWRIGHT_DELEGATE_ACCOUNT",
        reader: Reader::Both(&["profile", "top"]),
        values: "a folder",
        default: "no file is written",
        meaning: "Where liblockwright_delegate.so writes what ran elsewhere, what went home, and why.",
        when: "when the program starts",
        set_by: "--delegate",
    },
    Variable {
        name: "LOCKWRIGHT_DELEGATE_FREE",
        reader: Reader::Library,
        values: "ask",
        default: "a section that finds its mutex free runs as ever",
        meaning: "Read by liblockwright_delegate.so: sections that find their mutex free go the same way as those that wait, for \
                  tests. Slower.",
        when: "when the program starts",
        set_by: "",
    },
    Variable {
        name: "LOCKWRIGHT_TOPOLOGY",
        reader: Reader::Both(&[
            "run",
            "doctor --topology",
            "tune",
            "bench",
            "sim --calibrate",
            "sim --validate",
        ]),
        values: "classes of CPUs, fastest first, as in big:0-3,little:4-7",
        default: "what the kernel says of the CPUs",
        meaning: "Which cores are big and which are little, where the kernel does not know.",
        when: "when the program starts, which then also reads the CPUs' classes at once, in 0.3 ms",
        set_by: "--topology",
    },
    Variable {
        name: "LOCKWRIGHT_EMULATE",
        reader: Reader::Both(&["run"]),
        values: "the same with factors from x1 to x100, as in big:0,little:1x3.75",
        default: "nothing is emulated",
        meaning: "Slows computation on the CPUs of a class by its factor, and tells the locks that those cores are \
                  little. Every figure of such a run is emulated.",
        when: "when the program starts, which takes 3 ms longer",
        set_by: "--emulate",
    },
    Variable {
        name: "LOCKWRIGHT_PAUSE",
        reader: Reader::Both(&["run", "bench"]),
        values: "pause, mfence, tpause, umwait, mwaitx or wfe; `lockwright doctor --topology` says which this processor has",
        default: "pause",
        meaning: "The instruction by which waiters that stay awake pass the time.",
        when: "when the program starts",
        set_by: "run --pause",
    },
    Variable {
        name: "LOCKWRIGHT_SLO",
        reader: Reader::Library,
        values: "nanoseconds; 0: nobody is overtaken",
        default: "each epoch's own",
        meaning: "The SLO of every epoch, whatever the program says.",
        when: "when the program starts; `lockwright switch PID slo` changes it later",
        set_by: "run --slo, tune",
    },
    Variable {
        name: "LOCKWRIGHT_PERCENTILE",
        reader: Reader::Library,
        values: "per cent, 90 to 99.9",
        default: "99",
        meaning: "The share of an epoch's executions that must keep the SLO, for epochs that were given none.",
        when: "when the program starts",
        set_by: "",
    },
    Variable {
        name: "LOCKWRIGHT_EPOCHS",
        reader: Reader::Library,
        values: "NAME=SYMBOL:SLO_NS[@PERCENTILE], several by semicolons; 32 functions, 16383 bytes at most",
        default: "no function is an epoch",
        meaning: "Functions each of whose calls is an epoch. x86-64, and the preloaded library only.",
        when: "when the program starts, and when it opens a library",
        set_by: "--epoch",
    },
    Variable {
        name: "LOCKWRIGHT_STATS",
        reader: Reader::Library,
        values: "a folder of the user's own, no symbolic link",
        default: "nothing is recorded",
        meaning: "Each process records its epochs to PID-N.stats there.",
        when: "when the program starts",
        set_by: "run --stats, tune, compare --epochs",
    },
    Variable {
        name: "LOCKWRIGHT_TRACE",
        reader: Reader::Library,
        values: "a folder of the user's own, no symbolic link",
        default: "nothing is recorded",
        meaning: "Each process records every operation on a lock there.",
        when: "when the program starts; each operation takes longer from then on",
        set_by: "profile --record, profile --sections",
    },
    Variable {
        name: "LOCKWRIGHT_TRACE_LIMIT",
        reader: Reader::Library,
        values: "acquisitions, 1 or more; 48 bytes each",
        default: "2000000",
        meaning: "How many acquisitions of each process there is room for; later ones are only counted.",
        when: "when the program starts, with LOCKWRIGHT_TRACE",
        set_by: "profile --record --limit",
    },
    Variable {
        name: "LOCKWRIGHT_OBSERVE",
        reader: Reader::Library,
        values: "off, counters or full",
        default: "off, until a command asks",
        meaning: "What a process counts of its contended locks: waits, holds and who makes others wait; full: also stacks, \
                  threads, owners and CPUs. Then readers-writer locks are ours, also with LOCKWRIGHT_LOCK=glibc.",
        when: "when the program starts; `profile`, `top` and `switch PID level` raise it later",
        set_by: "profile",
    },
    Variable {
        name: "LOCKWRIGHT_OBSERVE_DIR",
        reader: Reader::Library,
        values: "an absolute path of 256 bytes at most",
        default: "/dev/shm/lockwright-UID, else /run/user/UID/lockwright",
        meaning: "The folder of the file in which a process counts.",
        when: "when the program starts; the file is made when counting begins",
        set_by: "profile",
    },
    Variable {
        name: "LOCKWRIGHT_ORDER",
        reader: Reader::Library,
        values: "an absolute path of 4096 bytes at most, of a folder",
        default: "nothing is noted",
        meaning: "Each process notes there in which order its threads take locks.",
        when: "when the program starts; each operation takes longer from then on",
        set_by: "profile --order",
    },
    Variable {
        name: "LOCKWRIGHT_LIBRARY",
        reader: Reader::Commands(&[
            "run",
            "doctor",
            "bench",
            "compare",
            "tune",
            "profile --record",
            "profile",
            "attach",
        ]),
        values: "the path of liblockwright.so, without blanks and colons",
        default: "beside the command, else in ../lib/lockwright or ../lib from there (refused if others own it or may write to it), else the copy \
                  that a release build carries",
        meaning: "The library that commands preload.",
        when: "at each command; --library has priority",
        set_by: "",
    },
    Variable {
        name: "LOCKWRIGHT_ENERGY_SYS",
        reader: Reader::Commands(&["doctor --topology", "bench", "tune", "sim --calibrate"]),
        values: "a folder that is laid out as /sys",
        default: "/sys",
        meaning: "Where the sources of energy figures are looked for; for tests, and for containers that see the host's /sys \
                  elsewhere.",
        when: "at each command",
        set_by: "",
    },
    Variable {
        name: "LOCKWRIGHT_KERNEL_PROGRAMS",
        reader: Reader::Tests,
        values: "a number",
        default: "300",
        meaning: "About how many drawn and changed hooks of policies the kernel's verifier is asked about.",
        when: "cargo test -p lockwright-policy, as root",
        set_by: "cargo xtask soak",
    },
    Variable {
        name: "LOCKWRIGHT_MODEL",
        reader: Reader::Tests,
        values: "names of locks, by commas",
        default: "all",
        meaning: "The model checkers look at these locks only.",
        when: "cargo test -p lockwright-model",
        set_by: "cargo xtask weaken",
    },
    Variable {
        name: "LOCKWRIGHT_MODEL_MS",
        reader: Reader::Tests,
        values: "milliseconds",
        default: "each model's own",
        meaning: "The longest that one model may take.",
        when: "cargo test -p lockwright-model",
        set_by: "cargo xtask weaken",
    },
    Variable {
        name: "LOCKWRIGHT_SOAK",
        reader: Reader::Tests,
        values: "anything",
        default: "unset",
        meaning: "Tests run each program under all locks, and models may take ten times as long.",
        when: "at each test",
        set_by: "cargo xtask soak",
    },
    Variable {
        name: "LOCKWRIGHT_SITE",
        reader: Reader::Tests,
        values: "a number",
        default: "unset",
        meaning: "The place in a lock's source that is weakened.",
        when: "in the program that cargo xtask weaken builds",
        set_by: "cargo xtask weaken",
    },
    Variable {
        name: "LOCKWRIGHT_MUTATION",
        reader: Reader::Tests,
        values: "a number",
        default: "unset",
        meaning: "How that place is weakened.",
        when: "in the program that cargo xtask weaken builds",
        set_by: "cargo xtask weaken",
    },
    Variable {
        name: "LOCKWRIGHT_PROGRAMS",
        reader: Reader::Tests,
        values: "a number",
        default: "100000",
        meaning: "How many drawn hooks of policies the verifier's test looks at.",
        when: "cargo test -p lockwright-policy",
        set_by: "cargo xtask soak",
    },
    Variable {
        name: "LOCKWRIGHT_STRESS_MS",
        reader: Reader::Tests,
        values: "milliseconds",
        default: "what the test says",
        meaning: "How long the stress test runs under each lock.",
        when: "cargo test -p lockwright-tests --test stress",
        set_by: "",
    },
    Variable {
        name: "LOCKWRIGHT_STRESS_SEED",
        reader: Reader::Tests,
        values: "a number",
        default: "the time",
        meaning: "Repeats a run of the stress test.",
        when: "cargo test -p lockwright-tests --test stress",
        set_by: "",
    },
    Variable {
        name: "LOCKWRIGHT_SOURCES",
        reader: Reader::Build,
        values: "32 hexadecimal digits",
        default: "the build script sets it",
        meaning: "A hash of the sources, in the files of shards: those of different programs are not merged.",
        when: "cargo build",
        set_by: "",
    },
];
