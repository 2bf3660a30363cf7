//! The file behind a command's name, as a shell finds it.

use crate::hints::Failure;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The program that `name` starts: a path, or a word to be looked up in `PATH`.
pub(crate) fn program(name: &OsStr) -> Result<PathBuf, Failure> {
    let shown = name.display();
    if name.as_bytes().contains(&b'/') {
        return match check(Path::new(name)) {
            Ok(()) => Ok(name.into()),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                let above = Path::new(name).ancestors().skip(1).find(|folder| folder.is_dir());
                Err(Failure::not_found(format!("cannot run '{shown}': no such file"))
                    .hint(format!("ls -l '{}'", above.unwrap_or(Path::new(".")).display())))
            }
            Err(error) => {
                Err(Failure::not_executable(format!("cannot run '{shown}': {}", plain(&error)))
                    .hint(format!("ls -l '{shown}'")))
            }
        };
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let mut refused = None;
    for folder in env::split_paths(&path) {
        let candidate =
            if folder.as_os_str().is_empty() { Path::new(".") } else { &folder }.join(name);
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => refused = Some(candidate),
            Err(_) => {}
        }
    }
    if let Some(refused) = refused {
        let refused = refused.display();
        return Err(Failure::not_executable(format!("cannot run '{refused}': not executable"))
            .hint(format!("chmod +x '{refused}'")));
    }
    let failure = Failure::not_found(format!("cannot run '{shown}': not found in PATH"));
    Err(failure.hint(if check(Path::new(name)).is_ok() {
        format!("for the file in this folder: './{shown}'")
    } else {
        format!("if it is elsewhere, give its path: /FOLDER/{shown}")
    }))
}

fn plain(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => "not executable",
        ErrorKind::IsADirectory => "it is a directory",
        _ => "it cannot be read",
    }
}

fn check(path: &Path) -> std::io::Result<()> {
    let about = fs::metadata(path)?;
    if about.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if about.permissions().mode() & 0o111 == 0 {
        return Err(ErrorKind::PermissionDenied.into());
    }
    Ok(())
}
