//! `include/lockwright_policy.h` says what the crates say: layouts, answers, helpers.

use lockwright_contract::programs::helpers;
use lockwright_contract::programs::maps::MapKind;
use lockwright_platform::hooks::{self, Context, Hook, Node};
use lockwright_tests::{compile, source_dir};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

fn include() -> PathBuf {
    source_dir().join("../include")
}

fn size_of_field<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// For each field that Rust has, an assertion in C. Doesn't compile if a field is missing here.
macro_rules! layout {
    ($type:ident, $c:literal: $($field:ident)*) => {{
        let $type { $($field: _),* } = $type::default();
        let mut asserts = format!(
            "_Static_assert(sizeof(struct {0}) == {1}, \"{0}\");\n", $c, size_of::<$type>()
        );
        $(
            let (name, offset) = (stringify!($field), std::mem::offset_of!($type, $field));
            let size = size_of_field(|it: &$type| &it.$field);
            let c = $c;
            let _ = writeln!(
                asserts,
                "_Static_assert(offsetof(struct {c}, {name}) == {offset}, \"{name}\");\n\
                 _Static_assert(sizeof(((struct {c} *)0)->{name}) == {size}, \"size of {name}\");"
            );
        )*
        asserts
    }};
}

#[test]
fn layouts_and_numbers_are_those_of_the_crates() {
    let mut source = String::from("#include <stddef.h>\n#include \"lockwright_policy.h\"\n");
    source += &layout!(Node, "lw_node": tid cpu numa core_class prio flags speed passed wait_ns cs_ns cs_total_ns held_locks
        window_ns slo_ns tag);
    source += &layout!(Context, "lw_ctx": reserved lock_id lock_kind round batch nwaiters now_ns avg_cs_ns own best curr);
    for (name, value) in [
        ("LW_ASLEEP", hooks::ASLEEP.into()),
        ("LW_OFF_CPU", hooks::OFF_CPU.into()),
        ("LW_IN_EPOCH", hooks::IN_EPOCH.into()),
        ("LW_READER", hooks::READER.into()),
        // The last answer of each hook is the largest.
        ("LW_GROUP", Hook::CmpNode.largest()),
        ("LW_BOOST", Hook::ScheduleWaiter.largest()),
        ("LW_LONGEST_NS", Hook::LockContended.largest()),
        ("LW_NOT_FOR_IT", Hook::RwBias.largest()),
        ("LW_HASH", MapKind::Hash as u64),
        ("LW_ARRAY", MapKind::Array as u64),
        ("LW_PERCPU_ARRAY", MapKind::PerCpuArray as u64),
        ("LW_RINGBUF", MapKind::Ring as u64),
    ] {
        let _ = writeln!(source, "_Static_assert({name} == {value}, \"{name}\");");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (c, object) = (folder.path().join("layout.c"), folder.path().join("layout.o"));
    fs::write(&c, source).expect("a file");
    let include = include();
    compile(&c, &object, &["-c", "-I", include.to_str().expect("UTF-8")]).unwrap();
}

/// The helpers in the header: name, number, and how many arguments they have.
fn declared(header: &str) -> Vec<(String, u32, usize)> {
    let mut found = Vec::new();
    for line in header.lines() {
        let Some((_, rest)) = line.split_once("(*const ") else { continue };
        let (name, rest) = rest.split_once(")(").expect("a list of arguments");
        let (args, rest) = rest.split_once(") = (void *)").expect("a number");
        let number = rest.split(';').next().expect("a number");
        let number = match number.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => number.parse(),
        };
        let count = if args == "void" { 0 } else { args.split(',').count() };
        found.push((name.to_owned(), number.expect("a number"), count));
    }
    found
}

#[test]
fn helpers_are_those_of_the_crates() {
    let header = fs::read_to_string(include().join("lockwright_policy.h")).expect("the header");
    let ours: Vec<_> =
        helpers::ALL.iter().map(|h| (h.name.to_owned(), h.id, h.args.len())).collect();
    assert_eq!(declared(&header), ours);
}
