//! Tests of `conformance`.

use super::*;

#[test]
fn lists_of_packages_become_lists_of_sources() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(from.path().join("sources.list.d")).unwrap();
    fs::write(from.path().join("sources.list"), "# old\ndeb http://a b c\n").unwrap();
    let modern = "Types: deb\nURIs: http://a\nSuites: b\n";
    fs::write(from.path().join("sources.list.d/debian.sources"), modern).unwrap();
    fs::write(from.path().join("sources.list.d/x.list.disabled"), "deb http://x y z\n").unwrap();
    write_source_lists(from.path(), to.path()).unwrap();
    let read = |name| fs::read_to_string(to.path().join(name)).unwrap();
    assert_eq!(read("sources.list"), "deb-src http://a b c\n");
    assert_eq!(read("debian.sources"), "Types: deb-src\nURIs: http://a\nSuites: b\n");
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 2);
}

#[test]
fn a_list_without_packages_is_an_error() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let error = write_source_lists(from.path(), to.path()).unwrap_err();
    assert!(error.to_string().ends_with("names no package source"), "{error}");
}

#[test]
fn the_same_kind_of_verdict_is_the_same() {
    let (one, two) = (Verdict::Fail(End::Code(1)), Verdict::Fail(End::Signal(6)));
    assert!(one.same(two) && !one.same(Verdict::Pass));
}
