//! The policies that come with lockwright: all there, each with its source, object and page.

use lockwright_policy::shipped::shipped;
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
fn folder_and_list_agree() {
    let listed: BTreeSet<String> = shipped().iter().map(|one| one.name.to_owned()).collect();
    assert_eq!(listed.len(), shipped().len(), "two of one name");
    for (folder, end) in
        [("crates/policy/policies", ".bpf.c"), ("crates/policy/policies", ".bpf.o")]
    {
        assert_eq!(names(folder, end), listed, "{folder}/*{end}");
    }
}

#[test]
fn an_idea_fits_a_line() {
    for one in shipped() {
        assert!(one.idea.len() <= 77 && !one.idea.ends_with('.'), "{}: {}", one.name, one.idea);
    }
}

/// The messages of a verifier name the file and show the line, so the object must be made of this very source.
#[test]
fn objects_have_lines_of_their_sources_and_no_local_path() {
    for one in shipped() {
        let text = String::from_utf8_lossy(one.object);
        assert!(text.contains(&format!("./policies/{}.bpf.c", one.name)), "{}", one.name);
        // Strings in BTF end with a zero.
        for line in text.split('\0').filter(|string| string.starts_with("    return ")) {
            assert!(one.source.lines().any(|l| l == line), "{}: {line}", one.name);
        }
        for root in ["/home", "/root", "/usr", "/var", "/tmp"] {
            assert!(!text.contains(root), "{}: {root}", one.name);
        }
        assert!(one.source.contains("\n * Bound: "), "{}: states no bound", one.name);
    }
}
