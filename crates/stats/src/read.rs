//! From files to numbers.

use crate::error::{Error, Why};
use crate::{Author, ClassStats, Epoch, Process};
use lockwright_contract::header::{CLASSES, Layout};
use lockwright_contract::histogram::middle;
use lockwright_contract::layout::{
    ClassBlock, EPOCHS, EpochHead, EpochsHeader, HEADS_AT, LENGTH, block_at,
};
use lockwright_contract::text::unpadded;
use lockwright_files::open_entry;
use lockwright_numbers::Times;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// All recordings (`*.stats`) of a folder, ordered by start. Files that are still being created are
/// left out.
///
/// # Errors
/// The folder or one of its files can't be read, or a file has another version.
pub fn read_dir(dir: &Path) -> Result<Vec<Process>, Error> {
    let system = |why| Error { path: dir.to_owned(), why: Why::System(why) };
    let mut processes = Vec::new();
    for entry in fs::read_dir(dir).map_err(system)? {
        let path = entry.map_err(system)?.path();
        if !path.as_os_str().as_encoded_bytes().ends_with(EpochsHeader::ENDING.as_bytes()) {
            continue;
        }
        match read_file(&path) {
            Ok(process) => processes.push(process),
            // Not complete yet, or not ours.
            Err(Error { why: Why::NotOurs(_), .. }) => {}
            Err(error) => return Err(error),
        }
    }
    processes.sort_by_key(|process| (process.start_ns, process.pid));
    Ok(processes)
}

/// One recording.
///
/// # Errors
/// The file can't be read, isn't a recording, or has another version.
pub fn read_file(path: &Path) -> Result<Process, Error> {
    let failed = |why| Error { path: path.to_owned(), why };
    let system = |error| failed(Why::System(error));
    let file = open_entry(path).map_err(system)?;
    if file.metadata().map_err(system)?.len() != LENGTH as u64 {
        return Err(failed(Why::NotOurs("a recording of epochs")));
    }
    let header: EpochsHeader = at(&file, 0).map_err(system)?;
    let author = Author::of::<EpochsHeader>(&header.common).map_err(|foreign| {
        failed(Why::foreign::<EpochsHeader>(foreign, "a recording of epochs"))
    })?;
    let mut process = Process::new(author);
    for slot in 0..EPOCHS {
        let head: EpochHead =
            at(&file, HEADS_AT + slot * size_of::<EpochHead>()).map_err(system)?;
        if head.id.load(Relaxed) == 0 {
            break;
        }
        process.epochs.push(epoch(&file, slot, &head).map_err(system)?);
    }
    Ok(process)
}

fn epoch(file: &File, slot: usize, head: &EpochHead) -> io::Result<Epoch> {
    let id = head.id.load(Relaxed) - 1;
    let name = head.name.each_ref().map(|byte| byte.load(Relaxed));
    let name = String::from_utf8_lossy(unpadded(&name)).into_owned();
    let mut classes = Vec::new();
    for class in (0..CLASSES).filter(|class| head.classes.load(Relaxed) & 1 << class != 0) {
        let block: ClassBlock = at(file, block_at(slot, class))?;
        let buckets = block.buckets.iter().enumerate();
        let latency: Times = buckets.map(|(at, count)| (middle(at), count.load(Relaxed))).collect();
        let count = latency.count();
        if count == 0 {
            continue;
        }
        classes.push(ClassStats {
            class: class as u8,
            count,
            violations: block.violations.load(Relaxed),
            window_ns: block.window_ns.load(Relaxed),
            min_ns: !block.min_inverted.load(Relaxed),
            max_ns: block.max_ns.load(Relaxed),
            at_fifo: block.at_fifo.load(Relaxed),
            at_fifo_violations: block.at_fifo_violations.load(Relaxed),
            latency,
        });
    }
    Ok(Epoch {
        id,
        name: if name.is_empty() { id.to_string() } else { name },
        slo_ns: head.slo_ns.load(Relaxed),
        percentile: f64::from(head.percentile.load(Relaxed)) / 10_000.0,
        classes,
    })
}

/// A type of a layout, all of whose fields are integers.
pub(crate) trait Plain {}
impl Plain for EpochsHeader {}
impl Plain for EpochHead {}
impl Plain for ClassBlock {}

/// Reads a piece of the file as one of the layouts' types.
pub(crate) fn at<T: Plain>(file: &File, offset: usize) -> io::Result<T> {
    let mut bytes = vec![0; size_of::<T>()];
    file.read_exact_at(&mut bytes, offset as u64)?;
    // SAFETY: there are as many bytes as the type has, and its fields are integers, for which all bit
    // patterns are valid.
    Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_contract::{About, Execution, Writer};
    use std::os::unix::ffi::OsStrExt;

    fn about() -> About<'static> {
        About { now_ns: 7, lock: b"asl", command: b"./server --fast", ..About::default() }
    }

    fn sample(latency_ns: u64, class: u8) -> Execution {
        Execution { latency_ns, slo_ns: 1000, window_ns: 16, next_window_ns: 8, class }
    }

    #[test]
    fn what_is_written_is_read_while_the_writer_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::create(dir.path().as_os_str().as_bytes(), &about()).unwrap();
        let slot = writer.slot(5).unwrap();
        writer.name(slot, "get".as_bytes());
        writer.percentile(slot, 999_000);
        for latency in 1..=2000 {
            writer.record(slot, &sample(latency, 0), 2_000_000);
        }
        writer.record(slot, &sample(5, 9), 2_500_000);
        let processes = read_dir(dir.path()).unwrap();
        let [process] = processes.as_slice() else { panic!("{processes:?}") };
        assert_eq!(process.pid, std::process::id());
        assert_eq!((process.lock.as_str(), process.command.as_str()), ("asl", "./server --fast"));
        assert_eq!(
            (process.emulated.as_deref(), process.start_ns, process.last_ns),
            (None, 7, 2_000_000)
        );
        let epoch = &process.epochs[0];
        assert_eq!((epoch.id, epoch.name.as_str(), epoch.slo_ns), (5, "get", 1000));
        assert_eq!(epoch.percentile, 99.9);
        let [big, little] = epoch.classes.as_slice() else { panic!("{epoch:?}") };
        assert_eq!((big.class, big.count, big.violations), (0, 2000, 1000));
        assert_eq!((big.min_ns, big.max_ns, big.window_ns), (1, 2000, 8));
        // 16 * 64 is more than 1000: not negligible.
        assert_eq!((big.at_fifo, big.at_fifo_violations), (0, 0));
        assert!(big.quantile(0.5).abs_diff(1000) <= 1000 / 64);
        assert_eq!((little.class, little.count, little.min_ns, little.max_ns), (3, 1, 5, 5));
        writer.record(slot, &sample(5, 9), 3_100_000);
        let again = read_dir(dir.path()).unwrap();
        assert_eq!((again[0].epochs[0].all().count, again[0].last_ns), (2002, 3_100_000));
    }

    #[test]
    fn places_are_one_for_each_epoch_until_there_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::create(dir.path().as_os_str().as_bytes(), &about()).unwrap();
        let first = writer.slot(9).unwrap();
        for id in 0..EPOCHS as u32 - 1 {
            assert_eq!(writer.slot(1000 + id), writer.slot(1000 + id));
        }
        assert_eq!(writer.slot(9), Some(first));
        assert_eq!(writer.slot(10), None);
    }

    #[test]
    fn each_recording_has_its_own_file_and_a_bad_folder_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().as_os_str().as_bytes();
        Writer::create(folder, &about()).unwrap();
        Writer::create(folder, &about()).unwrap();
        assert_eq!(read_dir(dir.path()).unwrap().len(), 2);
        assert!(Writer::create(b"/nowhere at all", &about()).is_err());
        assert!(read_dir("/nowhere at all".as_ref()).is_err());
        fs::write(dir.path().join("1-0.stats"), "something else").unwrap();
        assert_eq!(read_dir(dir.path()).unwrap().len(), 2);
    }
}
