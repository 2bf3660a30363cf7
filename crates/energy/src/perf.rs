//! The same counters through perf events: `bus/event_source/devices/power`, for machines where powercap is missing
//! or closed.

use crate::gauge::{Gauge, Reader, Unit};
use crate::{Found, text};
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::fd::FromRawFd;
use std::path::Path;

/// The packages' event.
const EVENT: &str = "energy-pkg";

/// The command that lets everybody open events of whole CPUs.
const MEND: &str = "sudo sysctl kernel.perf_event_paranoid=0";

/// One event for each package.
pub(crate) fn find(root: &Path) -> Found {
    let dir = root.join("bus/event_source/devices/power");
    let Some(event) = Event::read(&dir) else { return Found::None };
    let mut gauges = Vec::new();
    for &cpu in &event.cpus {
        match open(event.device, event.config, cpu) {
            Ok(file) => {
                let unit = Unit::Energy(event.joules);
                gauges.push(Gauge { reader: Reader::Event(file), unit });
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Found::Locked(MEND.to_owned());
            }
            // A container's filter may forbid the call, or no device may have the file's number.
            Err(_) => return Found::None,
        }
    }
    match gauges.is_empty() {
        true => Found::None,
        false => Found::Gauges(gauges, format!("power/{EVENT}/ of {} packages", event.cpus.len())),
    }
}

/// The kernel's description of the event.
#[derive(Debug, PartialEq)]
struct Event {
    device: u32,
    config: u64,
    /// A CPU of each package.
    cpus: Vec<i32>,
    /// Joules per count.
    joules: f64,
}

impl Event {
    fn read(dir: &Path) -> Option<Self> {
        let events = dir.join("events");
        // `event=0x02`
        let config = text(&events.join(EVENT))?;
        let config = config.strip_prefix("event=")?;
        let config = match config.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok()?,
            None => config.parse().ok()?,
        };
        if text(&events.join(format!("{EVENT}.unit")))? != "Joules" {
            return None;
        }
        Some(Self {
            device: text(&dir.join("type"))?.parse().ok()?,
            config,
            cpus: list(&text(&dir.join("cpumask"))?)?,
            joules: text(&events.join(format!("{EVENT}.scale")))?.parse().ok()?,
        })
    }
}

/// `0-1,4`.
fn list(text: &str) -> Option<Vec<i32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse::<i32>().ok()?..=last.parse().ok()?);
    }
    Some(all)
}

/// The first version of `struct perf_event_attr`, which every kernel accepts (linux/perf_event.h); `libc` has none.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    device: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// Counts an event on a CPU, for all programs, from now on.
fn open(device: u32, config: u64, cpu: i32) -> Result<File, Error> {
    let size = size_of::<Attributes>() as u32;
    let attributes = Attributes { device, size, config, ..Attributes::default() };
    // SAFETY: the call reads `attributes`, which state their own size, and returns a descriptor of ours, or -1.
    unsafe {
        let (all, no_group) = (-1, -1);
        let flags = 8; // PERF_FLAG_FD_CLOEXEC, which `libc` lacks, too
        let made = libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            all,
            cpu,
            no_group,
            flags,
        );
        match i32::try_from(made) {
            Ok(descriptor) if descriptor >= 0 => Ok(File::from_raw_fd(descriptor)),
            _ => Err(Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_event_is_what_the_kernel_says() {
        assert_eq!(size_of::<Attributes>(), 64);
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        fs::create_dir(dir.path().join("events")).unwrap();
        write("type", "27\n");
        write("cpumask", "0,18-19\n");
        write("events/energy-pkg", "event=0x02\n");
        write("events/energy-pkg.scale", "2.3283064365386962890625e-10\n");
        assert_eq!(Event::read(dir.path()), None, "its unit is not known");
        write("events/energy-pkg.unit", "Joules\n");
        let joules = 2f64.powi(-32);
        let wanted = Event { device: 27, config: 2, cpus: vec![0, 18, 19], joules };
        assert_eq!(Event::read(dir.path()), Some(wanted));
        write("cpumask", "some\n");
        assert_eq!(Event::read(dir.path()), None);
    }

    #[test]
    fn an_event_counts_or_says_why_not() {
        // One of the kernel's clocks (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK) stands in for the counter.
        match open(1, 0, 0) {
            Ok(file) => {
                let gauge = Gauge { reader: Reader::Event(file), unit: Unit::Energy(1e-9) };
                let mut sum = crate::gauge::Sum::begin(std::slice::from_ref(&gauge));
                std::thread::sleep(std::time::Duration::from_millis(2));
                sum.add(std::slice::from_ref(&gauge));
                assert!(sum.joules().unwrap() > 0.0, "{sum:?}");
            }
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
        // No device has this number.
        open(u32::MAX, 0, 0).unwrap_err();
    }
}
