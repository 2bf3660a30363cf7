//! The energy from a battery: `class/power_supply/BAT0`, while the machine runs on it.

use crate::gauge::{Gauge, Reader, Unit};
use crate::{Found, folders, number, text};
use std::path::Path;

/// A microwatt-hour, joules.
const UWH: f64 = 3600e-6;

/// All batteries of the machine. Power is better than energy, which moves in steps of tens of
/// joules.
pub(crate) fn find(root: &Path) -> Found {
    let is = |path: &Path, file: &str, word: &str| {
        text(&path.join(file)).is_some_and(|text| text.eq_ignore_ascii_case(word))
    };
    let batteries = folders(&root.join("class/power_supply")).into_iter().filter(|path| {
        // A battery with the scope "Device" is a mouse's or the like.
        is(path, "type", "battery") && !is(path, "scope", "device")
    });
    let (mut gauges, mut names, mut is_fed) = (Vec::new(), Vec::new(), false);
    for path in batteries {
        is_fed |= !is(&path, "status", "discharging");
        let read = |file: &str| number(&path.join(file)).is_ok();
        let (reader, unit) = if read("power_now") {
            (Reader::Text(path.join("power_now")), Unit::Power)
        } else if read("current_now") && read("voltage_now") {
            (Reader::Product(path.join("current_now"), path.join("voltage_now")), Unit::Power)
        } else if read("energy_now") {
            (Reader::Text(path.join("energy_now")), Unit::Energy(-UWH))
        } else {
            continue;
        };
        gauges.push(Gauge { reader, unit });
        names.push(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
    }
    match (gauges.is_empty(), is_fed) {
        (true, _) => Found::None,
        (false, true) => Found::Locked(format!("unplug the charger ({})", names.join(", "))),
        (false, false) => Found::Gauges(gauges, names.join(", ")),
    }
}
