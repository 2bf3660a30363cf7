//! A folder with everything: the page, the data, the plots.

use super::{Done, json, page, plot};
use crate::hints::{Failure, cause};
use std::path::Path;

/// Writes report, data and plots. Returns the number of plots.
pub(crate) fn write(all: &[Done], command: &str, dir: &Path) -> Result<usize, Failure> {
    let mut plots = Vec::new();
    for done in all {
        for drawn in &done.measured.plots {
            let svg = plot::draw(drawn, &done.source());
            plots.push((done.figure.figure.as_str(), drawn.name.as_str(), svg));
        }
    }
    let mut files = vec![
        ("report.html".to_owned(), page::page(all, command, &plots)),
        ("figures.json".to_owned(), format!("{:#}\n", json(all, false)?)),
    ];
    files.extend(plots.iter().map(|(_, name, svg)| (format!("{name}.svg"), svg.clone())));
    for (name, text) in files {
        let path = dir.join(name);
        lockwright_files::write(&path, text).map_err(|error| {
            Failure::new(format!("cannot write '{}': {}", path.display(), cause(&error)))
                .hint("lockwright reproduce --output DIR ...")
        })?;
    }
    Ok(plots.len())
}
