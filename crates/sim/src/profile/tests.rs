//! Tests of `profile`.

use super::*;

/// Every figure, and each cell of the matrix by itself.
fn numbers(profile: &Profile) -> Vec<(String, f64)> {
    let mut all = profile.figures();
    all.retain(|(path, _)| path != "memory.latency_ns");
    for (row, cells) in profile.memory.latency_ns.iter().enumerate() {
        let cell =
            |(column, value): (usize, &f64)| (format!("memory.latency_ns.{row}.{column}"), *value);
        all.extend(cells.iter().enumerate().map(cell));
    }
    all
}

#[test]
fn every_figure_of_every_profile_says_where_it_comes_from() {
    for (name, text) in BUILTIN {
        let profile = Profile::parse(text).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(profile.name, *name);
        for (path, value) in numbers(&profile) {
            let from = profile.provenance_of(&path);
            let from = from.unwrap_or_else(|| panic!("{name}: {path} comes from nowhere"));
            assert_eq!(from.kind == Origin::Fitted, !from.targets.is_empty(), "{name}: {path}");
            assert_eq!(from.kind == Origin::Fitted, from.range.is_some(), "{name}: {path}");
            if let Some([low, high]) = from.range {
                assert!(0.0 < low && low < high, "{name}: {path}: a fit needs room, above 0");
                assert!((low..=high).contains(&value), "{name}: {path} = {value}");
            }
        }
        for path in profile.provenance.keys() {
            let inside = format!("{path}.");
            let of = |(figure, _): &(String, f64)| figure == path || figure.starts_with(&inside);
            assert!(numbers(&profile).iter().any(of), "{name}: provenance of nothing: {path}");
        }
    }
}

/// What a copied profile gets wrong without any other test seeing it: the order of the classes, and figures with defaults.
#[test]
fn classes_are_in_order_and_siblings_are_as_far_apart_as_can_be() {
    for (name, text) in BUILTIN {
        let profile = Profile::parse(text).unwrap();
        let compute: Vec<f64> = profile.class.iter().map(|class| class.compute).collect();
        assert!(compute[0] == 1.0 && compute.is_sorted(), "{name}: fastest first: {compute:?}");
        let has_siblings = profile.class.iter().any(|class| class.smt > 1);
        assert_eq!(profile.memory.sibling_ns > 0.0, has_siblings, "{name}: memory.sibling_ns");
        for class in &profile.class {
            assert_eq!(
                class.smt_speed < 1.0,
                class.smt > 1,
                "{name}: class.{}.smt_speed",
                class.name
            );
        }
    }
}

#[test]
fn a_profile_survives_being_written() {
    for (_, text) in BUILTIN {
        let profile = Profile::parse(text).unwrap();
        assert_eq!(Profile::parse(&profile.to_toml()).unwrap(), profile);
    }
}

#[test]
fn every_figure_can_be_changed_by_its_path_and_only_within_reason() {
    for (name, text) in BUILTIN {
        let good = Profile::parse(text).unwrap();
        for (path, value) in good.figures() {
            if path == "memory.latency_ns" {
                continue; // a matrix: by its cells
            }
            let mut changed = good.clone();
            let other = value * 0.5 + 0.01; // a share remains one
            if ["cores", "domain", "smt", "buckets"].iter().any(|count| path.ends_with(count)) {
                changed.set(&path, other).unwrap_err();
                continue;
            }
            changed.set(&path, other).unwrap();
            assert!(changed.figures().contains(&(path.clone(), other)), "{name}: {path}");
            changed.set(&path, value).unwrap();
            assert_eq!(changed, good, "{name}: {path}");
        }
    }
    let mut m1 = builtin("m1").unwrap();
    let mut cells = m1.memory.latency_ns.clone();
    cells[0][1] = 99.0;
    m1.set("memory.latency_ns.0.1", 99.0).unwrap();
    assert_eq!(m1.memory.latency_ns, cells);
    let before = m1.clone();
    for (path, value, says) in [
        ("memory.occupancy", 1.5, "at most 1"),
        ("memory.occupancy", f64::NAN, "not a figure that can be"),
        ("cluster.0.cores", 0.5, "whole"),
        ("cluster.0.cores", 0.0, "at least one"),
        ("memory.latency_ns", 1.0, "no figure"),
        ("memory.latency_ns.0.7", 1.0, "no figure"),
        ("class.huge.nop_ns", 1.0, "no figure"),
        ("class.big", 1.0, "no figure"),
        ("name", 1.0, "no figure"),
        ("", 1.0, "no figure"),
    ] {
        let why = m1.set(path, value).unwrap_err().to_string();
        assert!(why.contains(says), "{path} = {value}: {why}");
        assert_eq!(m1, before);
    }
}

#[test]
fn impossible_machines_are_refused() {
    let good = BUILTIN[0].1;
    for (old, new, says) in [
        ("cores = 4", "cores = 0", "cluster.cores"),
        ("class = \"big\"", "class = \"huge\"", "cluster.class"),
        ("occupancy = 0", "occupancy = 1", "memory.occupancy"),
        ("share_ns = 6.0", "share_ns = -6.0", "memory.share_ns"),
        ("[memory]", "[memory]\ncolour = 1", "colour"),
    ] {
        let text = good.replacen(old, new, 1);
        assert_ne!(text, good, "{old}");
        let why = Profile::parse(&text).unwrap_err().to_string();
        assert!(why.contains(says), "{says}: {why}");
    }
}
