//! mdBook's preprocessor. Pages in the repository's root become chapters. Links to other files of the repository, which
//! the book's readers don't have, become the files' paths.

use crate::root::root;
use anyhow::{Context, Result};
use pulldown_cmark::{Event, Parser, Tag};
use serde_json::{Value, json};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Pages in the root that become chapters: file, name in the book, title.
pub(super) const ROOT_PAGES: &[(&str, &str, &str)] = &[
    ("ARCHITECTURE.md", "architecture.md", "Architecture"),
    ("CONTRIBUTING.md", "contributing.md", "Contributing"),
    ("SECURITY.md", "security.md", "Security"),
    ("CHANGELOG.md", "changelog.md", "Changes"),
];

/// Converts standard input to standard output, by mdBook's protocol.
pub(super) fn main() -> Result<()> {
    let input: Value = serde_json::from_reader(std::io::stdin().lock())
        .context("standard input is not what mdBook sends\nhint: mdbook build")?;
    let mut book = input.get(1).cloned().context("mdBook sent no book")?;
    let items = book.get_mut("items").and_then(Value::as_array_mut);
    let items = items.context("mdBook sent no chapters\nhint: mdbook 0.5")?;
    items.iter_mut().for_each(chapter);
    items.push(json!({ "PartTitle": "The project" }));
    for (file, name, title) in ROOT_PAGES {
        let text = fs::read_to_string(root().join(file)).context(*file)?;
        items.push(json!({ "Chapter": {
            "name": title, "content": relinked(&text, Path::new(""), Path::new("")), "number": null,
            "sub_items": [], "path": name, "source_path": name, "parent_names": [],
        }}));
    }
    serde_json::to_writer(std::io::stdout().lock(), &book)?;
    Ok(())
}

fn chapter(item: &mut Value) {
    let Some(chapter) = item.get_mut("Chapter") else { return };
    if let (Some(path), Some(text)) = (chapter["path"].as_str(), chapter["content"].as_str()) {
        let folder = Path::new(path).parent().unwrap_or(Path::new("")).to_owned();
        chapter["content"] = relinked(text, &Path::new("docs").join(&folder), &folder).into();
    }
    if let Some(items) = chapter["sub_items"].as_array_mut() {
        items.iter_mut().for_each(self::chapter);
    }
}

/// Adapts the links in `text`. Its file is in `folder` of the repository, and its chapter in `place` of the book.
fn relinked(text: &str, folder: &Path, place: &Path) -> String {
    let mut fresh = text.to_owned();
    let links = Parser::new(text).into_offset_iter().filter_map(|(event, range)| match event {
        Event::Start(Tag::Link { dest_url, .. }) => Some((dest_url.into_string(), range)),
        _ => None,
    });
    for (to, range) in links.collect::<Vec<_>>().into_iter().rev() {
        if to.contains(':') || to.starts_with('#') {
            continue;
        }
        let (file, anchor) = to.split_once('#').map_or((to.as_str(), ""), |(f, a)| (f, a));
        let file = tidied(&folder.join(file));
        let link = &text[range.clone()];
        let Some((words, _)) = link.strip_prefix('[').and_then(|rest| rest.rsplit_once("]("))
        else {
            continue;
        };
        let anchor = if anchor.is_empty() { String::new() } else { format!("#{anchor}") };
        let root_page = ROOT_PAGES.iter().find(|(name, _, _)| file == Path::new(name));
        let up = "../".repeat(place.components().count());
        let instead = match (file.strip_prefix("docs"), root_page) {
            (Ok(inside), _) => format!("[{words}]({up}{}{anchor})", inside.display()),
            (_, Some((_, name, _))) => format!("[{words}]({up}{name}{anchor})"),
            _ if !root().join(&file).exists() => continue, // the link check will report it
            _ => {
                let path = file.display().to_string();
                if path.contains(words.trim_matches('`')) {
                    format!("`{path}`")
                } else {
                    format!("{words} (`{path}`)")
                }
            }
        };
        fresh.replace_range(range, &instead);
    }
    fresh
}

/// The path with `..` resolved.
fn tidied(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                tidy.pop();
            }
            Component::CurDir => {}
            part => tidy.push(part),
        }
    }
    tidy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_leave_the_book_become_paths() {
        let (docs, top) = (Path::new("docs"), Path::new(""));
        for (text, fresh) in [
            ("[a](sim.md#b)", "[a](sim.md#b)"),
            ("[the map](../ARCHITECTURE.md#the-map)", "[the map](architecture.md#the-map)"),
            ("[bank.c](../examples/bank.c)", "`examples/bank.c`"),
            ("see [the bank](../examples/bank.c).", "see the bank (`examples/bank.c`)."),
            ("[x](../nothing.c)", "[x](../nothing.c)"),
            ("`[x](../Cargo.toml)`", "`[x](../Cargo.toml)`"),
            ("[x](#here) [y](https://example.org)", "[x](#here) [y](https://example.org)"),
        ] {
            assert_eq!(relinked(text, docs, top), fresh);
        }
        let deeper = Path::new("docs/contributing");
        let fresh =
            relinked("[s](../sim.md) [m](../../SECURITY.md)", deeper, Path::new("contributing"));
        assert_eq!(fresh, "[s](../sim.md) [m](../security.md)");
        assert_eq!(relinked("[s](docs/sim.md)", top, top), "[s](sim.md)");
    }
}
