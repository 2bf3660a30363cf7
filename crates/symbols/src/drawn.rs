//! Files that no compiler writes, but that a process may map: those of one, with drawn bytes here and there.

use crate::{AddressSpace, Mapping, Registers, Symboliser, Unwinder};
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

/// A small library, as its compiler wrote it.
static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("a.c"), folder.path().join("a.so"));
    let text = "int counts[9]; __thread int own; static inline int twice(int a) { return a * 2; }\n\
                int work(int a) { counts[a] = twice(a); own = a; return counts[1] + twice(counts[2]); }\n\
                void put(int a) { work(a); } int leave(int a) { return work(a + 1); }\n";
    fs::write(&source, text).unwrap();
    let flags = ["-g", "-O2", "-shared", "-fPIC", "-Wl,--compress-debug-sections=zlib", "-o"];
    let status = Command::new("cc").args(flags).args([&object, &source]).status().unwrap();
    assert!(status.success());
    fs::read(object).unwrap()
});

/// Asks everything about a file that is mapped.
fn ask(path: PathBuf, length: u64) {
    const START: u64 = 0x7f00_0000_0000;
    let mapping = |at: u64, is_code| Mapping {
        start: START + at,
        end: START + at + 0x1000,
        offset: at,
        path: path.clone(),
        is_code,
        is_writable: !is_code,
        is_deleted: false,
        build_id: None,
    };
    let pages = length.div_ceil(0x1000);
    let mappings = (0..pages).map(|page| mapping(page * 0x1000, page == 1)).collect();
    let space = AddressSpace { pid: 0, mappings, threads: Vec::new() };
    let mut symbols = Symboliser::new(space.clone());
    for at in (START..START + pages * 0x1000).step_by(0x35) {
        symbols.code(at);
        symbols.data(at);
        symbols.call_site(at, |name| name == "work");
        symbols.calls(at, at ^ 0x40);
        symbols.function_start(at);
    }
    let mut unwinder = Unwinder::new(&mut symbols);
    let stack: Vec<u8> = (START..START + 0x2000).step_by(0x95).flat_map(u64::to_ne_bytes).collect();
    for at in (START + 0x1000..START + 0x1100).step_by(7) {
        for stack_at in [START, u64::MAX - 64, 0] {
            let registers = Registers { instruction: at, stack: stack_at, frame: None, link: at };
            unwinder.copied(&space, registers, &stack);
        }
        unwinder.return_slot(at);
    }
}

proptest! {
    // Each takes some milliseconds, and a smaller one says no more.
    #![proptest_config({
        let usual = ProptestConfig::default();
        ProptestConfig { cases: usual.cases / 4, max_shrink_iters: 0, ..usual }
    })]
    #[test]
    fn any_file_is_read(changes in prop::collection::vec((any::<u32>(), any::<u64>(), 0..9_usize), 0..24), cut in any::<u32>()) {
        let mut bytes = WHOLE.clone();
        let many = bytes.len();
        for (at, word, length) in changes {
            // Half of them in the header and in the tables of sections and segments.
            let sections = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize % many;
            let at = match at % 4 {
                0 => at as usize / 4 % 0x300,
                1 => sections + at as usize / 4 % (many - sections),
                _ => at as usize / 4,
            } % many;
            let end = (at + length.min(8)).min(many);
            bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
        }
        if cut % 8 == 0 {
            bytes.truncate(cut as usize / 8 % many);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.so");
        fs::write(&path, bytes).unwrap();
        ask(path, many as u64);
    }
}
