//! LMDB with the program's own pthread mutexes.
//!
//! LMDB's own writer mutex and reader table are in a file shared between processes. Their mutexes are
//! process-shared and robust, which a preloaded lock must leave to the C library. Programs that have the
//! environment to themselves can open it with `MDB_NOLOCK` and do the locking. LMDB then requires that
//! there is a single writer, and that no reader is on an old snapshot while a writer is active. That is
//! what this file does:
//!
//! * `writer`, a `pthread_mutex_t`, held for a whole write transaction;
//! * `slots`, a `pthread_mutex_t` over the reader slots: under it snapshots are taken and published, and
//!   readers are counted for the current snapshot and the one before;
//! * `drained`, a condition variable: a writer first waits for the readers of the one before.
//!
//! Readers and one writer overlap, as in LMDB itself.
//!
//! Workload: 50 % put (read, change, write back: an update), 50 % get, on uniformly drawn keys. The file
//! has no name, is written through the memory map, and is never synced: disks are not the subject.

use crate::random::{Random, mix};
use crate::{Database, Failure, Session};
use lmdb_master_sys as ffi;
use serde_json::{Value, json};
use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{env, fs, process, ptr, slice};

/// Keys, unless `--size` says otherwise.
pub(crate) const KEYS: u64 = 10_000;
/// The map's size: a base, and bytes for each key.
const MAP_BYTES: usize = 44 << 20;
const MAP_BYTES_PER_KEY: usize = 400;
const VALUE_BYTES: usize = 100;

/// Word 0: how often the key was put. Word 1: a checksum of key and word 0. The rest is padding.
type Record = [u8; VALUE_BYTES];

fn record(key: u64, puts: u64) -> Record {
    let mut record = [b'.'; VALUE_BYTES];
    record[..8].copy_from_slice(&puts.to_ne_bytes());
    record[8..16].copy_from_slice(&mix(mix(key) ^ puts).to_ne_bytes());
    record
}

/// How often `key` was put, according to its record.
fn puts(key: u64, found: &[u8]) -> Result<u64, Failure> {
    if let Some(first) = found.first_chunk::<8>() {
        let puts = u64::from_ne_bytes(*first);
        if found == record(key, puts) {
            return Ok(puts);
        }
    }
    Err(Failure::Wrong(format!("key {key} has a torn or foreign record")))
}

pub(crate) struct Lmdb {
    env: *mut ffi::MDB_env,
    dbi: ffi::MDB_dbi,
    keys: u64,
    writer: PthreadMutex,
    slots: PthreadMutex,
    /// Signalled under `slots` when the last reader of the old snapshot leaves.
    drained: Condition,
    readers: UnsafeCell<Readers>,
}

/// Which snapshots are being read; protected by `slots`.
#[derive(Default)]
struct Readers {
    /// Number of write transactions published.
    snapshot: usize,
    /// Readers on even and on odd snapshots. Only two snapshots are ever read at a time.
    active: [u32; 2],
}

// SAFETY: the environment is used as MDB_NOLOCK demands (see the head of this file), and `readers` only
// under `slots`.
unsafe impl Sync for Lmdb {}

impl Lmdb {
    /// Boxed: pthread's objects must not move once they are in use.
    pub(crate) fn open(keys: u64) -> Result<Box<Lmdb>, Failure> {
        let mut this = Box::new(Lmdb {
            env: ptr::null_mut(),
            dbi: 0,
            keys,
            writer: PthreadMutex::new(),
            slots: PthreadMutex::new(),
            drained: Condition::new(),
            readers: UnsafeCell::default(),
        });
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
        let path = folder.join(format!("lockwright-demo-{}.mdb", process::id()));
        let name = CString::new(path.as_os_str().as_bytes()).expect("a path has no zero byte");
        let flags = ffi::MDB_NOLOCK
            | ffi::MDB_NOTLS
            | ffi::MDB_NOSUBDIR
            | ffi::MDB_WRITEMAP
            | ffi::MDB_NOSYNC;
        // SAFETY: a valid place for the handle.
        check(unsafe { ffi::mdb_env_create(&mut this.env) })?;
        let bytes = MAP_BYTES + keys as usize * MAP_BYTES_PER_KEY;
        // SAFETY: the environment is created and not yet open.
        check(unsafe { ffi::mdb_env_set_mapsize(this.env, bytes) })?;
        // SAFETY: as above; the name is terminated.
        let opened = unsafe { ffi::mdb_env_open(this.env, name.as_ptr(), flags, 0o600) };
        // Without a name, the file is gone when the process is, however it ends.
        let unlinked = fs::remove_file(&path);
        check(opened)?;
        unlinked.map_err(|error| {
            Failure::Database(format!("cannot remove '{}': {error}", path.display()))
        })?;

        let txn = Txn::begin(this.env, 0)?;
        // SAFETY: inside a write transaction; the unnamed database always exists.
        check(unsafe {
            ffi::mdb_dbi_open(txn.0, ptr::null(), ffi::MDB_INTEGERKEY, &mut this.dbi)
        })?;
        for key in 0..keys {
            txn.put(this.dbi, key, &record(key, 0))?;
        }
        txn.commit()?;
        Ok(this)
    }

    /// Takes a snapshot for reading; pass the result to [`Lmdb::leave`].
    fn enter(&self, txn: &Txn) -> Result<usize, Failure> {
        let slots = self.slots.lock();
        // SAFETY: under `slots`.
        let readers = unsafe { &mut *self.readers.get() };
        let side = readers.snapshot % 2;
        readers.active[side] += 1;
        // SAFETY: a read transaction that was reset.
        let renewed = unsafe { ffi::mdb_txn_renew(txn.0) };
        drop(slots);
        check(renewed)?;
        Ok(side)
    }

    fn leave(&self, side: usize) {
        let _slots = self.slots.lock();
        // SAFETY: under `slots`.
        let readers = unsafe { &mut *self.readers.get() };
        readers.active[side] -= 1;
        if readers.active[side] == 0 && readers.snapshot % 2 != side {
            self.drained.signal();
        }
    }

    /// Waits until nobody reads a snapshot older than the current one. Only the writer calls this.
    fn drain(&self) {
        let slots = self.slots.lock();
        // SAFETY: under `slots`; the reference isn't kept while `wait` releases it.
        while unsafe {
            let readers = &*self.readers.get();
            readers.active[(readers.snapshot + 1) % 2] > 0
        } {
            self.drained.wait(&slots);
        }
    }

    /// Commits, and makes the result the current snapshot. Only the writer calls this.
    fn publish(&self, txn: Txn) -> Result<(), Failure> {
        let _slots = self.slots.lock();
        txn.commit()?;
        // SAFETY: under `slots`.
        unsafe { (*self.readers.get()).snapshot += 1 };
        Ok(())
    }

    fn put(&self, key: u64) -> Result<(), Failure> {
        let _writer = self.writer.lock();
        self.drain();
        let txn = Txn::begin(self.env, 0)?;
        let before = puts(key, txn.get(self.dbi, key)?)?;
        txn.put(self.dbi, key, &record(key, before + 1))?;
        self.publish(txn)
    }

    fn get(&self, txn: &Txn, key: u64) -> Result<(), Failure> {
        let side = self.enter(txn)?;
        let outcome = txn.get(self.dbi, key).and_then(|found| puts(key, found));
        // SAFETY: a running read transaction; nothing of it is used after this.
        unsafe { ffi::mdb_txn_reset(txn.0) };
        self.leave(side);
        outcome.map(drop)
    }
}

impl Drop for Lmdb {
    fn drop(&mut self) {
        // SAFETY: transactions borrow `self`, so none is left.
        unsafe { ffi::mdb_env_close(self.env) };
    }
}

impl Database for Box<Lmdb> {
    type Session<'a> = Client<'a>;

    fn session(&self, _: u64) -> Result<Client<'_>, Failure> {
        let txn = Txn::begin(self.env, ffi::MDB_RDONLY)?;
        // SAFETY: a running read transaction.
        unsafe { ffi::mdb_txn_reset(txn.0) };
        Ok(Client { lmdb: self, txn, puts: 0 })
    }

    fn engine(&self) -> String {
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: valid places for the answers.
        unsafe { ffi::mdb_version(&mut major, &mut minor, &mut patch) };
        format!("LMDB {major}.{minor}.{patch}")
    }

    fn verify(&self, sessions: &[Client<'_>]) -> Result<Value, Failure> {
        let txn = Txn::begin(self.env, ffi::MDB_RDONLY)?;
        let mut found = 0;
        for key in 0..self.keys {
            found += puts(key, txn.get(self.dbi, key)?)?;
        }
        let done: u64 = sessions.iter().map(|session| session.puts).sum();
        if found != done {
            return Err(Failure::Wrong(format!("{found} puts in the database, {done} were made")));
        }
        Ok(json!({ "keys": self.keys, "puts": done, "sum": found }))
    }
}

/// One thread's use: a read transaction to reuse, and how often the thread put.
pub(crate) struct Client<'a> {
    lmdb: &'a Lmdb,
    txn: Txn,
    puts: u64,
}

impl Session for Client<'_> {
    fn operation(&mut self, random: &mut Random) -> Result<(), Failure> {
        let key = random.below(self.lmdb.keys);
        if random.below(2) == 0 {
            self.lmdb.put(key)?;
            self.puts += 1;
            Ok(())
        } else {
            self.lmdb.get(&self.txn, key)
        }
    }
}

/// A transaction, which is aborted unless it is committed.
struct Txn(*mut ffi::MDB_txn);

// SAFETY: without reader slots (MDB_NOLOCK, MDB_NOTLS) a transaction belongs to no thread.
unsafe impl Send for Txn {}

impl Txn {
    fn begin(env: *mut ffi::MDB_env, flags: u32) -> Result<Txn, Failure> {
        let mut txn = ptr::null_mut();
        // SAFETY: the environment is open, and `txn` is a valid place. The callers exclude each other as
        // the head of this file says.
        check(unsafe { ffi::mdb_txn_begin(env, ptr::null_mut(), flags, &mut txn) })?;
        Ok(Txn(txn))
    }

    fn get(&self, dbi: ffi::MDB_dbi, key: u64) -> Result<&[u8], Failure> {
        let mut name = value(&key);
        let mut found = ffi::MDB_val { mv_size: 0, mv_data: ptr::null_mut() };
        // SAFETY: a running transaction; LMDB doesn't write through the key.
        check(unsafe { ffi::mdb_get(self.0, dbi, &mut name, &mut found) })?;
        // SAFETY: the data stays in the map until the transaction ends or writes.
        Ok(unsafe { slice::from_raw_parts(found.mv_data.cast(), found.mv_size) })
    }

    fn put(&self, dbi: ffi::MDB_dbi, key: u64, record: &Record) -> Result<(), Failure> {
        let (mut name, mut record) = (value(&key), value(record));
        // SAFETY: a running write transaction; LMDB copies key and data.
        check(unsafe { ffi::mdb_put(self.0, dbi, &mut name, &mut record, 0) })
    }

    fn commit(self) -> Result<(), Failure> {
        let txn = std::mem::ManuallyDrop::new(self);
        // SAFETY: a running transaction; commit frees it, whatever it returns.
        check(unsafe { ffi::mdb_txn_commit(txn.0) })
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        // SAFETY: running or reset, and not used again.
        unsafe { ffi::mdb_txn_abort(self.0) };
    }
}

/// Points to `data`, which the caller must keep; LMDB writes through neither keys nor data to put.
fn value<T>(data: &T) -> ffi::MDB_val {
    ffi::MDB_val { mv_size: size_of::<T>(), mv_data: ptr::from_ref(data) as *mut c_void }
}

fn check(rc: c_int) -> Result<(), Failure> {
    if rc == 0 {
        return Ok(());
    }
    // SAFETY: LMDB returns a static, terminated string for every code.
    let text = unsafe { CStr::from_ptr(ffi::mdb_strerror(rc)) };
    Err(Failure::Database(format!("lmdb: {} (code {rc})", text.to_string_lossy())))
}

/// A `pthread_mutex_t` of the default kind. std's mutex would do, but isn't a pthread mutex.
struct PthreadMutex(UnsafeCell<libc::pthread_mutex_t>);

/// Unlocks when dropped.
struct Guard<'a>(&'a PthreadMutex);

impl PthreadMutex {
    fn new() -> PthreadMutex {
        PthreadMutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    fn lock(&self) -> Guard<'_> {
        // SAFETY: statically initialised and never moved once in use.
        let rc = unsafe { libc::pthread_mutex_lock(self.0.get()) };
        assert_eq!(rc, 0, "pthread_mutex_lock");
        Guard(self)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: a guard exists only while this thread holds the mutex.
        let rc = unsafe { libc::pthread_mutex_unlock(self.0.0.get()) };
        assert_eq!(rc, 0, "pthread_mutex_unlock");
    }
}

/// A `pthread_cond_t`.
struct Condition(UnsafeCell<libc::pthread_cond_t>);

impl Condition {
    fn new() -> Condition {
        Condition(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER))
    }

    fn wait(&self, held: &Guard<'_>) {
        // SAFETY: both initialised; the guard says that this thread holds the mutex.
        let rc = unsafe { libc::pthread_cond_wait(self.0.get(), held.0.0.get()) };
        assert_eq!(rc, 0, "pthread_cond_wait");
    }

    fn signal(&self) {
        // SAFETY: initialised.
        let rc = unsafe { libc::pthread_cond_signal(self.0.get()) };
        assert_eq!(rc, 0, "pthread_cond_signal");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_another_key_or_a_torn_one_is_noticed() {
        assert_eq!(puts(7, &record(7, 3)).unwrap(), 3);
        assert!(puts(8, &record(7, 3)).is_err());
        let mut torn = record(7, 3);
        torn[0] ^= 1;
        assert!(puts(7, &torn).is_err());
        assert!(puts(7, &torn[..4]).is_err());
    }
}
