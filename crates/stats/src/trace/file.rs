//! The file: [`MAGIC`], [`VERSION`] as four bytes, little-endian, then a [`Trace`] as postcard writes it: every
//! integer takes as many bytes as it needs.

use super::Trace;
use crate::Error;
use crate::error::Why;
use lockwright_files::map_file;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// The first eight bytes.
pub const MAGIC: [u8; 8] = *b"lwtrace\n";
/// Counts the changes of [`Trace`]'s layout.
pub const VERSION: u32 = 2;

impl Trace {
    /// Writes it to an open file; `path` is for the error message.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&self, mut file: File, path: &Path) -> Result<(), Error> {
        let bytes = self.to_bytes();
        file.write_all(&bytes).map_err(|error| Error::new(path, Why::Unwritable(error)))
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        postcard::to_extend(self, bytes).expect("a trace is data, and memory takes what is added")
    }

    /// Reads a trace file.
    ///
    /// # Errors
    /// The system's error; or the file isn't a trace, has another version, or is damaged.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let failed = |why| Error::new(path, why);
        let bytes = map_file(path).map_err(|error| failed(Why::System(error)))?;
        Self::from_bytes(&bytes).map_err(failed)
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Why> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(Why::NotOurs("a trace of locks"))?;
        let (version, rest) =
            rest.split_first_chunk().ok_or_else(|| Why::Damaged("it ends early".into()))?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(Why::Version(version, VERSION));
        }
        let trace: Self = match postcard::take_from_bytes(rest) {
            Ok((trace, [])) => trace,
            Ok(_) => return Err(Why::Damaged("more follows its end".into())),
            Err(postcard::Error::DeserializeUnexpectedEnd) => {
                return Err(Why::Damaged("it ends early".into()));
            }
            Err(error) => return Err(Why::Damaged(error.to_string())),
        };
        trace.fault().map_or(Ok(trace), |what| Err(Why::Damaged(what)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{LockInfo, Meta, Place, Step, TraceThread};
    use proptest::prelude::*;

    /// Steps of a thread that ignore the rules about what it holds.
    fn steps() -> impl Strategy<Value = Vec<(u8, u32, u64)>> {
        prop::collection::vec((0..4_u8, 0..5_u32, any::<u64>()), 0..60)
    }

    /// The same, made to follow these rules.
    fn legal(wishes: Vec<(u8, u32, u64)>) -> Vec<Step> {
        let mut held = Vec::new();
        let mut steps = Vec::new();
        for (what, lock, ns) in wishes {
            match what {
                0 => steps.push(Step::Compute(ns)),
                1 => steps.push(Step::Idle(ns)),
                _ if held.contains(&lock) => {
                    held.retain(|&other| other != lock);
                    steps.push(Step::Release(lock));
                }
                _ => {
                    held.push(lock);
                    steps.push(Step::Acquire { lock, wait_ns: ns });
                }
            }
        }
        steps.extend(held.into_iter().map(Step::Release));
        steps
    }

    prop_compose! {
        fn trace()(
            wishes in prop::collection::vec(steps(), 0..4),
            class in any::<Option<u8>>(), start_ns in any::<u64>(), dropped in any::<u64>(),
            command in ".{0,20}", emulated in any::<Option<String>>(), address in any::<u64>(),
            symbol in any::<Option<String>>(),
        ) -> Trace {
            let thread = |wishes| TraceThread { process: 0, class, start_ns, steps: legal(wishes) };
            let meta = Meta {
                processes: vec![command], lock: "fifo".into(), emulated, cpus: 2, span_ns: start_ns,
                dropped, is_disk_full: dropped > 9,
            };
            let place = Place { object: "/bin/x".into(), offset: address / 2, symbol };
            let place = (address % 2 == 0).then_some(place);
            let locks = vec![LockInfo { process: 0, address, place }; 5];
            Trace { meta, locks, threads: wishes.into_iter().map(thread).collect() }
        }
    }

    fn why(bytes: &[u8]) -> String {
        let path = "t.bin".as_ref();
        Error::new(path, Trace::from_bytes(bytes).unwrap_err()).to_string()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(trace in trace()) {
            prop_assert_eq!(Trace::from_bytes(&trace.to_bytes()).unwrap(), trace);
        }

        #[test]
        fn a_file_that_was_cut_is_damaged(trace in trace(), cut in any::<prop::sample::Index>()) {
            let bytes = trace.to_bytes();
            let cut = cut.index(bytes.len());
            let said = why(&bytes[..cut]);
            let expected = if cut < MAGIC.len() { "not a trace of locks" } else { "it ends early" };
            prop_assert!(said.ends_with(expected), "{}", said);
        }

        #[test]
        fn no_bytes_are_more_than_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut all = Trace::default().to_bytes()[..12].to_vec();
            all.extend(bytes);
            let _ = Trace::from_bytes(&all);
        }
    }

    #[test]
    fn what_can_not_be_is_refused() {
        let of = |steps: &[Step], locks: usize| {
            let lock = LockInfo { address: 1, ..LockInfo::default() };
            let thread = TraceThread { steps: steps.to_vec(), ..TraceThread::default() };
            let meta = Meta { processes: vec!["a".into()], ..Meta::default() };
            why(&Trace { meta, locks: vec![lock; locks], threads: vec![thread] }.to_bytes())
        };
        let take = Step::Acquire { lock: 0, wait_ns: 0 };
        let say = |what: &str| format!("cannot read 't.bin': damaged: thread 0 {what}");
        assert_eq!(of(&[take], 0), say("acquires lock 0 of 0"));
        assert_eq!(of(&[take, take], 1), say("acquires lock 0 twice"));
        assert_eq!(of(&[take], 1), say("never releases lock 0"));
        assert_eq!(of(&[Step::Release(0)], 1), say("releases lock 0, which it does not hold"));
        let mut bytes = Trace::default().to_bytes();
        bytes.push(0);
        assert_eq!(why(&bytes), "cannot read 't.bin': damaged: more follows its end");
        bytes[8] = 7;
        assert_eq!(why(&bytes), "cannot read 't.bin': its version is 7, this program reads 2");
        let orphan = Trace { threads: vec![TraceThread::default()], ..Trace::default() };
        assert!(why(&orphan.to_bytes()).ends_with("thread 0 belongs to no process"));
    }
}
