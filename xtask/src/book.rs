//! The book: mdBook renders `docs/` in the order of `docs/SUMMARY.md`.
//!
//! ```text
//!   docs/*.md ─┬─► mdbook ─► preprocess: links that leave docs/ ─► target/book ─► links: does each lead somewhere?
//!   book.toml ─┘             (cargo xtask book --preprocess)
//! ```
//!
//! While writing, run `mdbook serve` in the repository's root. `book.toml` has all the settings that it needs.

mod links;
mod preprocess;

use crate::answer::No;
use crate::root::root;
use crate::tool::Tool;
use anyhow::{Context, Result, ensure};
use lockwright_tests::{Child, End, scratch};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The tool that builds the book.
const MDBOOK: Tool = Tool { name: "mdbook", version: "0.5.4", features: Some("search") };

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Work as mdBook's preprocessor: standard input to standard output.
    #[arg(long, hide = true)]
    preprocess: bool,
    /// The question that mdBook asks its preprocessor.
    #[arg(hide = true, requires = "preprocess")]
    question: Vec<String>,
}

pub(crate) fn main(args: Args) -> Result<()> {
    if args.preprocess {
        // The question is `supports RENDERER`: we support all of them.
        return if args.question.is_empty() { preprocess::main() } else { Ok(()) };
    }
    let root = root();
    let mut complaints = unlisted(&root)?;
    let book = scratch("book")?;
    build(&root, &book, &mut complaints)?;
    let links = links::check(&root, &book, &mut complaints)?;
    for complaint in &complaints {
        eprintln!("error: {complaint}");
    }
    if complaints.is_empty() {
        println!("{}: {links} links, none of them broken", book.join("index.html").display());
        return Ok(());
    }
    Err(No(format!("{} errors in the book", complaints.len())).into())
}

/// Pages of docs/ that are missing from SUMMARY.md.
pub(crate) fn unlisted(root: &Path) -> Result<Vec<String>> {
    let docs = root.join("docs");
    let summary = docs.join("SUMMARY.md");
    let text = fs::read_to_string(&summary).context("cannot read docs/SUMMARY.md")?;
    let listed = |page: &Path| text.contains(&format!("]({})", page.display()));
    let pages = pages(&docs)?.into_iter().filter(|page| *page != summary);
    let pages = pages.map(|page| page.strip_prefix(&docs).map(Path::to_owned).unwrap_or(page));
    let lost = pages.filter(|page| !listed(page));
    Ok(lost.map(|page| format!("docs/SUMMARY.md: lacks {}", page.display())).collect())
}

/// Markdown files of a folder and its subfolders.
fn pages(folder: &Path) -> Result<Vec<PathBuf>> {
    files(folder, "md")
}

fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, ending)?);
        } else if path.extension().is_some_and(|end| end == ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn build(root: &Path, book: &Path, complaints: &mut Vec<String>) -> Result<()> {
    if book.exists() {
        fs::remove_dir_all(book)?; // so that no link leads to a removed page
    }
    // This program is the preprocessor, so cargo isn't needed within cargo.
    let own = env::current_exe()?;
    let own = format!("'{}' book --preprocess", own.display());
    let outcome = Child::new(MDBOOK.find()?)
        .args(["build", "--dest-dir"])
        .args([book])
        .args([root])
        .env("MDBOOK_PREPROCESSOR__REPOSITORY__COMMAND", own)
        .limit(300)
        .run()?;
    ensure!(outcome.end == End::Code(0), "mdbook: {}", outcome.describe());
    let said = outcome.errors();
    let warnings = said.lines().filter(|line| line.contains("WARN") || line.contains("ERROR"));
    complaints.extend(warnings.map(|line| format!("mdbook: {}", line.trim())));
    Ok(())
}
