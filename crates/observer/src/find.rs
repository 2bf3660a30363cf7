//! Finds the file that a command's name refers to, as a shell does.

use lockwright_text::{Failure, nearest};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The program that `name` refers to: a path, or a word to look up in `PATH`.
pub fn program(name: &OsStr) -> Result<PathBuf, Failure> {
    let shown = name.display();
    if name.as_bytes().contains(&b'/') {
        return match check(Path::new(name)) {
            Ok(()) => Ok(name.into()),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Err(Failure::not_found(format!("cannot run '{shown}': no such file"))
                    .hint(elsewhere(Path::new(name))))
            }
            Err(error) => {
                Err(Failure::not_executable(format!("cannot run '{shown}': {}", plain(&error)))
                    .hint(format!("ls -l '{shown}'")))
            }
        };
    }
    let path = search_path();
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

fn search_path() -> OsString {
    env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into())
}

/// A hint for a path that doesn't exist.
fn elsewhere(path: &Path) -> String {
    let (folder, name) = (path.parent(), path.file_name().unwrap_or_default());
    let folder = folder.filter(|folder| folder.is_dir());
    let beside =
        folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let beside: Vec<PathBuf> =
        beside.map(|entry| entry.path()).filter(|file| check(file).is_ok()).collect();
    let names = beside.iter().filter_map(|file| file.file_name()?.to_str());
    if let Some(close) = name.to_str().and_then(|name| nearest(name, names)) {
        return format!(
            "did you mean '{}'?",
            folder.unwrap_or(Path::new("")).join(close).display()
        );
    }
    let mut folders = env::split_paths(&search_path()).collect::<Vec<_>>().into_iter();
    if folders.any(|folder| check(&folder.join(name)).is_ok()) {
        return format!("'{}' is in PATH: leave out the folder", name.display());
    }
    match path.ancestors().skip(1).find(|folder| folder.is_dir()) {
        Some(above) if path.is_absolute() => format!("ls -l '{}'", above.display()),
        _ => format!("if you have built it: find . -name '{}'", name.display()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_nearly_that_name_is_found_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let server = folder.path().join("server");
        fs::write(&server, "").unwrap();
        let hint = |name: &str| elsewhere(&folder.path().join(name));
        let listing = format!("ls -l '{}'", folder.path().display());
        assert_eq!(hint("sever"), listing, "not a program");
        fs::set_permissions(&server, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(hint("sever"), format!("did you mean '{}'?", server.display()));
        assert_eq!(hint("another"), listing);
    }
}
