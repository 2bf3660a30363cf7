//! `liblockwright.so` as bytes, and as a file that programs can preload.
//!
//! `cargo install` installs only binaries. So the command contains the library and writes it to the user's cache when
//! it first needs it. Programs will run this code, so nobody else may be able to write it: see [`write_in`].

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The library and the name of its folder, in release builds. Other builds find the library beside the command.
#[cfg(built)]
const LIBRARY: Option<(&[u8], &str)> =
    Some((include_bytes!(env!("LIBRARY")), concat!(env!("CARGO_PKG_VERSION"), "-", env!("HASH"))));
#[cfg(not(built))]
const LIBRARY: Option<(&[u8], &str)> = None;

/// The library's file name.
const FILE: &str = "liblockwright.so";
/// Mode bits that let other users write.
const OTHERS_WRITE: u32 = 0o022;
/// In a folder with this bit, users can't rename or remove other users' files.
const STICKY: u32 = 0o1000;

/// Why the library can't be written to a cache.
#[derive(Debug)]
pub enum Error {
    /// This path couldn't be read, made or written.
    Io(PathBuf, io::Error),
    /// The owner of this path is neither root nor this user, and so could write here.
    Owner(PathBuf),
    /// The mode of this path lets other users write here.
    Mode(PathBuf),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(path, error) => write!(f, "'{}': {error}", path.display()),
            Error::Owner(path) => write!(f, "'{}' belongs to another user", path.display()),
            Error::Mode(path) => {
                write!(f, "other users may write to '{}' (see its mode)", path.display())
            }
        }
    }
}

impl std::error::Error for Error {}

/// Does this command contain the library? Only release builds do.
pub const fn is_embedded() -> bool {
    LIBRARY.is_some()
}

/// The path of the library below the folder `cache`; writes the file if it is missing. `None` if the library isn't
/// embedded.
///
/// # Errors
/// The folder can't be used, or another user could write to it or to a folder above it.
pub fn write_in(cache: &Path) -> Result<Option<PathBuf>, Error> {
    LIBRARY.map(|(bytes, name)| place(bytes, &cache.join("lockwright").join(name))).transpose()
}

/// Writes these bytes to `folder/liblockwright.so`. Each version has its own folder. A file never changes once it has
/// its name, because programs may have mapped it.
fn place(bytes: &[u8], folder: &Path) -> Result<PathBuf, Error> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |error| Error::Io(path, error)
    };
    // Check before creating anything: root may have been given another user's home.
    let there = folder.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/"));
    is_safe(&there.canonicalize().map_err(io(there))?)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io(folder))?;
    let folder = folder.canonicalize().map_err(io(folder))?;
    is_safe(&folder)?;
    let file = folder.join(FILE);
    if is_there(&file, bytes).map_err(io(&file))? {
        return Ok(file);
    }
    write(bytes, &folder, &file).map_err(io(&file))?;
    Ok(file)
}

/// Is it certain that no other user can write to this folder, or replace it?
fn is_safe(folder: &Path) -> Result<(), Error> {
    for above in folder.ancestors() {
        let metadata =
            fs::symlink_metadata(above).map_err(|error| Error::Io(above.to_owned(), error))?;
        if !is_trusted(metadata.uid()) {
            return Err(Error::Owner(above.to_owned()));
        }
        if metadata.mode() & OTHERS_WRITE != 0 && metadata.mode() & STICKY == 0 {
            return Err(Error::Mode(above.to_owned()));
        }
    }
    Ok(())
}

/// Is this file ours, does it have these bytes, and is it writable by nobody else?
fn is_there(file: &Path, bytes: &[u8]) -> io::Result<bool> {
    let mut open = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(file) {
        Ok(open) => open,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        // A symbolic link: replace it.
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Ok(false),
        Err(error) => return Err(error),
    };
    let metadata = open.metadata()?;
    let is_ours = metadata.is_file()
        && is_trusted(metadata.uid())
        && metadata.mode() & OTHERS_WRITE == 0
        && metadata.len() == bytes.len() as u64;
    let mut known = Vec::new();
    if is_ours {
        open.read_to_end(&mut known)?;
    }
    Ok(is_ours && known == bytes)
}

/// Writes the file atomically: it is complete from the moment it has its name, even if other processes write it at the
/// same time.
fn write(bytes: &[u8], folder: &Path, file: &Path) -> io::Result<()> {
    let mut draft =
        tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempfile_in(folder)?;
    draft.write_all(bytes)?;
    draft.as_file().sync_all()?;
    draft.persist(file).map_err(|error| error.error)?;
    Ok(())
}

/// Is the owner this user, or root, who can do anything anyway?
fn is_trusted(owner: u32) -> bool {
    // SAFETY: no preconditions.
    owner == 0 || owner == unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn cache() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn it_is_written_once() {
        let cache = cache();
        let folder = cache.path().join("a/b");
        let file = place(b"one", &folder).unwrap();
        assert_eq!((fs::read(&file).unwrap(), mode(&file)), (b"one".to_vec(), 0o755));
        assert_eq!((mode(&folder), mode(&cache.path().join("a"))), (0o700, 0o700));
        let first = fs::metadata(&file).unwrap().ino();
        assert_eq!(place(b"one", &folder).unwrap(), file);
        assert_eq!(fs::metadata(&file).unwrap().ino(), first);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    /// As a new file: programs may have mapped the old one.
    #[test]
    fn what_is_not_it_is_replaced_by_another_file() {
        let cache = cache();
        let file = cache.path().join(FILE);
        fs::write(&file, "half").unwrap();
        // A second link, so that the inode's number isn't reused.
        fs::hard_link(&file, cache.path().join("old")).unwrap();
        let before = fs::metadata(&file).unwrap().ino();
        place(b"whole", cache.path()).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"whole");
        assert_ne!(fs::metadata(&file).unwrap().ino(), before);

        fs::set_permissions(&file, Permissions::from_mode(0o777)).unwrap();
        place(b"whole", cache.path()).unwrap();
        assert_eq!(mode(&file), 0o755);

        let elsewhere = cache.path().join("elsewhere");
        fs::write(&elsewhere, "theirs").unwrap();
        fs::remove_file(&file).unwrap();
        symlink(&elsewhere, &file).unwrap();
        place(b"whole", cache.path()).unwrap();
        assert!(fs::symlink_metadata(&file).unwrap().is_file());
        assert_eq!(fs::read(&elsewhere).unwrap(), b"theirs");
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let cache = cache();
        let folder = cache.path().join("shared/own");
        fs::create_dir_all(&folder).unwrap();
        let shared = cache.path().join("shared").canonicalize().unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(0o777)).unwrap();
        let error = place(b"x", &folder.join("new")).unwrap_err();
        assert!(matches!(&error, Error::Mode(path) if *path == shared), "{error}");
        assert!(!folder.join("new").exists(), "nothing is made there");
        // Other users of a sticky folder can't rename our files.
        fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
        assert!(place(b"x", &folder).is_ok());
        fs::set_permissions(&folder, Permissions::from_mode(0o720)).unwrap();
        assert!(matches!(place(b"x", &folder), Err(Error::Mode(_))));
    }

    #[test]
    fn a_cache_that_is_no_folder_is_an_error_that_says_where() {
        let cache = cache();
        fs::write(cache.path().join("file"), "").unwrap();
        let folder = cache.path().join("file/lockwright");
        let error = place(b"x", &folder).unwrap_err().to_string();
        assert!(error.starts_with(&format!("'{}': ", folder.display())), "{error}");
    }
}
