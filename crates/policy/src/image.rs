//! A policy as a process maps it: its code behind a header, and its maps' memory.

use crate::jit::{self, CantCompile, compile};
use crate::maps::{MapError, Maps};
use crate::object::Object;
use crate::verify::Verified;
use lockwright_contract::programs::image::{Architecture, ImageHeader, LARGEST, MAGIC, NAME};
use lockwright_platform::hooks::{Hook, READS};

/// A hook's code begins at a multiple of this: a line of the cache.
const ALIGNMENT: usize = 64;

/// A policy, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The [header](ImageHeader), and the hooks' code.
    pub code: Vec<u8>,
    /// The maps, with their first values.
    pub data: Vec<u8>,
}

/// Why there is no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// A map can't be.
    #[error(transparent)]
    Map(#[from] MapError),
    /// A hook was not compiled.
    #[error("{}: {why}", hook.name())]
    Hook {
        /// The hook.
        hook: Hook,
        /// Why.
        why: CantCompile,
    },
    /// No compiler is there.
    #[error(transparent)]
    Machine(CantCompile),
    /// The code is too large.
    #[error("the code has {0} bytes; a process takes {LARGEST} at most")]
    Large(usize),
    /// The name is too long.
    #[error("the name '{0}' has more than {NAME} bytes")]
    Name(String),
}

/// How many rows per-CPU arrays get in a process of this machine: one for each CPU that may ever be there.
pub fn rows() -> u32 {
    // SAFETY: no more than a call.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    u32::try_from(cpus).unwrap_or(1).max(1).next_power_of_two()
}

/// Compiles a policy for processes of this machine. `version`: how often it has been stored under this name; 0: never.
///
/// # Errors
/// This machine has no compiler, the code is too large, or the name too long.
pub fn build(verified: &Verified, name: &str, version: u32) -> Result<Image, ImageError> {
    let object = verified.object();
    let maps = Maps::new(&object.maps, rows())?;
    let depths: Vec<_> = verified.reports().iter().map(|report| report.stack).collect();
    let code = assemble(object, &maps, &depths, verified.hooks(), (name, version))?;
    Ok(Image { code, data: maps.bytes() })
}

/// Puts code and header together. `depths`: how many bytes of its stack each hook uses, as they stand in the object. `hooks`: as
/// [`Verified::hooks`] says.
pub(crate) fn assemble(
    object: &Object,
    maps: &Maps,
    depths: &[usize],
    hooks: u32,
    (name, version): (&str, u32),
) -> Result<Vec<u8>, ImageError> {
    let machine = jit::HERE.ok_or(ImageError::Machine(CantCompile::Machine))?;
    if name.len() > NAME {
        return Err(ImageError::Name(name.to_owned()));
    }
    let mut header = ImageHeader {
        magic: MAGIC,
        machine: machine as u32,
        len: 0,
        data_len: maps.size() as u64,
        hooks: [0; Hook::ALL.len()],
        maps: maps.len() as u32,
        version,
        reads: hooks & READS,
        unused: 0,
        name: [0; NAME],
    };
    header.name[..name.len()].copy_from_slice(name.as_bytes());
    let mut code = vec![0; size_of::<ImageHeader>()];
    for (hook, depth) in object.hooks.iter().zip(depths) {
        code.resize(code.len().next_multiple_of(ALIGNMENT), padding(machine));
        header.hooks[hook.hook as usize] = code.len() as u32;
        let compiled = compile(machine, hook, maps, *depth);
        code.extend(compiled.map_err(|why| ImageError::Hook { hook: hook.hook, why })?);
    }
    if code.len() > LARGEST {
        return Err(ImageError::Large(code.len()));
    }
    header.len = code.len() as u32;
    // SAFETY: the header has no padding, and any of its bytes may be read.
    let bytes = unsafe {
        std::slice::from_raw_parts((&raw const header).cast::<u8>(), size_of::<ImageHeader>())
    };
    code[..bytes.len()].copy_from_slice(bytes);
    Ok(code)
}

/// What no jump reaches, and what stops whoever does.
fn padding(machine: Architecture) -> u8 {
    match machine {
        Architecture::X86_64 => 0xcc,  // int3
        Architecture::Aarch64 => 0x00, // udf
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jit::HERE;
    use crate::op::Op;
    use crate::testing::*;
    use crate::verify::verify;
    use lockwright_contract::programs::maps::{MapKind, View};
    use std::mem::offset_of;

    fn policy() -> Verified {
        let mut map = named(".data", MapKind::Array, 4, 8, 1);
        map.initial = vec![1, 2, 3, 4, 5, 6, 7, 8];
        let maps = [map, named("cpus", MapKind::PerCpuArray, 4, 8, 3)];
        let ops = [value(1, 0), load(1, 0, 1, 0), mov(0, 0), Op::Exit];
        let mut object = object(Hook::CmpNode, &ops, &maps);
        object
            .hooks
            .extend(crate::testing::object(Hook::LockRelease, &[mov(0, 0), Op::Exit], &[]).hooks);
        verify(object).unwrap()
    }

    #[test]
    fn an_image_says_what_it_is() {
        let Some(machine) = HERE else {
            let error = build(&policy(), "mine", 3).unwrap_err();
            assert_eq!(error, ImageError::Machine(CantCompile::Machine));
            return;
        };
        let Image { code, data } = build(&policy(), "mine", 3).unwrap();
        let word = |at: usize| u32::from_ne_bytes(code[at..at + 4].try_into().unwrap());
        assert_eq!(code[..8], MAGIC.to_ne_bytes());
        assert_eq!(word(offset_of!(ImageHeader, machine)), machine as u32);
        assert_eq!(word(offset_of!(ImageHeader, len)) as usize, code.len());
        assert_eq!(word(offset_of!(ImageHeader, data_len)) as usize, data.len());
        assert_eq!(word(offset_of!(ImageHeader, maps)), 2);
        assert_eq!(word(offset_of!(ImageHeader, version)), 3);
        let name = &code[offset_of!(ImageHeader, name)..][..NAME];
        assert!(name.starts_with(b"mine\0") && name[4..].iter().all(|byte| *byte == 0));
        let hooks = offset_of!(ImageHeader, hooks);
        let places: Vec<usize> = (0..8).map(|hook| word(hooks + 4 * hook) as usize).collect();
        let used: Vec<usize> = places.iter().copied().filter(|at| *at > 0).collect();
        assert_eq!(used, [places[Hook::CmpNode as usize], places[Hook::LockRelease as usize]]);
        assert!(used.iter().all(|at| at % ALIGNMENT == 0 && *at < code.len()));
    }

    #[test]
    fn data_begins_as_the_object_says() {
        if HERE.is_none() {
            return;
        }
        let data = build(&policy(), "", 0).unwrap().data;
        let views: Vec<View> = View::all(&data).collect();
        assert_eq!(views[0].value(0, 0), Some(&[1, 2, 3, 4, 5, 6, 7, 8][..]));
        assert_eq!(views[1].value(2, 0), Some(&[0; 8][..]));
        assert_eq!(views[1].rows, rows() as usize);
        assert_eq!([views[0].name(), views[1].name()], [&b".data"[..], b"cpus"]);
        assert!(rows().is_power_of_two());
    }

    #[test]
    fn a_name_may_be_too_long() {
        if HERE.is_none() {
            return;
        }
        let long = "x".repeat(NAME + 1);
        assert_eq!(build(&policy(), &long, 0), Err(ImageError::Name(long.clone())));
        assert!(build(&policy(), &long[1..], 0).is_ok());
    }
}
