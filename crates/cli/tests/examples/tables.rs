//! What the examples need, and what is different when the tests run them. Each line says why. A key is a part of the examples that it is for;
//! with `$` at its end, the whole example.

/// Is this the key of that example?
pub(crate) fn is_key(key: &str, example: &str) -> bool {
    match key.strip_suffix('$') {
        Some(whole) => example == whole,
        None => example.contains(key),
    }
}

/// Keys of all lines that some example must need.
pub(crate) fn keys() -> Vec<&'static str> {
    let mut keys = Vec::new();
    keys.extend(NAMES.iter().map(|(key, ..)| *key));
    keys.extend(FILES.iter().map(|(key, ..)| *key));
    keys.extend(BEFORE.iter().map(|before| before.key));
    keys.extend(CUT.iter().map(|cut| cut.key));
    keys.extend(ENDS.iter().map(|(key, ..)| *key));
    keys.extend(MAY_BE_REFUSED.iter().map(|refusal| refusal.key));
    keys.extend(STAND_INS.iter().map(|(key, ..)| *key));
    keys.extend(ALONE);
    keys
}

/// How an example comes to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// By itself.
    Ends,
    /// It draws on a terminal, until `q` is pressed.
    Screen,
    /// It serves until a signal; docs/exit-codes.md has its exit code.
    Serves,
}

impl How {
    pub(crate) fn of(example: &str) -> Self {
        let words: Vec<_> = example.split_whitespace().collect();
        match words.as_slice() {
            ["lockwright", "top", "--export", rest @ ..] => {
                if rest.contains(&"--output") {
                    Self::Ends
                } else {
                    Self::Serves
                }
            }
            ["lockwright", "top", rest @ ..] if !rest.contains(&"--batch") => Self::Screen,
            _ => Self::Ends,
        }
    }

    /// The exit codes that are fine.
    pub(crate) fn codes(self) -> &'static [i32] {
        match self {
            Self::Ends | Self::Screen => &[0],
            Self::Serves => &[128 + libc::SIGTERM],
        }
    }
}

/// Does `4242` run without our library? It is attached to, or was.
pub(crate) fn is_bare(command: &str, example: &str) -> bool {
    [command, example].iter().any(|text| text.starts_with("lockwright attach"))
}

/// What stands for what the reader has. `{pid}` is a process, `{lock}` a lock in its heap, `{port}` a free port. Each `./NAME` is server.c.
pub(crate) const NAMES: &[(&str, &str, &str)] = &[
    ("4242", "{pid}", "a process"),
    ("0x55d0c4a012a0", "{lock}", "a lock in its heap"),
    ("8080", "{port}", "somebody may use that one"),
    ("/usr/bin/memcached", "./server", "it may not be installed"),
    ("/var/lib/node_exporter", ".", "it may not be there, nor ours to write"),
    ("big:0-3,little:4-7", "big:0,little:1", "two CPUs are enough for the tests"),
    (
        "reproduce all --format json",
        "reproduce libasl-8g --format json",
        "all figures take minutes; `all` is understood with --shard",
    ),
];

/// Files that examples read.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("script.py", "#!/usr/bin/env python3\nprint(1)\n"),
    ("locks.toml", "default = \"auto\"\n\n[[lock]]\nmutex = \"g_lock\"\nuse = \"fifo\"\n"),
    ("--machine here.toml", include_str!("../../../sim/profiles/m1.toml")),
];

/// Examples that follow from others: what was done before.
pub(crate) struct Before {
    /// Of which help.
    pub(crate) command: &'static str,
    pub(crate) key: &'static str,
    pub(crate) lines: &'static [&'static str],
}

const fn before(
    command: &'static str,
    key: &'static str,
    lines: &'static [&'static str],
) -> Before {
    Before { command, key, lines }
}

/// A process that has a policy.
const POLICY: &[&str] = &["lockwright policy load big-first --pid {pid}"];

/// A policy's object file.
const MINE: &str =
    concat!("cp '", env!("CARGO_MANIFEST_DIR"), "/tests/programs/slow.bpf.o' mine.bpf.o");

/// A program's source, and how it is compiled.
const SOURCE: &[&str] = &[
    "printf '#include <pthread.h>\\nstatic pthread_mutex_t g_table; static int n;\\nvoid f(void) { pthread_mutex_lock(&g_table); n++; pthread_mutex_unlock(&g_table); }\\n' > f.c",
    "printf '[{\"directory\": \"%s\", \"file\": \"f.c\", \"command\": \"cc -c f.c\"}]' \"$PWD\" > compile_commands.json",
];

pub(crate) const BEFORE: &[Before] = &[
    before("lockwright rewrite", "lockwright rewrite", SOURCE),
    before(
        "lockwright sim --merge",
        "lockwright sim --merge machine-a machine-b",
        &[
            "lockwright sim --machine m1 --lock mcs,tas --duration 10us --shard 1/2 --output machine-a",
            "lockwright sim --machine m1 --lock mcs,tas --duration 10us --shard 2/2 --output machine-b",
        ],
    ),
    before(
        "lockwright attach --undo",
        "lockwright attach --undo {pid}",
        &["lockwright attach {pid}"],
    ),
    before("lockwright policy", "lockwright policy unload", POLICY),
    before("lockwright policy unload", "lockwright policy unload", POLICY),
    before("lockwright policy store", "mine.bpf.o", &[MINE]),
    before(
        "lockwright policy remove",
        "lockwright policy remove mine",
        &[MINE, "lockwright policy store mine.bpf.o"],
    ),
    before(
        "lockwright sim",
        "--trace lockwright-trace.bin",
        &["lockwright profile --record -- ./server"],
    ),
    before(
        "lockwright profile",
        "--read locks.observe",
        &[
            "lockwright switch {pid} level full --for 60s",
            "lockwright switch {pid} list",
            "lockwright switch {pid} dump locks.observe",
        ],
    ),
];

/// A flag that makes an example short: added, or with this value instead of its own.
pub(crate) struct Cut {
    pub(crate) key: &'static str,
    /// The flag, and its value.
    pub(crate) flag: &'static str,
    pub(crate) value: &'static str,
}

const fn cut(key: &'static str, flag: &'static str, value: &'static str) -> Cut {
    Cut { key, flag, value }
}

/// As they stand, these examples would take from 5 seconds to an hour each, or for ever.
pub(crate) const CUT: &[Cut] = &[
    cut("lockwright policy run", "--duration", "10us"),
    cut("lockwright policy run", "--warmup", "1us"),
    cut("lockwright policy load big-first --pid 4242 --lock g_lock --guard", "--guard", "600ms"),
    cut("lockwright sim --machine", "--duration", "10us"),
    cut("lockwright sim --machine", "--warmup", "1us"),
    cut("lockwright reproduce libasl", "--quick", ""),
    cut("lockwright reproduce libasl", "--seeds", "1"),
    cut("lockwright reproduce all", "--quick", ""),
    cut("lockwright reproduce all", "--seeds", "1"),
    cut("lockwright reproduce all --shard", "--shard", "1/100"),
    cut("lockwright explore mcs$", "--time", "100ms"),
    cut("lockwright explore runtime$", "--time", "100ms"),
    cut("lockwright explore fifo:bypass=1", "--time", "100ms"),
    cut("lockwright explore all --time", "--time", "10ms"),
    cut("lockwright explore all --schedules", "--schedules", "10"),
    cut("lockwright explore mcs --mutants", "--schedules", "20"),
    cut("lockwright tune", "--steps", "2"),
    cut("lockwright tune", "--rounds", "1"),
    cut("--steps 12 --time 5", "--time", "200ms"),
    cut("lockwright compare", "--rounds", "2"),
    cut("lockwright profile --kernel --time", "--time", "200ms"),
    cut("lockwright profile --kernel --type", "--time", "200ms"),
    cut("lockwright profile --kernel --futex", "--time", "200ms"),
    // It runs until Ctrl-C, but nothing says when it has begun.
    cut("lockwright profile --kernel --pid", "--time", "200ms"),
    cut("lockwright profile -p", "--time", "200ms"),
    cut("lockwright top 4242 --batch", "--interval", "100ms"),
    cut("lockwright switch 4242 g_lock fifo --guard", "--guard", "600ms"),
    // Each 15 s, for ever.
    cut("lockwright top --export --output /var/lib", "--count", "1"),
    // Somebody may listen on its own port.
    cut("lockwright top --export$", "--listen", "127.0.0.1:{port}"),
    cut("lockwright sim --calibrate", "--quick", ""),
    cut("lockwright sim --validate", "--quick", ""),
    cut("lockwright bench", "--time", "2ms"),
    cut("lockwright bench", "--rounds", "1"),
    // Each of the 200 points takes a process and a tenth of a second, however short it is.
    cut("lockwright bench --suite bars", "--shard", "1/100"),
];

impl Cut {
    pub(crate) fn applied(&self, line: &str) -> String {
        // Of several commands in the line, the one that the key names.
        let key: Vec<_> = self.key.trim_end_matches('$').split(' ').collect();
        let starts = [3, 2].map(|most| line.find(&key[..key.len().min(most)].join(" ")));
        let start = starts.into_iter().flatten().next().unwrap_or(0);
        let (head, rest) = line.split_at(start);
        let end = [" && ", " | ", " > "].iter().filter_map(|end| rest.find(end)).min();
        let (command, tail) = rest.split_at(end.unwrap_or(rest.len()));
        let mut words: Vec<_> = command.split(' ').collect();
        let own = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        match words[..own].iter().position(|word| *word == self.flag) {
            Some(at) if !self.value.is_empty() => words[at + 1] = self.value,
            Some(_) => {}
            None => {
                // Behind the first words, which may be the name of a command: `profile --kernel`.
                let added = [self.flag, self.value];
                let added = added.into_iter().filter(|word| !word.is_empty());
                words.splice(own..own, added);
            }
        }
        format!("{head}{}{tail}", words.join(" "))
    }
}

#[test]
fn a_cut_is_added_or_replaces_a_value() {
    let cuts = |key, flag, value, line| cut(key, flag, value).applied(line);
    assert_eq!(
        cuts("lockwright b", "--quick", "", "lockwright a --quick && lockwright b | jq c"),
        "lockwright a --quick && lockwright b --quick | jq c"
    );
    assert_eq!(
        cuts("lockwright a --c", "--quick", "", "lockwright a --b && lockwright a --c -- ./x"),
        "lockwright a --b && lockwright a --c --quick -- ./x"
    );
    assert_eq!(
        cuts("lockwright a", "--time", "1s", "sudo lockwright a --time 5 -- ./x --time 3"),
        "sudo lockwright a --time 1s -- ./x --time 3"
    );
    assert_eq!(
        cuts("lockwright a", "--time", "1s", "lockwright a -- ./x --time 3"),
        "lockwright a --time 1s -- ./x --time 3"
    );
}

/// Whose examples run when no other does: while others work, a profile of the machine is soon refused.
pub(crate) const ALONE: &[&str] = &["lockwright sim --calibrate", "lockwright sim --validate"];

/// Examples whose exit code need not be 0.
pub(crate) const ENDS: &[(&str, &[i32], &str)] = &[
    ("lockwright explore mcs --mutant ", &[1], "it plants a fault, and finds it"),
    ("lockwright explore mcs --mutants", &[0, 1], "so few schedules may not find each fault"),
    ("lockwright reproduce libasl", &[0, 1], "short runs of one seed are too rough to be accepted"),
    ("lockwright reproduce all --format json", &[0, 1], "the same"),
    ("lockwright sim --validate", &[0, 1], "its help says that a bar may be missed"),
    ("--guard", &[0, 1], "whether it gets worse is up to the machine"),
];

/// What some machine doesn't allow, or not now. The exit code is 2 then. Examples after it in the same help rely on it, and may end with 2, too.
pub(crate) struct Refusal {
    pub(crate) key: &'static str,
    /// What the error says.
    pub(crate) says: &'static str,
    pub(crate) why: &'static str,
}

const fn refusal(key: &'static str, says: &'static str, why: &'static str) -> Refusal {
    Refusal { key, says, why }
}

const NO_TRACE: &str = "refused: we may not trace";

pub(crate) const MAY_BE_REFUSED: &[Refusal] = &[
    refusal(
        "lockwright profile --kernel",
        "error: cannot observe the kernel: ",
        "refused: the kernel can't be observed",
    ),
    refusal("lockwright attach", "may not stop", NO_TRACE),
    refusal("lockwright attach", "may not reach", NO_TRACE),
    refusal("lockwright attach", "seccomp", NO_TRACE),
    refusal("policy tag --cgroup", "can't be read", "there are no cgroups of version 2"),
    refusal(
        "lockwright sim --calibrate",
        "error: the measured profile is refused: ",
        "refused: other programs disturb the measurement",
    ),
];

/// Commands of ours that stand in for others.
pub(crate) const STAND_INS: &[(&str, &str, &str)] = &[
    ("sudo", "#!/bin/sh\nexec \"$@\"\n", "the tests have the rights already, or do without"),
    ("pidof", "#!/bin/sh\necho \"$SERVER_PID\"\n", "others may have a `server`"),
    ("man", "#!/bin/sh\nexec cat\n", "containers have none"),
    (
        "wrk",
        "#!/bin/bash\nport=${!#} port=${port##*:} port=${port%/}\n\
         exec 3<> /dev/tcp/localhost/$port && echo 'Requests/sec:    100.00'\n",
        "it may not be installed",
    ),
];
