//! Object files: what is read, what is refused, and that nothing in a file can bring the reader down.

use lockwright_contract::programs::maps::{MapKind, MapSpec};
use lockwright_platform::hooks::Hook;
use lockwright_policy::object::{Object, ObjectError};
use lockwright_policy::verify::{Fault, LONGEST, verify};

const GOOD: &[u8] = include_bytes!("objects/good.bpf.o");
const BAD: &[u8] = include_bytes!("objects/bad.bpf.o");
const CALLS: &[u8] = include_bytes!("objects/calls.bpf.o");

/// The file with each occurrence of some bytes replaced by as many others.
fn patched(file: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut file = file.to_vec();
    let places: Vec<_> =
        (0..file.len() - from.len()).filter(|at| file[*at..].starts_with(from)).collect();
    assert!(!places.is_empty(), "{}", String::from_utf8_lossy(from));
    for at in places {
        file[at..at + to.len()].copy_from_slice(to);
    }
    file
}

fn refused(file: &[u8]) -> String {
    Object::read(file).unwrap_err().to_string()
}

#[test]
fn an_object_is_read_as_its_source_says() {
    let object = Object::read(GOOD).unwrap();
    let hooks: Vec<_> = object.hooks.iter().map(|code| code.hook.name()).collect();
    assert_eq!(hooks, ["cmp_node", "schedule_waiter", "lock_contended", "lock_acquired"]);
    let maps: Vec<_> = object.maps.iter().map(|map| map.name.as_str()).collect();
    assert_eq!(maps[..3], ["threads", "ring", "counts"]);
    let spec = |name: &str| object.maps.iter().find(|map| map.name == name).unwrap().clone();
    let threads = MapSpec { kind: MapKind::Hash, key_size: 8, value_size: 24, max_entries: 1024 };
    assert_eq!(spec("threads").spec, threads);
    let counts =
        MapSpec { kind: MapKind::PerCpuArray, key_size: 4, value_size: 64, max_entries: 2 };
    assert_eq!(spec("counts").spec, counts);
    let ring = MapSpec { kind: MapKind::Ring, key_size: 0, value_size: 0, max_entries: 4096 };
    assert_eq!(spec("ring").spec, ring);
    let variables = MapSpec { kind: MapKind::Array, key_size: 4, value_size: 40, max_entries: 1 };
    assert_eq!((spec(".bss").spec, spec(".bss").initial), (variables, vec![0; 40]));
    assert_eq!(spec(".data").initial, 7_u32.to_le_bytes());
    assert_eq!(spec(".rodata").initial.len(), 16);
    let code = object.hook(Hook::CmpNode).unwrap();
    assert_eq!(code.line(4).unwrap().number, 39, "a line without a number is none");
    assert_eq!(code.line(0).unwrap().to_string(), "good.bpf.c:37: LW_HOOK(cmp_node)");
    assert_eq!(code.line(code.insns.len() - 1).unwrap().text.trim(), "}");
    // A load of a variable's address: the map, and where the variable lies in it.
    let addresses: Vec<_> =
        code.insns.windows(2).filter(|pair| pair[0].src == 2 && pair[0].code == 0x18).collect();
    assert!(
        addresses
            .iter()
            .any(|pair| { object.maps[pair[0].imm as usize].name == ".bss" && pair[1].imm == 8 })
    );
}

#[test]
fn a_good_object_is_accepted_with_a_report() {
    let verified = verify(Object::read(GOOD).unwrap()).unwrap();
    let [cmp_node, schedule_waiter, ..] = verified.reports() else { panic!("two hooks at least") };
    assert_eq!((cmp_node.hook, cmp_node.insns, cmp_node.longest), (Hook::CmpNode, 45, 40));
    assert_eq!((cmp_node.stack, cmp_node.maps.len()), (8, 4));
    assert_eq!(cmp_node.helpers.iter().map(|one| one.name).collect::<Vec<_>>(), ["lw_lookup"]);
    assert_eq!((schedule_waiter.longest, schedule_waiter.stack), (83, 0));
    assert_eq!(verified.object(), &Object::read(GOOD).unwrap());
}

#[test]
fn complaints_name_line_register_range_and_remedy() {
    let rejected = verify(Object::read(BAD).unwrap()).unwrap_err();
    let text = rejected.to_string();
    assert_eq!(text + "\n", include_str!("objects/bad.txt"));
    assert!(rejected.to_string().lines().all(|line| line.chars().count() <= 80), "{rejected}");
    let faults: Vec<_> = rejected.complaints().iter().map(|complaint| complaint.fault).collect();
    let expected = [
        Fault::Null,
        Fault::Arithmetic,
        Fault::Answer,
        Fault::Endless,
        Fault::Answer,
        Fault::Arithmetic,
        Fault::ReadOnly,
        Fault::Leak,
    ];
    assert_eq!(faults, expected);
}

#[test]
fn what_is_no_policy_is_refused_with_a_reason() {
    let no_elf = refused(b"int main(void) { return 0; }");
    assert!(no_elf.starts_with("this isn't an object file: ") && no_elf.contains("\nhint: clang "));
    assert!(refused(b"").starts_with("this isn't an object file"));
    let here = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let other = Object::read(&here[..here.len().min(8 << 20)]);
    assert!(matches!(other, Err(ObjectError::OtherMachine(_) | ObjectError::NoElf(_))));
    let mut other = GOOD.to_vec();
    other[18] = 62;
    assert!(refused(&other).starts_with("the object was compiled for x86_64, not for eBPF\n"));
    let far = patched(GOOD, b"tp/lockwright/cmp_node", b"kprobe/do_sys_openat2x");
    assert_eq!(
        refused(&far).lines().next().unwrap(),
        "section 'kprobe/do_sys_openat2x' isn't a hook"
    );
    assert!(refused(&far).contains("\nhint: the hooks are cmp_node, skip_shuffle, "));
    let near = patched(GOOD, b"tp/lockwright/cmp_node", b"tp/lockwright/cmp_nade");
    assert_eq!(
        refused(&near),
        "section 'tp/lockwright/cmp_nade' isn't a hook\nhint: is 'tp/lockwright/cmp_node' meant?"
    );
    let twice = patched(GOOD, b"tp/lockwright/lock_contended", b"tp/lockwright/lock_acquired\0");
    assert!(refused(&twice).starts_with("lock_acquired has 2 functions, and needs one\nhint: "));
    let calls = refused(CALLS);
    assert_eq!(
        calls,
        "cmp_node calls the function 'score', and hooks may only call helpers\n  \
         at calls.bpf.c:15: return score(ctx->curr.wait_ns) + score(ctx->best.wait_ns);\n\
         hint: declare it: static inline __attribute__((always_inline))"
    );
    let untyped = patched(GOOD, b".BTF\0", b".BTG\0");
    assert!(refused(&untyped).contains("\nhint: compile it with -g"));
    let unmapped = patched(GOOD, b".maps\0", b".mops\0");
    assert!(refused(&unmapped).contains("uses 'threads', which is neither a map nor a variable"));
}

/// The object with another number in `__uint(name, number)`: BTF has it as the length of an array of `int`s.
fn with_number(from: u32, to: u32) -> Result<Object, ObjectError> {
    let array = |count: u32| {
        let [int, index] = [2_u32, 4].map(u32::to_le_bytes);
        [int, index, count.to_le_bytes()].concat()
    };
    Object::read(&patched(GOOD, &array(from), &array(to)))
}

#[test]
fn maps_have_limits() {
    let refused = |from: u32, to: u32| {
        let text = with_number(from, to).err().map_or(String::new(), |error| error.to_string());
        text.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(with_number(1024, 1024), Object::read(GOOD));
    assert_eq!(refused(1024, 0), "map 'threads': max_entries is 0");
    let large = refused(1024, u32::MAX);
    assert!(
        large.starts_with("the maps need ") && large.contains("; a policy may have "),
        "{large}"
    );
    assert_eq!(
        refused(4096, 4097),
        "map 'ring': a ring of 4097 bytes: a power of two, at least 4096"
    );
    assert_eq!(
        refused(27, 28),
        "map 'ring': type 28 is none of LW_HASH, LW_ARRAY, LW_PERCPU_ARRAY, LW_RINGBUF"
    );
}

fn u32_at(file: &[u8], at: usize) -> usize {
    u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize
}

fn put(file: &mut [u8], at: usize, number: usize) {
    file[at..at + 4].copy_from_slice(&u32::try_from(number).unwrap().to_le_bytes());
}

/// Where the headers of the sections are, and how many.
fn headers(file: &[u8]) -> (usize, usize) {
    (u32_at(file, 0x28), u32_at(file, 0x3c) & 0xffff)
}

/// The header of this section.
fn header(file: &[u8], name: &str) -> usize {
    let (table, count) = headers(file);
    let names = u32_at(file, table + 64 * (u32_at(file, 0x3c) >> 16) + 0x18);
    let is_it = |header: &usize| {
        file[names + u32_at(file, *header)..].starts_with(format!("{name}\0").as_bytes())
    };
    (0..count).map(|number| table + 64 * number).find(is_it).unwrap()
}

/// A section's bytes.
fn section<'a>(file: &'a [u8], name: &str) -> &'a [u8] {
    let header = header(file, name);
    &file[u32_at(file, header + 0x18)..][..u32_at(file, header + 0x20)]
}

/// The file with other bytes in this section.
fn with_section(mut file: Vec<u8>, name: &str, bytes: &[u8]) -> Vec<u8> {
    let header = header(&file, name);
    let at = file.len();
    put(&mut file, header + 0x18, at);
    put(&mut file, header + 0x20, bytes.len());
    file.extend(bytes);
    file
}

/// A good object, in which each of many lines names one long string.
fn with_long_lines(lines: u32, long: usize) -> Vec<u8> {
    let mut btf = section(GOOD, ".BTF").to_vec();
    let strings = u32_at(&btf, 4) + u32_at(&btf, 16);
    assert_eq!(strings + u32_at(&btf, 20), btf.len(), "strings come last");
    let place = btf.len() - strings;
    btf.extend(vec![b'x'; long]);
    btf.push(0);
    let len = btf.len() - strings;
    put(&mut btf, 20, len);
    let name = b"tp/lockwright/cmp_node\0";
    let name = btf[strings..].windows(name.len()).position(|bytes| bytes == name).unwrap();
    let mut ext = section(GOOD, ".BTF.ext").to_vec();
    let (lines_at, before) = (ext.len(), u32_at(&ext, 4));
    for word in [16, name as u32, lines] {
        ext.extend(word.to_le_bytes());
    }
    for line in 0..lines {
        for word in [8 * line, place as u32, place as u32, 7 << 10] {
            ext.extend(word.to_le_bytes());
        }
    }
    let len = ext.len() - lines_at;
    put(&mut ext, 16, lines_at - before);
    put(&mut ext, 20, len);
    with_section(with_section(GOOD.to_vec(), ".BTF", &btf), ".BTF.ext", &ext)
}

#[test]
fn lines_take_no_more_memory_than_a_hook_may_have() {
    let object = Object::read(&with_long_lines(20_000, 8000)).unwrap();
    let lines = &object.hook(Hook::CmpNode).unwrap().lines;
    assert_eq!(lines.len(), LONGEST + 1);
    assert!(lines.iter().all(|line| line.text == "x".repeat(1024)));
    // Short ones are whole.
    let object = Object::read(&with_long_lines(3, 1000)).unwrap();
    let lines = &object.hook(Hook::CmpNode).unwrap().lines;
    assert!(lines.len() == 3 && lines.iter().all(|line| line.text == "x".repeat(1000)));
}

#[test]
fn sections_have_limits() {
    let with = |count: usize| {
        let (table, has) = headers(GOOD);
        let mut file = GOOD.to_vec();
        let at = file.len().next_multiple_of(8);
        file.resize(at, 0);
        put(&mut file, 0x28, at);
        file.extend(&GOOD[table..table + 64 * has]);
        let another = header(GOOD, ".BTF");
        file.extend(GOOD[another..another + 64].repeat(count));
        file[0x3c..0x3e].copy_from_slice(&u16::try_from(has + count).unwrap().to_le_bytes());
        file
    };
    assert_eq!(Object::read(&with(100)), Object::read(GOOD));
    assert!(refused(&with(2000)).starts_with("the object is damaged: it has too many sections\n"));
    let names = section(GOOD, ".strtab");
    let mut long = names.to_vec();
    long.extend([b'x'; 300]);
    long.push(0);
    let mut file = with_section(GOOD.to_vec(), ".strtab", &long);
    let unused = header(&file, ".BTF.ext");
    put(&mut file, unused, names.len());
    assert!(refused(&file).starts_with("the object is damaged: a section's name is too long\n"));
}

/// Pseudorandom numbers, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

/// Of those that this draws, the first 100,000 have passed: 45,887 were read, 34,971 accepted.
const DAMAGED: usize = 1500;

#[test]
fn damaged_objects_are_refused_or_read_but_never_bring_it_down() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let (mut read, mut accepted) = (0, 0);
    for _ in 0..DAMAGED {
        let mut file = GOOD.to_vec();
        for _ in 0..1 + random.below(4) {
            let at = random.below(file.len());
            match random.below(5) {
                0 => file.truncate(at.max(64)),
                1 => file[at] ^= 1 << random.below(8),
                2 => {
                    let edge = [0, 0xff, 0x7f, 0x80, 1, 4, 8][random.below(7)];
                    file[at] = edge;
                }
                3 => {
                    let end = (at + 4).min(file.len());
                    file[at..end].fill([0, 0xff][random.below(2)]);
                }
                _ => {
                    let from = random.below(file.len());
                    let len = random.below(16).min(file.len() - at.max(from));
                    file.copy_within(from..from + len, at);
                }
            }
        }
        if let Ok(object) = Object::read(&file) {
            read += 1;
            accepted += usize::from(verify(object).is_ok());
        }
    }
    println!("{DAMAGED} damaged objects: {read} were read, {accepted} accepted");
    assert!(read > DAMAGED / 10 && read < DAMAGED * 9 / 10, "{read} of {DAMAGED} were read");
}

#[test]
fn what_we_ship_is_accepted() {
    for policy in lockwright_policy::shipped::shipped() {
        let object =
            Object::read(policy.object).unwrap_or_else(|bad| panic!("{}: {bad}", policy.name));
        match verify(object) {
            Ok(verified) => {
                for report in verified.reports() {
                    println!("{} {} {}", policy.name, report.hook.name(), report.longest);
                }
            }
            Err(rejected) => panic!("{}: {rejected}", policy.name),
        }
    }
}
