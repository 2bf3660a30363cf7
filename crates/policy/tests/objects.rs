//! Object files: what is read, what is refused, and that nothing in a file can bring the reader down.

use lockwright_platform::hooks::Hook;
use lockwright_policy::object::{Object, ObjectError};
use lockwright_policy::verify::{Fault, verify};
use lockwright_programs::maps::{MapKind, MapSpec};

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
    assert!(no_elf.starts_with("this is no object file: ") && no_elf.contains("\nhint: clang "));
    assert!(refused(b"").starts_with("this is no object file"));
    let here = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let other = Object::read(&here[..here.len().min(8 << 20)]);
    assert!(matches!(other, Err(ObjectError::OtherMachine(_) | ObjectError::NoElf(_))));
    let mut other = GOOD.to_vec();
    other[18] = 62;
    assert!(refused(&other).starts_with("the object was compiled for x86_64, not for eBPF\n"));
    let far = patched(GOOD, b"tp/lockwright/cmp_node", b"kprobe/do_sys_openat2x");
    assert_eq!(
        refused(&far).lines().next().unwrap(),
        "section 'kprobe/do_sys_openat2x' is no hook"
    );
    assert!(refused(&far).contains("\nhint: the hooks are cmp_node, skip_shuffle, "));
    let near = patched(GOOD, b"tp/lockwright/cmp_node", b"tp/lockwright/cmp_nade");
    assert_eq!(
        refused(&near),
        "section 'tp/lockwright/cmp_nade' is no hook\nhint: is 'tp/lockwright/cmp_node' meant?"
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

/// A hundred thousand have passed.
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
