//! Tests of `targets`.

use super::*;
use crate::profile::{self, Origin};
use std::collections::BTreeSet;
use std::path::Path;

fn all() -> impl Iterator<Item = Figure> {
    FIGURES.iter().map(|(id, text)| {
        let figure = Figure::parse(text).unwrap_or_else(|why| panic!("{id}: {why}"));
        assert_eq!(figure.figure, *id);
        figure
    })
}

fn row(figure: &str, name: &str) -> Row {
    let rows = super::figure(figure).unwrap().row;
    rows.into_iter().find(|row| row.name == name).unwrap_or_else(|| panic!("{figure}: no {name}"))
}

#[test]
fn every_figure_reads_and_names_machines_that_there_are() {
    for figure in all() {
        assert!(!figure.row.is_empty(), "{}", figure.figure);
        let machines = figure.row.iter().filter_map(|row| row.machine.as_ref());
        for machine in machines.chain([&figure.machine]) {
            assert!(profile::builtin(machine).is_some(), "{}: {machine}", figure.figure);
        }
    }
}

/// A file that no list names is checked by nothing.
#[test]
fn every_file_is_in_the_list() {
    for (folder, listed) in [("targets", FIGURES), ("profiles", profile::BUILTIN)] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let files = folder.read_dir().unwrap().map(|file| file.unwrap().path());
        for file in files.filter(|file| file.extension().is_some_and(|end| end == "toml")) {
            let name = file.file_stem().unwrap().to_str().unwrap();
            let known = name == "left-out" || listed.iter().any(|(id, _)| *id == name);
            assert!(known, "{}: name it in `figures![...]` or `BUILTIN`", file.display());
        }
    }
}

#[test]
fn figures_of_one_workload_have_the_same_chosen_numbers() {
    for (id, same) in [
        ("libasl-8b", "libasl-8a"),
        ("libasl-8e", "libasl-4"),
        ("libasl-8f", "libasl-4"),
        ("libasl-8h", "libasl-8a"),
        ("libasl-8i", "libasl-8a"),
    ] {
        assert_eq!(super::figure(id).unwrap().chosen_as.as_deref(), Some(same), "{id}");
    }
    for figure in all() {
        let Some(other) = &figure.chosen_as else { continue };
        let theirs = super::figure(other).unwrap_or_else(|| panic!("{}", figure.figure));
        assert!(theirs.chosen_as.is_none() && !theirs.chosen.is_empty(), "{}", figure.figure);
        let ours = super::figure(&figure.figure).unwrap().chosen;
        assert!(ours.keys().eq(theirs.chosen.keys()), "{}", figure.figure);
    }
}

#[test]
fn shares_and_fairness_stay_between_0_and_1() {
    for figure in all() {
        for row in figure.row.iter().filter(|row| matches!(row.unit, Unit::Share | Unit::Fairness))
        {
            let given = [row.paper, row.paper_low, row.paper_high, row.low, row.high];
            let inside = given.into_iter().flatten().all(|value| (0.0..=1.0).contains(&value));
            assert!(inside, "{}: {}", figure.figure, row.name);
        }
    }
}

#[test]
fn a_fitted_figure_of_a_profile_names_figures_that_there_are() {
    for (name, _) in profile::BUILTIN {
        for (path, from) in &profile::builtin(name).unwrap().provenance {
            for target in &from.targets {
                assert!(super::figure(target).is_some(), "{name}: {path}: {target}");
            }
        }
    }
}

#[test]
fn what_a_machine_is_fitted_to_and_the_fitted_figures_name_each_other() {
    let mut of_profiles = BTreeSet::new();
    for (name, _) in profile::BUILTIN {
        for from in profile::builtin(name).unwrap().provenance.values() {
            of_profiles
                .extend(from.targets.iter().map(|target| ((*name).to_owned(), target.clone())));
        }
    }
    let mut of_rows = BTreeSet::new();
    for figure in all() {
        for row in figure.row.iter().filter(|row| row.fit) {
            let machine = row.machine.as_ref().unwrap_or(&figure.machine);
            of_rows.insert((machine.clone(), figure.figure.clone()));
        }
    }
    assert_eq!(of_rows, of_profiles);
}

/// A profile with as many free figures as rows would meet them all, and prove nothing.
#[test]
fn no_more_figures_are_fitted_than_rows() {
    for (name, _) in profile::BUILTIN {
        let profile = profile::builtin(name).unwrap();
        let is_fitted = |path: &String| {
            profile.provenance_of(path).is_some_and(|from| from.kind == Origin::Fitted)
        };
        let paths: BTreeSet<String> = profile.figures().into_iter().map(|(path, _)| path).collect();
        let figures = paths.iter().filter(|path| is_fitted(path)).count();
        let of_profile = |figure: &Figure, row: &Row| {
            row.fit && row.machine.as_ref().unwrap_or(&figure.machine) == name
        };
        let rows: usize = all()
            .map(|figure| figure.row.iter().filter(|row| of_profile(&figure, row)).count())
            .sum();
        assert!(figures <= rows, "{name}: {figures} figures, {rows} rows");
        assert!(*name != "m1" || figures < rows, "{name}: {figures} figures, {rows} rows");
    }
}

#[test]
fn errors_are_ratios_and_there_is_none_within_a_bound() {
    let bound = row("libasl-1", "tas-8/tas-4");
    assert_eq!((bound.error(0.4), bound.error(1.0)), (0.0, 0.0));
    assert!((bound.error(2.0) - 2.0_f64.ln()).abs() < 1e-9);
    let number = row("libasl-1", "tas-8/mcs-8");
    assert!((number.error(1.3) - 2.0_f64.ln()).abs() < 1e-9);
    assert!((number.error(0.325) + 2.0_f64.ln()).abs() < 1e-9);
    assert!([f64::NAN, 0.0, f64::INFINITY].iter().all(|none| bound.error(*none).is_infinite()));
}

#[test]
fn the_paper_does_not_contradict_what_is_accepted() {
    for figure in all() {
        for row in figure.row.iter().filter(|row| row.paper.is_some()) {
            let readings = row.reading.iter().map(|reading| reading.paper).chain(row.paper);
            let some = readings.into_iter().any(|paper| row.accepts(paper));
            assert!(some, "{}: {}", figure.figure, row.name);
        }
    }
}

#[test]
fn the_bars_are_as_agreed() {
    let near = |row: &Row, low: Option<f64>, high: Option<f64>| {
        let same = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() < 1e-9,
            (a, b) => a == b,
        };
        let (l, h) = row.accepted();
        assert!(same(l, low) && same(h, high), "{}: {l:?} to {h:?}", row.name);
    };
    near(&row("libasl-1", "mcs-8/mcs-4"), Some(0.375), Some(0.55));
    let order = |paper: f64| (Some(paper.cbrt()), Some(paper.powi(3)));
    let (low, high) = order(1.32);
    near(&row("libasl-4", "tas-8/mcs-8"), low, high);
    let (low, high) = order(0.94);
    near(&row("libasl-8a", "asl-50/asl-opt"), high, low);
    near(&row("libasl-1", "tas-8/mcs-8"), Some(0.5525), Some(0.7475));
    near(&row("libasl-1", "p99 tas-8/mcs-8"), Some(4.65), Some(7.75));
    near(&row("libasl-8a", "asl-max/mcs"), Some(1.275), Some(2.125));
    near(&row("libasl-8a", "asl-0/mcs"), Some(0.98), Some(1.02));
    near(&row("libasl-8g", "transition asl/mcs-4"), Some(0.84), None);
    near(&row("cal-7", "fairness ticket"), Some(0.477), Some(0.583));
    near(&row("libasl-8h", "asl-pthread/glibc"), Some(1.35), Some(2.25));
    near(&row("libasl-8a", "asl-25/tas"), Some(0.9), Some(1.1));
}

#[test]
fn a_lock_that_the_catalogue_lacks_is_missing() {
    let row_of = |lock: &str| Row {
        locks: vec![lock.to_owned()],
        ..row("rcl-micro", "rcl overtakes glibc")
    };
    assert_eq!(row_of("no-such-lock").missing(), ["no-such-lock"]);
    assert!(row("libasl-8a", "asl-max/glibc").missing().is_empty());
}

#[test]
fn rows_that_say_nothing_are_refused() {
    let text = |row: &str| {
        format!(
            "figure = 'x'\ntitle = 'x'\npaper = 'x'\nsection = 'x'\nmachine = 'm1'\nshows = 'x'\n\
             [setup]\nthreads = 'x'\ncritical_section = 'x'\ngap = 'x'\nlocks = 'x'\nmetric = 'x'\n\
             [[row]]\nname = 'r'\nwhat = 'x'\nunit = 'ratio'\nwrong = 'mcs is tas'\nkind = 'number'\n{row}"
        )
    };
    let good = "locks = ['mcs']\npaper = 2.0\nquote = 'x'\n";
    assert!(Figure::parse(&text(good)).unwrap().row[0].accepts(2.4));
    let both =
        format!("chosen_as = 'y'\n{}[chosen.a]\nvalue = 1\nwhat = 'x'\nwhy = 'x'", text(good));
    assert!(Figure::parse(&both).unwrap_err().to_string().contains("exclude"));
    let nothing = text(good).replace("mcs is tas", "");
    assert!(Figure::parse(&nothing).unwrap_err().to_string().contains("no wrong model"));
    for (bad, says) in [
        ("locks = []\npaper = 2.0\nquote = 'x'\n", "no lock"),
        ("locks = ['mcs']\n", "expect anything"),
        ("locks = ['mcs']\npaper = 2.0\n", "belong together"),
        ("locks = ['mcs']\nlow = 2.0\nhigh = 1.0\n", "above"),
        ("locks = ['mcs']\npaper = 2.0\npaper_low = 1.0\nquote = 'x'\n", "exclude"),
        ("locks = ['mcs']\npaper = 2.0\nquote = 'x'\ncolour = 1\n", "colour"),
        ("locks = ['mcs']\npaper = 0.0\nquote = 'x'\nfit = true\n", "logarithms"),
        ("locks = ['mcs']\npaper = 2.0\nquote = 'x'\nfit = true\nweight = 0\n", "weight"),
        ("locks = ['mcs']\npaper = 2.0\nquote = 'x'\nfit = true\nheld_out = true\n", "held out"),
        ("locks = ['mcs']\nlow = 2.0\n", "one, or a range"),
        ("locks = ['mcs']\npaper_low = 2.0\nquote = 'x'\n", "one, or a range"),
        ("locks = ['mcs']\npaper = 2.0\nhigh = 2.6\nquote = 'x'\n", "has a reason"),
        ("locks = ['mcs']\npaper = 2.0\nlow = 1.8\nquote = 'x'\nbecause = 'x'\n", "no other does"),
    ] {
        let why = Figure::parse(&text(bad)).unwrap_err().to_string();
        assert!(why.contains(says), "{says}: {why}");
    }
}

#[test]
fn a_kind_is_stated_and_fits_what_the_paper_says() {
    let text = |row: &str| {
        format!(
            "figure = 'x'\ntitle = 'x'\npaper = 'x'\nsection = 'x'\nmachine = 'm1'\nshows = 'x'\n\
             [setup]\nthreads = 'x'\ncritical_section = 'x'\ngap = 'x'\nlocks = 'x'\nmetric = 'x'\n\
             [[row]]\nname = 'r'\nwhat = 'x'\nunit = 'ratio'\nwrong = 'mcs is tas'\nlocks = ['mcs']\n{row}"
        )
    };
    let why = |row: &str| Figure::parse(&text(row)).unwrap_err().to_string();
    assert!(why("paper = 2.0\nquote = 'x'\n").contains("kind"));
    let direction = "kind = 'direction'\nquote = 'x'\n";
    assert!(why(&format!("{direction}paper = 2.0\n")).contains("no number"));
    let row = Figure::parse(&text(&format!("{direction}paper_low = 2.0\n"))).unwrap().row.remove(0);
    assert_eq!(
        (row.accepts(2.0), row.accepts(2.01)),
        (false, true),
        "nothing differs at the bound"
    );
    assert!(why("kind = 'direction'\nlow = 2.0\nfit = true\n").contains("paper says"));
    assert!(why("kind = 'number'\npaper = 1.2\nquote = 'x'\n").contains("a sign"));
    for bad in ["paper = 2.0", "paper = 1.0", "paper = 1.2\nlow = 1.1"] {
        assert!(why(&format!("kind = 'sign'\nquote = 'x'\n{bad}\n")).contains("sign"), "{bad}");
    }
    assert!(why("kind = 'same'\npaper = 1.2\nquote = 'x'\n").contains("ratio 1"));
    let sign = "kind = 'sign'\npaper = 0.8\nquote = 'x'\n";
    let row = Figure::parse(&text(sign)).unwrap().row.remove(0);
    let sides = [(0.7, 0.99), (0.9, 1.01), (1.1, 1.2)].map(|interval| row.is_same_sign(interval));
    assert_eq!(sides, [true, false, false]);
    assert!([0.55, 0.8, 0.92].iter().all(|near| row.accepts(*near)));
    assert!([0.5, 0.99, 1.2].iter().all(|far| !row.accepts(*far)));
    let wide = "kind = 'number'\npaper = 2.0\nhigh = 3.0\nquote = 'x'\nbecause = 'x'\n";
    let row = Figure::parse(&text(wide)).unwrap().row.remove(0);
    assert_eq!((row.accepted(), row.is_near(2.8)), ((Some(1.5), Some(3.0)), Some(false)));
}

#[test]
fn each_number_is_two_sided_and_what_it_repeats_is_there() {
    for figure in all() {
        for row in &figure.row {
            let (low, high) = row.accepted();
            if row.kind == Kind::Number {
                assert!(low.is_some() && high.is_some(), "{}: {}", figure.figure, row.name);
            }
            let Some((other, name)) = row.repeats.as_ref().map(|r| r.split_once(": ").unwrap())
            else {
                continue;
            };
            let first = self::row(other, name);
            assert!(first.repeats.is_none(), "{}: {}: of a chain", figure.figure, row.name);
        }
    }
}

#[test]
fn what_is_left_out_is_not_run_and_says_why() {
    let left_out = left_out();
    assert!(!left_out.is_empty());
    for one in left_out {
        assert!(super::figure(&one.figure).is_none(), "{}", one.figure);
        assert!(one.reason.len() > 20 && !one.what.is_empty(), "{}", one.figure);
    }
}

#[test]
fn no_result_is_no_pass() {
    assert!(!row("libasl-8a", "asl-max/mcs").accepts(f64::NAN));
}
