//! The policies that come with lockwright: all there, each with its source, object and page.

use lockwright_policy::object::Object;
use lockwright_policy::shipped::shipped;
use lockwright_policy::verify::verify;
use lockwright_tests::source_dir;
use std::collections::BTreeSet;
use std::fs;

/// The names of the files in a folder that end with this.
fn names(folder: &str, end: &str) -> BTreeSet<String> {
    let path = source_dir().join("..").join(folder);
    let files = fs::read_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    files
        .map(|file| file.expect("a file").file_name().into_string().expect("UTF-8"))
        .filter_map(|name| name.strip_suffix(end).map(str::to_owned))
        .collect()
}

#[test]
fn folder_pages_and_list_agree() {
    let listed: BTreeSet<String> = shipped().iter().map(|one| one.name.to_owned()).collect();
    assert_eq!(listed.len(), shipped().len(), "two of one name");
    for (folder, end) in
        [("crates/policy/policies", ".bpf.c"), ("crates/policy/policies", ".bpf.o")]
    {
        assert_eq!(names(folder, end), listed, "{folder}/*{end}");
    }
    let mut pages = names("docs/policies", ".md");
    assert!(pages.remove("index"), "docs/policies/index.md");
    assert_eq!(pages, listed, "docs/policies/*.md");
}

#[test]
fn an_idea_fits_a_line() {
    for one in shipped() {
        assert!(one.idea.len() <= 77 && !one.idea.ends_with('.'), "{}: {}", one.name, one.idea);
    }
}

/// The messages of a verifier name the file and show the line, so the object must be made of this very source.
#[test]
fn objects_know_the_lines_of_their_sources_and_no_local_path() {
    for one in shipped() {
        let object = Object::read(one.object).unwrap();
        let lines: Vec<&str> = one.source.lines().collect();
        for line in object.hooks.iter().flat_map(|hook| &hook.lines) {
            assert_eq!(line.file, format!("./policies/{}.bpf.c", one.name));
            assert_eq!(lines.get(line.number as usize - 1), Some(&&*line.text), "{}", one.name);
        }
        assert!(object.hooks.iter().all(|hook| !hook.lines.is_empty()), "{}", one.name);
        let text = String::from_utf8_lossy(one.object);
        for root in ["/home", "/root", "/usr", "/var", "/tmp"] {
            assert!(!text.contains(root), "{}: {root}", one.name);
        }
    }
}

#[test]
fn sources_state_their_bounds() {
    for one in shipped() {
        for line in ["\n * Bound: ", "\n * Tune"] {
            assert!(one.source.contains(line), "{}: lacks {line:?}", one.name);
        }
        let begins = format!("/*\n * {}: ", one.name);
        assert!(one.source.starts_with(&begins), "{}: begins with no idea", one.name);
    }
}

#[test]
fn the_verifier_accepts_all() {
    for one in shipped() {
        let verified = verify(Object::read(one.object).unwrap());
        let verified = verified.unwrap_or_else(|no| panic!("{}: {no}", one.name));
        // None of them looks at all waiters itself: a hook is short.
        for hook in verified.reports() {
            assert!(hook.longest <= 100, "{}, {}: {}", one.name, hook.hook.name(), hook.longest);
        }
    }
}
