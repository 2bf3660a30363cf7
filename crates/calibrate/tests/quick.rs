//! Calibrates this machine quickly. CI machines are noisy, so check only that each figure exists and states its
//! origin, not its value.

use lockwright_calibrate::{Options, Origin, STEPS, calibrate};
use lockwright_sim::profile::Profile;

#[test]
fn a_quick_profile_is_complete_and_says_where_each_figure_comes_from() {
    let mut steps = 0;
    let options = Options { quick: true, ..Options::default() };
    let made = calibrate(options, &mut |_| steps += 1).unwrap();
    assert_eq!(steps, STEPS);
    let profile = Profile::parse(&made.profile.to_toml()).unwrap();
    assert_eq!(profile, made.profile);
    assert_eq!(profile.name, "here");
    assert_eq!(profile.cpus() as usize, lockwright_bench::cpus().len());
    for (path, value) in profile.figures() {
        let from =
            profile.provenance_of(&path).unwrap_or_else(|| panic!("{path} comes from nowhere"));
        assert!(!from.source.is_empty() && from.kind != Origin::Fitted, "{path}");
        // The ledger and the profile agree; a matrix's cells share their path.
        let entered =
            made.figures.iter().filter(|figure| figure.path.split('[').next() == Some(&path));
        assert!(entered.into_iter().any(|figure| figure.value == value), "{path} = {value}");
    }
    for path in profile.provenance.keys() {
        let is_written = profile.figures().iter().any(|(figure, _)| figure == path);
        // A profile leaves out figures that are 0, and on a noisy machine small figures may come out as 0.
        let is_nothing = made.figures.iter().any(|one| one.path == *path && one.value == 0.0);
        assert!(is_written || is_nothing, "provenance of nothing: {path}");
    }
    // If these are measured everywhere, none may be assumed instead.
    for figure in made.figures.iter().filter(|figure| figure.path.ends_with(".ghz")) {
        assert_eq!(figure.kind, Origin::Measured);
        assert!(figure.samples + figure.rejected.all() >= 3, "{figure:?}");
    }
}
