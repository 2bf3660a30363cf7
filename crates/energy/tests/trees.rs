//! Sources on trees like `/sys`.

use lockwright_energy::{Source, SourceKind, Watts};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// A tree of files.
struct Tree(TempDir);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        // Another user reads it, see `as_nobody`.
        fs::set_permissions(tree.0.path(), Permissions::from_mode(0o755)).unwrap();
        files.iter().for_each(|(name, text)| tree.write(name, text));
        tree
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn source(&self) -> Source {
        Source::find(self.0.path(), Watts::assumed())
    }
}

const ZONE: &str = "class/powercap/intel-rapl:0";

fn rapl() -> Tree {
    Tree::new(&[
        ("class/powercap/intel-rapl:0/name", "package-0"),
        ("class/powercap/intel-rapl:0/energy_uj", "900000000"),
        ("class/powercap/intel-rapl:0/max_energy_range_uj", "1000000000"),
        // A part of the package, the whole a second time, and another package.
        ("class/powercap/intel-rapl:0:0/name", "core"),
        ("class/powercap/intel-rapl:0:0/energy_uj", "7"),
        ("class/powercap/intel-rapl:0:0/max_energy_range_uj", "1000000000"),
        ("class/powercap/intel-rapl-mmio:0/name", "package-0"),
        ("class/powercap/intel-rapl-mmio:0/energy_uj", "900000000"),
        ("class/powercap/intel-rapl-mmio:0/max_energy_range_uj", "1000000000"),
        ("class/powercap/intel-rapl:1/name", "package-1"),
        ("class/powercap/intel-rapl:1/energy_uj", "0"),
        ("class/powercap/intel-rapl:1/max_energy_range_uj", "1000000000"),
    ])
}

fn close(joules: Option<f64>, wanted: f64) {
    assert!((joules.unwrap() - wanted).abs() < 1e-6, "{joules:?}, not {wanted}");
}

#[test]
fn rapl_adds_the_packages_up_and_survives_their_wrapping() {
    let tree = rapl();
    let source = tree.source();
    assert_eq!((source.kind(), source.what()), (SourceKind::Rapl, "intel-rapl:0, intel-rapl:1"));
    assert_eq!(source.tag(), "joules (rapl)");
    assert!(source.is_counter() && source.notes().is_empty());
    let running = source.start();
    tree.write(&format!("{ZONE}/energy_uj"), "950000000");
    tree.write("class/powercap/intel-rapl-mmio:0/energy_uj", "950000000");
    tree.write("class/powercap/intel-rapl:1/energy_uj", "2500000");
    close(running.stop(Duration::ZERO), 52.5);

    let running = source.start();
    tree.write(&format!("{ZONE}/energy_uj"), "30000000");
    close(running.stop(Duration::ZERO), 80.0);

    let running = source.start();
    fs::remove_file(tree.path(&format!("{ZONE}/energy_uj"))).unwrap();
    assert_eq!(running.stop(Duration::ZERO), None, "no figure beats a wrong one");
}

/// Runs `look` as a user who is subject to file permissions, even if we are root.
fn as_nobody<T: Send>(look: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let look = || {
            // SAFETY: concerns only this thread, which ends. Without privileges nothing changes.
            unsafe { libc::setfsuid(65_534) };
            look()
        };
        scope.spawn(look).join().unwrap()
    })
}

#[test]
fn a_locked_counter_says_how_to_open_it_and_the_next_source_serves() {
    let tree = rapl();
    let lock = |name: &str| {
        fs::set_permissions(tree.path(name), Permissions::from_mode(0o000)).unwrap();
    };
    lock(&format!("{ZONE}/energy_uj"));
    let source = as_nobody(|| tree.source());
    let counter = tree.path(&format!("{ZONE}/energy_uj"));
    let mend = format!("no rapl: sudo chmod a+r {}", counter.display());
    assert_eq!((source.kind(), source.notes()), (SourceKind::Model, &[mend.clone()][..]));
    assert!(source.lines()[0].starts_with("joules (model): 4.6 W busy"), "{source:?}");

    tree.write("class/hwmon/hwmon0/name", "power_meter");
    tree.write("class/hwmon/hwmon0/power1_average", "40000000");
    let source = as_nobody(|| tree.source());
    assert_eq!((source.kind(), source.notes()), (SourceKind::Hwmon, &[mend.clone()][..]));

    lock("class/hwmon/hwmon0/power1_average");
    let source = as_nobody(|| tree.source());
    assert_eq!((source.kind(), source.notes().len()), (SourceKind::Model, 2));
    assert!(source.notes()[1].starts_with("no hwmon: sudo chmod a+r "), "{source:?}");
}

#[test]
fn half_of_the_packages_are_no_machine() {
    let tree = rapl();
    fs::remove_file(tree.path("class/powercap/intel-rapl:1/max_energy_range_uj")).unwrap();
    assert_eq!(tree.source().kind(), SourceKind::Model);
}

#[test]
fn sensors_of_the_whole_come_before_those_of_its_parts() {
    let tree = Tree::new(&[
        ("class/hwmon/hwmon0/name", "amdgpu"),
        ("class/hwmon/hwmon0/device/class", "0x030000"),
        ("class/hwmon/hwmon0/energy1_input", "1"),
        ("class/hwmon/hwmon1/name", "power_meter"),
        ("class/hwmon/hwmon1/power1_input", "30000000"),
        ("class/hwmon/hwmon2/name", "amd_energy"),
        ("class/hwmon/hwmon2/energy1_input", "0"),
        ("class/hwmon/hwmon2/energy1_label", "Ecore000"),
        ("class/hwmon/hwmon2/energy3_input", "1000000"),
        ("class/hwmon/hwmon2/energy3_label", "Esocket0"),
    ]);
    let source = tree.source();
    assert_eq!(
        (source.kind(), source.what()),
        (SourceKind::Hwmon, "amd_energy energy3_input (Esocket0)")
    );
    assert!(!source.is_counter());
    let running = source.start();
    tree.write("class/hwmon/hwmon2/energy1_input", "500000000");
    tree.write("class/hwmon/hwmon2/energy3_input", "4000000");
    close(running.stop(Duration::ZERO), 3.0);
}

#[test]
fn power_is_summed_up() {
    let tree = Tree::new(&[
        ("class/hwmon/hwmon1/name", "power_meter"),
        ("class/hwmon/hwmon1/power1_input", "30000000"),
    ]);
    let source = tree.source();
    assert_eq!(source.what(), "power_meter power1_input");
    let start = std::time::Instant::now();
    let running = source.start();
    std::thread::sleep(Duration::from_millis(120));
    let joules = running.stop(Duration::ZERO).unwrap();
    // 30 W all the time, however long it took.
    let most = 30.0 * start.elapsed().as_secs_f64();
    assert!((30.0 * 0.12..=most).contains(&joules), "{joules} of {most}");
}

#[test]
fn a_battery_counts_while_it_feeds_the_machine() {
    let tree = Tree::new(&[
        ("class/power_supply/AC/type", "Mains"),
        ("class/power_supply/mouse/type", "Battery"),
        ("class/power_supply/mouse/scope", "Device"),
        ("class/power_supply/mouse/status", "Discharging"),
        ("class/power_supply/mouse/energy_now", "1"),
        ("class/power_supply/BAT0/type", "Battery"),
        ("class/power_supply/BAT0/status", "Charging"),
        ("class/power_supply/BAT0/energy_now", "50000000"),
    ]);
    let source = tree.source();
    assert_eq!(source.kind(), SourceKind::Model);
    assert_eq!(source.notes(), ["no battery: unplug the charger (BAT0)"]);

    tree.write("class/power_supply/BAT0/status", "Discharging");
    let source = tree.source();
    assert_eq!((source.kind(), source.what()), (SourceKind::Battery, "BAT0"));
    let running = source.start();
    // 10 mWh.
    tree.write("class/power_supply/BAT0/energy_now", "49990000");
    close(running.stop(Duration::ZERO), 36.0);

    // Power is finer: 2 A at 10 V. (In the kernel's convention the current is negative while a battery is used, but
    // not all drivers keep to it.)
    tree.write("class/power_supply/BAT0/current_now", "-2000000");
    tree.write("class/power_supply/BAT0/voltage_now", "10000000");
    let start = std::time::Instant::now();
    let running = tree.source().start();
    std::thread::sleep(Duration::from_millis(20));
    let joules = running.stop(Duration::ZERO).unwrap();
    assert!((0.4..=20.0 * start.elapsed().as_secs_f64()).contains(&joules), "{joules}");
}

#[test]
fn an_empty_tree_says_why() {
    let source = Tree::new(&[]).source();
    assert_eq!((source.kind(), source.tag().as_str()), (SourceKind::Model, "joules (model)"));
    assert_eq!(source.notes().len(), 1);
    assert!(source.notes()[0].starts_with("nothing measures here"), "{source:?}");
    let joules = source.start().stop(Duration::from_secs(10)).unwrap();
    assert!(joules > 46.0, "{joules}: ten CPU seconds");
}
