//! The kernel's own verifier as a second opinion, and policies in the kernel.
//!
//! A policy is loaded as a program for tracepoints, whose context the kernel lets programs read as it lies. It is attached to none. The
//! kernel lacks some of our helpers: a kernel helper with the same signature stands in for each. So its verdict is about the same
//! instructions, though a program with such a helper could not run there.

#[cfg(test)]
mod agree;
mod call;
mod refusal;

pub use refusal::{Refusal, Why};

use crate::object::{HookCode, Insn, NamedMap, Object};
use crate::verify::Verified;
use call::{CreateMap, LoadProgram, Log};
use lockwright_contract::programs::helpers::{self, Helper};
use lockwright_contract::programs::maps::MapKind;
use lockwright_platform::hooks::Hook;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// What the kernel's verifier says of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelVerdict {
    /// The hook.
    pub hook: Hook,
    /// Why the kernel refuses it; `None`: it accepts it.
    pub refusal: Option<Refusal>,
}

/// Why the kernel says nothing about a policy.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// We may not load programs.
    #[error("the kernel lets only root load programs, or CAP_BPF with CAP_PERFMON")]
    Denied,
    /// The kernel loads no programs, or a container's filter hides that.
    #[error("this kernel has no bpf(2), or hides it")]
    Missing,
    /// It can't make this map.
    #[error("the kernel cannot make the map '{name}'")]
    Map {
        /// The map's name.
        name: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It fails for another reason than the program.
    #[error("the kernel cannot load a program")]
    Load(#[source] io::Error),
}

/// Asks the kernel about each hook of a policy. Ours has checked it before: the kernel takes seconds for a loop without end.
///
/// # Errors
/// The kernel says nothing, see [`Unavailable`].
pub fn check(policy: &Verified) -> Result<Vec<KernelVerdict>, Unavailable> {
    verdicts(policy.object())
}

fn verdicts(object: &Object) -> Result<Vec<KernelVerdict>, Unavailable> {
    let programs = Programs::of(object)?;
    let verdicts = programs
        .0
        .into_iter()
        .map(|(hook, outcome)| KernelVerdict { hook, refusal: outcome.err() });
    Ok(verdicts.collect())
}

/// May we load programs here?
///
/// # Errors
/// No, and why.
pub fn probe() -> Result<(), Unavailable> {
    // r0 = 0; exit
    let least = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    call::load(&LoadProgram::new(&least), None).map(drop).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Unavailable::Denied,
            Some(libc::ENOSYS) => Unavailable::Missing,
            _ => Unavailable::Load(error),
        }
    })
}

/// The helpers of ours that a hook calls and the kernel lacks.
pub fn foreign(hook: &HookCode) -> Vec<&'static Helper> {
    let mut found: Vec<&Helper> = Vec::new();
    for helper in calls(&hook.insns).filter_map(|insn| helpers::find(insn.imm.cast_unsigned())) {
        if helper.like != helper.id && !found.contains(&helper) {
            found.push(helper);
        }
    }
    found
}

/// A policy in the kernel, as long as this lives, or is [pinned](Self::pin).
#[derive(Debug)]
pub struct Programs(Vec<(Hook, Result<OwnedFd, Refusal>)>);

impl Programs {
    /// Loads each hook.
    ///
    /// # Errors
    /// The kernel says nothing, see [`Unavailable`].
    pub fn load(policy: &Verified) -> Result<Self, Unavailable> {
        Self::of(policy.object())
    }

    fn of(object: &Object) -> Result<Self, Unavailable> {
        probe()?;
        // The kernel keeps a map as long as a program that uses it.
        let maps = object.maps.iter().map(make).collect::<Result<Vec<OwnedFd>, _>>()?;
        let programs = object.hooks.iter().map(|hook| {
            let insns = translate(&hook.insns, &maps);
            load(&insns).map(|outcome| (hook.hook, outcome))
        });
        programs.collect::<Result<_, _>>().map(Self)
    }

    /// The hooks, each with the kernel's refusal, if it refuses.
    pub fn hooks(&self) -> impl Iterator<Item = (Hook, Result<(), &Refusal>)> {
        self.0.iter().map(|(hook, outcome)| (*hook, outcome.as_ref().map(drop)))
    }

    /// Gives the hook's program a name in a BPF file system, by which a kernel module finds it. False: there is no such hook, or the
    /// kernel refuses it.
    ///
    /// # Errors
    /// `path` exists, or isn't in a BPF file system.
    pub fn pin(&self, hook: Hook, path: &Path) -> io::Result<bool> {
        let program = self.0.iter().find(|(known, _)| *known == hook);
        match program {
            Some((_, Ok(program))) => call::pin(program, path).map(|()| true),
            _ => Ok(false),
        }
    }
}

fn calls(insns: &[Insn]) -> impl Iterator<Item = &Insn> {
    insns.iter().filter(|insn| insn.code == CALL && insn.src == 0)
}

/// Calls a helper.
const CALL: u8 = 0x85;
/// The first half of a load of 64 bits.
const LOAD64: u8 = 0x18;

/// Instructions as the kernel reads them: with its maps, and with its helpers.
fn translate(insns: &[Insn], maps: &[OwnedFd]) -> Vec<[u8; 8]> {
    let mut is_second = false; // half of a load of 64 bits
    let translated = insns.iter().map(|insn| {
        let mut imm = insn.imm;
        if insn.code == CALL && insn.src == 0 && !is_second {
            let helper = helpers::find(imm.cast_unsigned());
            imm = helper.map_or(imm, |helper| helper.like.cast_signed());
        }
        is_second = insn.code == LOAD64 && !is_second;
        if is_second && matches!(insn.src, 1 | 2) {
            let map = usize::try_from(imm).ok().and_then(|number| maps.get(number));
            imm = map.map_or(-1, AsRawFd::as_raw_fd);
        }
        let ([low, high], [a, b, c, d]) = (insn.off.to_ne_bytes(), imm.to_ne_bytes());
        let registers = if cfg!(target_endian = "little") {
            insn.src << 4 | insn.dst
        } else {
            insn.dst << 4 | insn.src
        };
        [insn.code, registers, low, high, a, b, c, d]
    });
    translated.collect()
}

/// A map like this one.
fn make(map: &NamedMap) -> Result<OwnedFd, Unavailable> {
    let failed = |source| Unavailable::Map { name: map.name.clone(), source };
    let mut entries = map.spec.max_entries;
    if map.spec.kind == MapKind::Ring {
        // The kernel's are pages, and a power of two.
        entries = entries.max(call::page()).checked_next_power_of_two().unwrap_or(entries);
    }
    let create = CreateMap {
        kind: map.spec.kind as u32,
        key_size: if map.spec.kind == MapKind::Ring { 0 } else { map.spec.key_size },
        value_size: map.spec.value_size,
        max_entries: entries,
        flags: 0,
    };
    let made = call::create(&create).map_err(failed)?;
    if !map.initial.is_empty() {
        let mut value = map.initial.clone();
        value.resize(map.spec.value_size as usize, 0);
        call::update(&made, &0u32.to_ne_bytes(), &value).map_err(failed)?;
    }
    Ok(made)
}

/// Loads a program, or says why the kernel refuses it.
fn load(insns: &[[u8; 8]]) -> Result<Result<OwnedFd, Refusal>, Unavailable> {
    let program = LoadProgram::new(insns);
    let error = match call::load(&program, None) {
        Ok(loaded) => return Ok(Ok(loaded)),
        Err(error) => error,
    };
    match error.raw_os_error() {
        // These are what a program may deserve.
        Some(
            libc::EACCES | libc::EINVAL | libc::EPERM | libc::E2BIG | libc::EFAULT | libc::ENOTSUP
            // ENOTSUPP, which only the kernel knows.
            | 524,
        ) => {}
        _ => return Err(Unavailable::Load(error)),
    }
    // Only now with a log, since most programs are accepted, and a log takes time. A kernel may find the log's memory too small for all
    // that it says; then it fails with ENOSPC, and has written the beginning.
    let mut log = Log::default();
    let _ = call::load(&program, Some(&mut log));
    Ok(Err(Refusal::new(error, &log.text())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_contract::programs::maps::MapSpec;

    fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
        Insn { code, dst, src, off, imm }
    }

    const EXIT: Insn = Insn { code: 0x95, dst: 0, src: 0, off: 0, imm: 0 };

    fn object(insns: Vec<Insn>, maps: Vec<NamedMap>) -> Object {
        Object { hooks: vec![HookCode { hook: Hook::CmpNode, insns, lines: Vec::new() }], maps }
    }

    /// The verdict on a single hook, or nothing where we may not ask.
    fn verdict(insns: Vec<Insn>, maps: Vec<NamedMap>) -> Option<Option<Refusal>> {
        match verdicts(&object(insns, maps)) {
            Ok(verdicts) => Some(verdicts.into_iter().next().unwrap().refusal),
            Err(Unavailable::Denied | Unavailable::Missing) => {
                println!("skipped: we may not load programs here");
                None
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    #[test]
    fn the_kernel_accepts_what_reads_the_context_and_calls_our_helpers() {
        // r0 = ctx->curr.core_class; r1 = 1; call lw_log2; exit
        let insns = vec![
            insn(0x61, 0, 1, 220, 0),
            insn(0xb7, 1, 0, 0, 1),
            insn(CALL, 0, 0, 0, 0x10002),
            EXIT,
        ];
        let foreign: Vec<_> = foreign(&object(insns.clone(), Vec::new()).hooks[0])
            .iter()
            .map(|one| one.name)
            .collect();
        assert_eq!(foreign, ["lw_log2"]);
        if let Some(refusal) = verdict(insns, Vec::new()) {
            assert_eq!(refusal, None);
        }
    }

    #[test]
    fn the_kernel_reaches_maps_and_their_first_values() {
        let spec = |kind, key_size, value_size, max_entries| MapSpec {
            kind,
            key_size,
            value_size,
            max_entries,
        };
        let map = |name: &str, spec, initial: &[u8]| NamedMap {
            name: name.into(),
            spec,
            initial: initial.to_vec(),
            constants: Vec::new(),
        };
        let maps = vec![
            map("seen", spec(MapKind::Hash, 8, 16, 64), &[]),
            map(".data", spec(MapKind::Array, 4, 12, 1), &[1, 2, 3]),
            map("ring", spec(MapKind::Ring, 0, 0, 1000), &[]),
        ];
        let insns = vec![
            insn(0x7a, 10, 0, -8, 7), // *(u64 *)(r10 - 8) = 7
            insn(LOAD64, 1, 1, 0, 0), // r1 = seen
            insn(0, 0, 0, 0, 0),
            insn(0xbf, 2, 10, 0, 0), // r2 = r10 - 8
            insn(0x07, 2, 0, 0, -8),
            insn(CALL, 0, 0, 0, 0x10004), // r0 = lw_storage(r1, r2)
            insn(0x55, 0, 0, 2, 0),       // if r0 != 0 goto
            insn(0xb7, 0, 0, 0, 0),
            EXIT,
            insn(LOAD64, 2, 2, 0, 1), // r2 = &.data[8]
            insn(0, 0, 0, 0, 8),
            insn(0x61, 2, 2, 0, 0), // r2 = *(u32 *)r2
            insn(0x7b, 0, 2, 8, 0), // *(u64 *)(r0 + 8) = r2
            insn(0xb7, 0, 0, 0, 1),
            EXIT,
        ];
        if let Some(refusal) = verdict(insns, maps) {
            assert_eq!(refusal, None);
        }
    }

    #[test]
    fn a_refusal_says_why_in_the_kernels_words() {
        let cases = [
            (vec![insn(0xbf, 0, 6, 0, 0), EXIT], Why::Uninitialised, "R6 !read_ok"),
            (
                vec![insn(0xb7, 0, 0, 0, 0), EXIT, insn(0xb7, 0, 0, 0, 1), EXIT],
                Why::DeadCode,
                "unreachable insn 2",
            ),
            (
                vec![insn(0x7a, 1, 0, 8, 7), insn(0xb7, 0, 0, 0, 0), EXIT],
                Why::Context,
                "invalid bpf_context access",
            ),
            (vec![insn(0xb7, 0, 0, 7, 0), EXIT], Why::ReservedFields, "reserved fields"),
        ];
        for (insns, why, words) in cases {
            let Some(refusal) = verdict(insns, Vec::new()) else { return };
            let refusal = refusal.unwrap();
            assert_eq!(refusal.why, why, "{refusal:?}");
            assert!(
                refusal.reason.contains(words) && refusal.log.contains(&refusal.reason),
                "{refusal:?}"
            );
        }
    }
}
