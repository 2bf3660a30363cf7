//! `lockwright policy new`: a policy to begin with.

use super::clang::HEADER_FILE;
use super::named;
use super::unchecked::check;
use crate::hints::{Failure, cause};
use lockwright_policy::HEADER;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

const SKELETON: &str = include_str!("skeleton.bpf.c");

/// What was written.
pub(crate) struct Written {
    pub(crate) source: PathBuf,
    /// Was the header written, too? `false`: it was there, and is as ours.
    pub(crate) header: Option<PathBuf>,
}

/// Writes a policy called `name` to the current folder: the skeleton, or a copy of a shipped or stored policy's source. Never overwrites.
pub(crate) fn write(name: &str, from: Option<&str>) -> Result<Written, Failure> {
    check(name)?;
    let text = match from {
        None => SKELETON.replace("NAME", name),
        Some(from) => {
            let policy = named::find(from)?;
            policy.source.ok_or_else(|| {
                Failure::new(format!("the source of '{from}' is not known")).hint(
                    "it was stored as an object file; each policy that is shipped has one: lockwright policy list",
                )
            })?
        }
    };
    let source = PathBuf::from(format!("{name}.bpf.c"));
    create(&source, &text)?;
    let header = Path::new(HEADER_FILE);
    let header = match fs::read(header) {
        Ok(known) if known == HEADER.as_bytes() => None,
        Ok(_) => {
            crate::hints::warn(
                format!("'{HEADER_FILE}' is another version's, and stays"),
                format!("to get this version's: rm {HEADER_FILE}, and lockwright policy new OTHER"),
            );
            None
        }
        Err(_) => {
            create(header, HEADER)?;
            Some(header.to_owned())
        }
    };
    Ok(Written { source, header })
}

fn create(path: &Path, text: &str) -> Result<(), Failure> {
    let shown = path.display();
    let fail = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => {
            Failure::new(format!("'{shown}' exists already: it is not overwritten"))
                .hint(format!("choose another name, or move it away: mv '{shown}' '{shown}.old'"))
        }
        _ => Failure::new(format!("cannot write '{shown}': {}", cause(&error))).hint("ls -ld ."),
    };
    File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes())).map_err(fail)
}
