//! RAPL (Intel's and AMD's energy counters) through Linux's powercap files:
//! `class/powercap/intel-rapl:0/energy_uj`.

use crate::gauge::{Gauge, Reader, Unit};
use crate::{Found, allow, folders, number, text};
use std::io::ErrorKind;
use std::path::Path;

/// The counters of all packages.
pub(crate) fn find(root: &Path) -> Found {
    let dir = root.join("class/powercap");
    let mut zones: Vec<_> = folders(&dir)
        .into_iter()
        .filter_map(|zone| Some((text(&zone.join("name"))?, zone)))
        .filter(|(name, _)| name.starts_with("package"))
        .collect();
    // Some machines list a package a second time, as a memory-mapped device.
    let is_second = |zone: &Path| zone.to_string_lossy().contains("-mmio");
    zones.sort_by_key(|(name, zone)| (name.clone(), is_second(zone)));
    zones.dedup_by(|(later, _), (first, _)| later == first);

    let (mut gauges, mut locked, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (_, zone) in zones {
        let (path, range) = (zone.join("energy_uj"), zone.join("max_energy_range_uj"));
        match (number(&path), number(&range)) {
            (Ok(_), Ok(most)) => {
                gauges.push(Gauge { reader: Reader::Text(path), unit: Unit::Wrapping(1e-6, most) });
                names.push(zone.file_name().unwrap_or_default().to_string_lossy().into_owned());
            }
            (Err(error), _) if error.kind() == ErrorKind::PermissionDenied => locked.push(path),
            (_, Err(error)) if error.kind() == ErrorKind::PermissionDenied => locked.push(range),
            _ => return Found::None, // without all packages it isn't the whole machine
        }
    }
    if !locked.is_empty() {
        return Found::Locked(allow(&locked));
    }
    match gauges.is_empty() {
        true => Found::None,
        false => Found::Gauges(gauges, names.join(", ")),
    }
}
