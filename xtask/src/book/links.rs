//! Checks links: those of the built book, those from README into the book, and pages named in the sources.

use super::{files, preprocess::ROOT_PAGES};
use anyhow::{Context, Result};
use regex_lite::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A page of the book: its anchors and its links.
struct Page {
    anchors: BTreeSet<String>,
    links: Vec<String>,
}

/// Returns the number of links.
///
/// # Errors
/// A file can't be read.
pub(super) fn check(root: &Path, book: &Path, complaints: &mut Vec<String>) -> Result<usize> {
    let mut pages = BTreeMap::new();
    for path in files(book, "html")? {
        let text = fs::read_to_string(&path)?;
        let name = path.strip_prefix(book)?.to_owned();
        pages.insert(name, read(&text));
    }
    let mut count = 0;
    for (name, page) in &pages {
        // Skip the page with all chapters and the 404 page, whose links are relative to other folders.
        if name.ends_with("print.html") || name.ends_with("404.html") || name.ends_with("toc.html")
        {
            continue;
        }
        for link in &page.links {
            count += 1;
            if let Err(why) = leads(book, &pages, name, link) {
                complaints.push(format!("{}: '{link}': {why}", name.display()));
            }
        }
    }
    readme(root, book, &pages, complaints)?;
    named(root, complaints)?;
    Ok(count)
}

fn read(html: &str) -> Page {
    let all = |pattern: &str| -> Vec<String> {
        let pattern = Regex::new(pattern).expect("a pattern");
        pattern.captures_iter(html).map(|found| found[1].replace("&amp;", "&")).collect()
    };
    Page {
        anchors: all(r#"<[^>]* (?:id|name)="([^"]*)""#).into_iter().collect(),
        links: all(r#"<[^>]* (?:href|src)="([^"]*)""#),
    }
}

fn leads(
    book: &Path,
    pages: &BTreeMap<PathBuf, Page>,
    from: &Path,
    link: &str,
) -> Result<(), String> {
    if link.contains("://") || ["mailto:", "data:"].iter().any(|scheme| link.starts_with(scheme)) {
        return Ok(());
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match file {
        "" => from.to_owned(),
        file => {
            let folder = from.parent().unwrap_or(Path::new(""));
            let whole = book.join(folder).join(file);
            let whole = whole.canonicalize().map_err(|_| "there is no such file".to_owned())?;
            let book = book.canonicalize().map_err(|error| error.to_string())?;
            whole.strip_prefix(book).map_err(|_| "it leads out of the book")?.to_owned()
        }
    };
    match pages.get(&target) {
        Some(page) if !anchor.is_empty() && !page.anchors.contains(anchor) => {
            Err(format!("{} has no '#{anchor}'", target.display()))
        }
        _ => Ok(()),
    }
}

/// README isn't a chapter, but its links lead into the book.
fn readme(
    root: &Path,
    book: &Path,
    pages: &BTreeMap<PathBuf, Page>,
    complaints: &mut Vec<String>,
) -> Result<()> {
    let text = fs::read_to_string(root.join("README.md")).context("cannot read README.md")?;
    let link = Regex::new(r"\]\(([^)\s]+)\)").expect("a pattern");
    for found in link.captures_iter(&text) {
        let to = &found[1];
        let (file, anchor) = to.split_once('#').unwrap_or((to, ""));
        if to.contains("://") || file.is_empty() {
            continue;
        }
        if !root.join(file).exists() {
            complaints.push(format!("README.md: '{to}': there is no such file"));
            continue;
        }
        let page = ROOT_PAGES.iter().find(|(name, _, _)| *name == file).map(|(_, page, _)| *page);
        let Some(page) = page.or(file.strip_prefix("docs/")) else { continue };
        let page = page.replace(".md", ".html");
        let to = if anchor.is_empty() { page } else { format!("{page}#{anchor}") };
        if let Err(why) = leads(book, pages, Path::new("index.html"), &to) {
            complaints.push(format!("README.md: '{}': {why}", &found[1]));
        }
    }
    Ok(())
}

/// Checks that the pages named by hints, `--help` and comments exist.
fn named(root: &Path, complaints: &mut Vec<String>) -> Result<()> {
    let output = Command::new("git")
        .args(["grep", "-InoE", r"docs/[a-z0-9/_-]+\.md", "--"])
        .args([
            "crates",
            "include",
            "xtask",
            "examples",
            "tests",
            "eval",
            "contrib",
            ":!bench/runs",
        ])
        .current_dir(root)
        .output()
        .context("cannot run 'git grep'")?;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let page = line.rsplit(':').next().unwrap_or(line);
        // This checker's own tests name pages that don't exist.
        if !root.join(page).exists() && !line.starts_with("xtask/src/book/") {
            complaints.push(format!("{line}: there is no such page"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let book = tempfile::tempdir().unwrap();
        let text = r##"<h1 id="top"><a href="b.html#there">b</a><img src="c.svg"></h1>"##;
        fs::write(book.path().join("a.html"), text).unwrap();
        fs::write(book.path().join("b.html"), r#"<a id="there"></a>"#).unwrap();
        let pages: BTreeMap<_, _> = ["a.html", "b.html"]
            .map(|name| {
                let text = fs::read_to_string(book.path().join(name)).unwrap();
                (PathBuf::from(name), read(&text))
            })
            .into();
        assert_eq!(pages[Path::new("a.html")].links, ["b.html#there", "c.svg"]);
        let leads = |link: &str| leads(book.path(), &pages, Path::new("a.html"), link);
        for fine in ["b.html#there", "b.html", "#top", "https://example.org/x"] {
            assert_eq!(leads(fine), Ok(()), "{fine}");
        }
        for (broken, why) in [
            ("c.svg", "there is no such file"),
            ("b.html#nowhere", "b.html has no '#nowhere'"),
            ("#nowhere", "a.html has no '#nowhere'"),
            ("..", "it leads out of the book"),
        ] {
            assert_eq!(leads(broken), Err(why.to_owned()), "{broken}");
        }
    }
}
