//! Sensors: `class/hwmon/hwmon0/energy1_input` (microjoules), or else `power1_input` or `power1_average` (microwatts).

use crate::gauge::{Gauge, Reader, Unit};
use crate::{Found, allow, folders, number, text};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The first sensor with energy, or else the first with power.
pub(crate) fn find(root: &Path) -> Found {
    let devices: Vec<_> = folders(&root.join("class/hwmon"))
        .into_iter()
        .filter(|device| !is_elsewhere(device))
        .collect();
    let kinds: [(&str, &[&str], Unit); 2] =
        [("energy", &["input"], Unit::Energy(1e-6)), ("power", &["input", "average"], Unit::Power)];
    let mut locked = Found::None;
    for (what, ends, unit) in kinds {
        for device in &devices {
            let inputs = inputs(device, what, ends);
            let errors = inputs.iter().filter_map(|path| number(path).err());
            let kinds: Vec<_> = errors.map(|error| error.kind()).collect();
            if inputs.is_empty() {
                continue;
            }
            if kinds.is_empty() {
                let names = inputs.iter().map(|path| name(device, path)).collect::<Vec<_>>();
                let gauge = |path| Gauge { reader: Reader::Text(path), unit };
                return Found::Gauges(inputs.into_iter().map(gauge).collect(), names.join(", "));
            }
            if kinds.contains(&ErrorKind::PermissionDenied) && matches!(locked, Found::None) {
                locked = Found::Locked(allow(&inputs));
            }
        }
    }
    locked
}

/// Does it measure something other than processors or the machine, such as a display adapter, or a battery, which may
/// be charging?
fn is_elsewhere(device: &Path) -> bool {
    let of = device.join("device");
    let is_display = text(&of.join("class")).is_some_and(|class| class.starts_with("0x03"));
    is_display || of.join("capacity").exists()
}

/// A device's inputs of that kind: those labelled as a whole, or else only the first one, because others may be parts
/// of it.
fn inputs(device: &Path, what: &str, ends: &[&str]) -> Vec<PathBuf> {
    let path = |number: usize, end: &str| device.join(format!("{what}{number}_{end}"));
    let input = |number: usize| ends.iter().map(|end| path(number, end)).find(|path| path.exists());
    // The kernel numbers them from 1; a socket with 128 cores has one for each core.
    let all: Vec<_> = (1..=512).filter_map(|number| Some((number, input(number)?))).collect();
    let is_whole = |number: usize| {
        let label = text(&path(number, "label")).unwrap_or_default().to_lowercase();
        ["socket", "package", "total", "system"].iter().any(|word| label.contains(word))
    };
    let wholes: Vec<_> = all.iter().filter(|(number, _)| is_whole(*number)).collect();
    let chosen = if wholes.is_empty() { all.iter().take(1).collect() } else { wholes };
    chosen.into_iter().map(|(_, path)| path.clone()).collect()
}

/// `amd_energy energy1_input (Esocket0)`.
fn name(device: &Path, input: &Path) -> String {
    let file = input.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let label =
        file.rsplit_once('_').and_then(|(stem, _)| text(&device.join(format!("{stem}_label"))));
    let label = label.map_or(String::new(), |label| format!(" ({label})"));
    format!("{} {file}{label}", text(&device.join("name")).unwrap_or("hwmon".into()))
}
