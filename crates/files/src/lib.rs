//! Files at paths that a process, a recording or another user names, or in folders that others can write to.
//!
//! Anything may lie there. Opening a pipe waits for its writer, opening some devices acts on them, and others never end. So we
//! look first, and open only regular files. Where we create a file, a link may lead to one of ours ([`create`]).

use memmap2::Mmap;
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Opens a regular file. It never waits.
///
/// # Errors
///
/// It isn't a regular file, or can't be read.
pub fn open_file(path: impl AsRef<Path>) -> io::Result<File> {
    open(path.as_ref(), 0, false)
}

/// As [`open_file`], in a folder that other users can write to: a link isn't followed.
///
/// # Errors
///
/// It isn't a regular file, or can't be read.
pub fn open_entry(path: impl AsRef<Path>) -> io::Result<File> {
    open(path.as_ref(), libc::O_NOFOLLOW, false)
}

/// As [`open_entry`], to write, too.
///
/// # Errors
///
/// As [`open_entry`], or it can't be written.
pub fn open_entry_to_write(path: impl AsRef<Path>) -> io::Result<File> {
    open(path.as_ref(), libc::O_NOFOLLOW, true)
}

fn open(path: &Path, flags: i32, to_write: bool) -> io::Result<File> {
    let place = File::options().read(true).custom_flags(libc::O_PATH | flags).open(path)?;
    let about = place.metadata()?;
    if about.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    if !about.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    // The very file that we looked at. Its owner's lease would make us wait.
    let place = format!("/proc/self/fd/{}", place.as_raw_fd());
    File::options().read(true).write(to_write).custom_flags(libc::O_NONBLOCK).open(place)
}

/// Reads a regular file.
///
/// # Errors
///
/// It isn't a regular file, can't be read, or has more than `most` bytes.
pub fn read_file(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let size = if most >> 20 > 0 { (most >> 20, 'M') } else { (most >> 10, 'K') };
        return Err(io::Error::other(format!("more than {} {}iB", size.0, size.1)));
    }
    Ok(bytes)
}

/// As [`read_file`], for text.
///
/// # Errors
///
/// As [`read_file`], or it isn't UTF-8.
pub fn read_text(path: impl AsRef<Path>, most: u64) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8");
    String::from_utf8(read_file(path, most)?).map_err(not_text)
}

/// Maps a regular file, of which only what is looked at takes memory.
///
/// # Errors
///
/// It isn't a regular file, or can't be read.
pub fn map_file(path: impl AsRef<Path>) -> io::Result<Mmap> {
    map(&open_file(path)?)
}

/// Maps a regular file that is open.
///
/// # Errors
///
/// It can't be mapped.
pub fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the file of a program, or of its debug information. If another process shortens it while we read, we die of
    // SIGBUS, as every debugger and profiler does.
    unsafe { Mmap::map(file) }
}

/// Creates or empties a file for results. A link is followed only in a folder that no other user can change: elsewhere it may
/// lead to any file of ours. Nor is a pipe opened there, or a file that another user has made. The file that our own standard
/// output or error goes to (`/dev/stderr`, or by its name) keeps what it has: results follow that.
///
/// # Errors
///
/// It can't be written; or such a thing lies there.
pub fn create(path: impl AsRef<Path>) -> io::Result<File> {
    let file = open_to_write(path)?;
    empty(file, [io::stdout().as_fd(), io::stderr().as_fd()])
}

/// The file, emptied; or the one of these streams that goes there. (Two streams that were opened apart go on at places of their own.) What isn't a
/// regular file stays.
fn empty<const STREAMS: usize>(file: File, streams: [BorrowedFd<'_>; STREAMS]) -> io::Result<File> {
    let about = file.metadata()?;
    if !about.is_file() {
        return Ok(file);
    }
    for stream in streams {
        let Ok(stream) = stream.try_clone_to_owned().map(File::from) else { continue };
        let is_there =
            stream.metadata().is_ok_and(|its| (its.dev(), its.ino()) == (about.dev(), about.ino()));
        if is_there && is_writable(&stream) {
            return Ok(stream);
        }
    }
    file.set_len(0)?;
    Ok(file)
}

fn is_writable(file: &File) -> bool {
    // SAFETY: its descriptor is open.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    flags & libc::O_PATH == 0 && flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// As [`create`], but what is in the file stays.
///
/// # Errors
///
/// As [`create`].
pub fn open_to_write(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    let mut to = File::options();
    to.write(true).create(true).truncate(false);
    if path.parent().is_some_and(is_ours) {
        return to.open(path);
    }
    let file = to.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let not_followed = |error: io::Error| match error.raw_os_error() {
        Some(libc::ELOOP) => io::Error::other("a link in a folder that others can write to"),
        _ => error,
    };
    let file = file.map_err(not_followed)?;
    let about = file.metadata()?;
    if !about.is_file() || about.nlink() > 1 {
        return Err(io::Error::other(
            "not a file of its own, in a folder that others can write to",
        ));
    }
    Ok(file)
}

/// As [`std::fs::write`], to a file that is created as [`create`] does.
///
/// # Errors
///
/// As [`create`], or it can't be written.
pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    create(path)?.write_all(bytes.as_ref())
}

/// Can only we, and root, change a folder, and those above it?
fn is_ours(folder: &Path) -> bool {
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    // SAFETY: no preconditions.
    let user = unsafe { libc::geteuid() };
    let is_ours = |folder: &Path| {
        folder.metadata().is_ok_and(|about| {
            [0, user].contains(&about.uid()) && about.mode() & (libc::S_IWGRP | libc::S_IWOTH) == 0
        })
    };
    // Above it, nobody can replace what is ours in a sticky folder.
    let is_kept = |folder: &Path| {
        let is_sticky = |about: Metadata| about.uid() == 0 && about.mode() & libc::S_ISVTX != 0;
        is_ours(folder) || folder.metadata().is_ok_and(is_sticky)
    };
    let Ok(whole) = here.canonicalize() else { return false };
    is_ours(&whole) && whole.ancestors().skip(1).all(is_kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::fs::{self, Permissions};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_regular_files_are_opened_and_nobody_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| folder.path().join(name));
        fs::write(&file, "12345").unwrap();
        symlink("file", &link).unwrap();
        let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: the string ends in NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert_eq!(&*map_file(&link).unwrap(), b"12345");
        assert!(open_entry(&file).is_ok() && open_entry(&link).is_err());
        assert_eq!(read_text(&link, 5).unwrap(), "12345");
        assert_eq!(read_file(&file, 4).unwrap_err().to_string(), "more than 0 KiB");
        for path in [pipe.as_path(), Path::new("/dev/zero")] {
            assert_eq!(open_file(path).unwrap_err().to_string(), "not a regular file");
            assert!(open_entry(path).is_err() && map_file(path).is_err());
        }
        assert_eq!(open_file(folder.path()).unwrap_err().raw_os_error(), Some(libc::EISDIR));
    }

    #[test]
    fn results_go_through_no_link_that_another_user_may_have_made() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, same, new] =
            ["file", "link", "same", "new"].map(|name| folder.path().join(name));
        let text = || fs::read_to_string(&file).unwrap();
        fs::write(&file, "precious").unwrap();
        symlink(&file, &link).unwrap();
        write(&link, "ours").unwrap();
        assert_eq!(text(), "ours");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        fs::write(&file, "precious").unwrap();
        fs::hard_link(&file, &same).unwrap();
        assert_eq!(
            write(&link, "x").unwrap_err().to_string(),
            "a link in a folder that others can write to"
        );
        assert!(write(&same, "x").is_err() && write(&new, "x").is_ok());
        assert_eq!(text(), "precious");
        fs::remove_file(&same).unwrap();
        write(&file, "new").unwrap();
        assert_eq!(text(), "new");
        assert!(write("/dev/null", "x").is_ok() && write("/dev/stderr", "").is_ok());
    }

    #[test]
    fn results_follow_what_a_stream_has_written_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log");
        let mut stream = File::create(&file).unwrap();
        stream.write_all(b"said, ").unwrap();
        let other = tempfile::tempfile().unwrap();
        let streams = [other.as_fd(), stream.as_fd()];
        empty(open_to_write(&file).unwrap(), streams).unwrap().write_all(b"result").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "said, result");
        // Streams that can't be written, or go elsewhere.
        let [read, place] = [File::open(&file).unwrap(), {
            File::options().read(true).custom_flags(libc::O_PATH).open(&file).unwrap()
        }];
        let streams = [other.as_fd(), read.as_fd(), place.as_fd()];
        empty(open_to_write(&file).unwrap(), streams).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "");
    }
}
