//! How LD_PRELOAD names our library where 32-bit programs run, too.
//!
//! Their dynamic linker would complain on stderr of a library with 64 bits, in each of them. But glibc replaces `$LIB` in a path by the
//! name of its own folder for libraries. So the path leads through a folder that has something for either:
//!
//! ```text
//!   multilib/lib64, multilib/lib/x86_64-linux-gnu              a link to our library
//!   multilib/lib32, multilib/lib/i386-linux-gnu, multilib/lib  an empty library with 32 bits
//! ```
//!
//! Where the 64-bit linker calls its own folder otherwise (`lib`: Arch, NixOS), the path stays plain, and the line is printed.
//! musl's linker knows no `$LIB`, finds nothing there, and says nothing.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The dynamic linker of 32-bit programs.
const LINKER: &str = "/lib/ld-linux.so.2";
/// The folder beside the library.
const FOLDER: &str = "multilib";
/// What 64-bit linkers may put for `$LIB`, and how our library's folder is reached from there.
const WIDE: [(&str, &str); 2] = [("lib64", "../.."), ("lib/x86_64-linux-gnu", "../../..")];
/// What 32-bit ones may.
const NARROW: [&str; 3] = ["lib32", "lib/i386-linux-gnu", "lib"];
/// System packages bring the folder with them.
const SYSTEM: &str = "/usr";

/// The path by which both kinds of programs can preload this library, given by its canonical path. `None`: no 32-bit program can run here, or
/// there is no such path: then the plain one has to do.
pub fn path(library: &Path) -> Option<PathBuf> {
    if cfg!(not(target_arch = "x86_64")) || !Path::new(LINKER).exists() {
        return None;
    }
    let (folder, file) = (library.parent()?, library.file_name()?);
    let is_own = fs::metadata(folder).is_ok_and(|about| about.uid() == user());
    if is_own && !library.starts_with(SYSTEM) && !folder.join(FOLDER).exists() {
        make(library).ok()?; // else the library is there, and loads
    }
    let path = folder.join(FOLDER).join("$LIB").join(file);
    (is_safe(library) && is_found(&path)).then_some(path)
}

/// Makes the folder beside the library, whole or not at all.
///
/// # Errors
/// It can't be written.
pub fn make(library: &Path) -> io::Result<()> {
    let (folder, file) = match (library.parent(), library.file_name()) {
        (Some(folder), Some(file)) => (folder, file),
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let draft = folder.join(format!("{FOLDER}.{}", std::process::id()));
    let fill = || {
        for name in WIDE.map(|(name, _)| name).into_iter().chain(NARROW) {
            fs::create_dir_all(draft.join(name))?;
        }
        for (name, up) in WIDE {
            symlink(Path::new(up).join(file), draft.join(name).join(file))?;
        }
        for name in NARROW {
            let stub = draft.join(name).join(file);
            fs::write(&stub, empty())?;
            fs::set_permissions(stub, Permissions::from_mode(0o644))?;
        }
        for name in folders() {
            fs::set_permissions(draft.join(name), Permissions::from_mode(0o755))?;
        }
        fs::rename(&draft, folder.join(FOLDER))
    };
    let done = fill();
    if done.is_err() {
        let _ = fs::remove_dir_all(&draft); // it is of no use
    }
    // Another process may have been faster.
    done.or_else(|error| if folder.join(FOLDER).exists() { Ok(()) } else { Err(error) })
}

fn folders() -> impl Iterator<Item = &'static str> {
    ["."].into_iter().chain(WIDE.map(|(name, _)| name)).chain(NARROW)
}

fn user() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() }
}

/// Is nothing in the folder but ours: owned by root or this user, writable by nobody else, and leading to the library?
fn is_safe(library: &Path) -> bool {
    let Some((folder, file)) = library.parent().zip(library.file_name()) else { return false };
    let folder = folder.join(FOLDER);
    let is_ours = |path: &Path, is_kind: fn(&fs::FileType) -> bool| {
        fs::symlink_metadata(path).is_ok_and(|about| {
            let is_writable = !about.is_symlink() && about.mode() & 0o022 != 0;
            [0, user()].contains(&about.uid()) && !is_writable && is_kind(&about.file_type())
        })
    };
    let is_library =
        |name| fs::canonicalize(folder.join(name).join(file)).is_ok_and(|to| to == library);
    folders().all(|name| is_ours(&folder.join(name), fs::FileType::is_dir))
        && WIDE
            .iter()
            .all(|&(name, _)| is_ours(&folder.join(name).join(file), fs::FileType::is_symlink))
        && WIDE.iter().all(|&(name, _)| is_library(name))
        && NARROW.iter().all(|name| is_ours(&folder.join(name).join(file), fs::FileType::is_file))
}

/// Does our own dynamic linker find a library with our word size there?
fn is_found(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: a NUL-terminated path, and nothing is loaded by it. (If the library is loaded already, it never goes.)
    unsafe {
        libc::dlerror();
        libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        libc::dlerror().is_null()
    }
}

/// A shared library for 32-bit x86 without any contents.
fn empty() -> Vec<u8> {
    const HEADER: u32 = 52;
    const PROGRAM: u32 = 32;
    const SYMBOLS: u32 = HEADER + 3 * PROGRAM;
    const HASHES: u32 = SYMBOLS + 16;
    const TEXTS: u32 = HASHES + 16;
    const DYNAMIC: u32 = TEXTS + 4;
    const ENTRIES: [[u32; 2]; 6] = [
        [4, HASHES],
        [5, TEXTS],
        [6, SYMBOLS],
        [10, 1],  // the texts' size
        [11, 16], // a symbol's size
        [0, 0],
    ];
    const LEN: u32 = DYNAMIC + size_of_val(&ENTRIES) as u32;
    const READ_WRITE: u32 = 6;
    let mut bytes = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let halves = |bytes: &mut Vec<u8>, halves: &[u16]| {
        bytes.extend(halves.iter().flat_map(|half| half.to_le_bytes()));
    };
    let words = |bytes: &mut Vec<u8>, words: &[u32]| {
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    };
    halves(&mut bytes, &[3, 3]); // a shared object, for the 386
    words(&mut bytes, &[1, 0, HEADER, 0, 0]);
    halves(&mut bytes, &[HEADER as u16, PROGRAM as u16, 3, 40, 0, 0]);
    words(&mut bytes, &[1, 0, 0, 0, LEN, LEN, READ_WRITE, 4096]); // loaded whole
    let dynamic = LEN - DYNAMIC;
    words(&mut bytes, &[2, DYNAMIC, DYNAMIC, DYNAMIC, dynamic, dynamic, READ_WRITE, 4]);
    words(&mut bytes, &[0x6474_e551, 0, 0, 0, 0, 0, READ_WRITE, 16]); // the stack needs no code
    words(&mut bytes, &[0; 4]); // a symbol without a name
    words(&mut bytes, &[1, 1, 0, 0]);
    words(&mut bytes, &[0]);
    words(&mut bytes, ENTRIES.as_flattened());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_used_only_as_it_was_made() {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().canonicalize().unwrap().join("liblockwright.so");
        fs::write(&library, "").unwrap();
        make(&library).unwrap();
        make(&library).unwrap(); // it is there already
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        assert!(is_safe(&library));
        let link = library.with_file_name(FOLDER).join("lib64/liblockwright.so");
        fs::remove_file(&link).unwrap();
        assert!(!is_safe(&library));
        symlink("/etc/passwd", &link).unwrap();
        assert!(!is_safe(&library));
        fs::remove_file(&link).unwrap();
        symlink("../../liblockwright.so", &link).unwrap();
        assert!(is_safe(&library));
        fs::set_permissions(link.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
        assert!(!is_safe(&library));
    }

    #[test]
    fn the_empty_library_is_as_long_as_it_says() {
        let bytes = empty();
        assert_eq!(bytes.len(), 232);
        assert_eq!(bytes[68..72], 232_u32.to_le_bytes());
    }
}
