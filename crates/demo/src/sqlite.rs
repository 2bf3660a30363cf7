//! SQLite as it comes: bundled, `SQLITE_THREADSAFE=1` ("serialized"), all threads on **one** connection.
//!
//! The contended lock is the connection's own mutex, a recursive `pthread_mutex_t` that SQLite creates
//! and locks. Each operation is a DEFERRED transaction (`BEGIN DEFERRED`, one statement, `COMMIT`). Threads that
//! share a connection share its transaction. So it runs inside `sqlite3_mutex_enter(sqlite3_db_mutex(..))`,
//! which SQLite's documentation recommends for a sequence of calls that belong together. SQLite locks the same
//! mutex again (recursively) in each call in between.
//!
//! Workload: 1/3 insert, 1/3 point query on an indexed column, 1/3 range query with a filter on a
//! column that has no index. In memory: disks are not the subject. With `--scan-every N`, every Nth operation of
//! a thread is extremely long: a scan of a whole table without an index. Nobody writes to that table, so a
//! faster lock doesn't make the scan longer.

use crate::random::{Random, mix};
use crate::{Database, Failure, Session};
use libsqlite3_sys as ffi;
use serde_json::{Value, json};
use std::ffi::{CStr, c_int};
use std::ptr;

/// Rows before the clock starts; their keys are `0..ROWS`.
const ROWS: u64 = 10_000;
/// Rows of the table that is scanned, unless `--size` says otherwise.
pub(crate) const SCANNED: u64 = 100_000;
/// Keys that a range query covers.
const RANGE: u64 = 50;
/// Values of the column without an index.
const KINDS: u64 = 8;

const SCHEMA: &CStr = c"
    CREATE TABLE item (id INTEGER PRIMARY KEY, key INTEGER, kind INTEGER, note TEXT);
    CREATE INDEX item_key ON item (key);
    CREATE TABLE archive (id INTEGER PRIMARY KEY, key INTEGER, kind INTEGER, note TEXT);";

/// The value of `kind` for `key`.
fn kind(key: u64) -> u64 {
    mix(key) % KINDS
}

/// The value of `note` for `key`.
fn note(key: u64) -> String {
    format!("item {key:016x}: an ordinary remark of ordinary length, {:016x}", mix(key))
}

/// For each kind `k` and each `i` up to [`ROWS`]: how many of the keys below `i` have kind `k`.
fn of_kind() -> Vec<Vec<u64>> {
    let mut counts = vec![vec![0]; KINDS as usize];
    for key in 0..ROWS as usize {
        for (k, counts) in (0..).zip(&mut counts) {
            counts.push(counts[key] + u64::from(kind(key as u64) == k));
        }
    }
    counts
}

pub(crate) struct Sqlite {
    db: *mut ffi::sqlite3,
    /// See [`of_kind`].
    of_kind: Vec<Vec<u64>>,
    /// Once in this many operations, a thread scans instead; 0: never.
    scan_every: u64,
    /// Rows of each kind in the table that is scanned.
    archived: Vec<u64>,
}

// SAFETY: SQLite is compiled as serialized (`open` checks it): a connection may be used by many threads.
unsafe impl Sync for Sqlite {}

impl Sqlite {
    /// Opens it, with a scan of a table of `archive` rows once in `scan_every` operations of a thread.
    pub(crate) fn open(archive: u64, scan_every: u64) -> Result<Sqlite, Failure> {
        // SAFETY: always legal to call.
        let threadsafe = unsafe { ffi::sqlite3_threadsafe() };
        if threadsafe != 1 {
            return Err(Failure::Database(format!("SQLITE_THREADSAFE is {threadsafe}, not 1")));
        }
        let mut db = ptr::null_mut();
        let flags =
            ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE | ffi::SQLITE_OPEN_FULLMUTEX;
        // SAFETY: the name is terminated and `db` is a valid place for the answer.
        let rc = unsafe { ffi::sqlite3_open_v2(c":memory:".as_ptr(), &mut db, flags, ptr::null()) };
        let archived = vec![0; KINDS as usize];
        let mut this = Sqlite { db, of_kind: of_kind(), scan_every, archived };
        this.check(rc)?;
        // SAFETY: the connection is open, the text is terminated, no callback is given.
        let rc = unsafe {
            ffi::sqlite3_exec(db, SCHEMA.as_ptr(), None, ptr::null_mut(), ptr::null_mut())
        };
        this.check(rc)?;
        this.fill(INSERT, ROWS)?;
        if scan_every > 0 {
            this.fill(ARCHIVE, archive)?;
            for key in 0..archive {
                this.archived[kind(key) as usize] += 1;
            }
        }
        Ok(this)
    }

    fn fill(&self, insert: &CStr, rows: u64) -> Result<(), Failure> {
        let insert = Insert(self.prepare(insert)?);
        let (begin, commit) = (self.prepare(BEGIN)?, self.prepare(COMMIT)?);
        begin.run()?;
        for key in 0..rows {
            insert.row(key, &note(key))?;
        }
        commit.run()?;
        Ok(())
    }

    fn prepare(&self, sql: &CStr) -> Result<Statement<'_>, Failure> {
        let mut handle = ptr::null_mut();
        // SAFETY: the connection is open, the text is terminated, `handle` is a valid place.
        let rc = unsafe {
            ffi::sqlite3_prepare_v3(
                self.db,
                sql.as_ptr(),
                -1,
                ffi::SQLITE_PREPARE_PERSISTENT,
                &mut handle,
                ptr::null_mut(),
            )
        };
        self.check(rc)?;
        Ok(Statement { handle, sqlite: self })
    }

    fn check(&self, rc: c_int) -> Result<(), Failure> {
        if rc == ffi::SQLITE_OK { Ok(()) } else { Err(self.failure(rc)) }
    }

    fn failure(&self, rc: c_int) -> Failure {
        // SAFETY: SQLite returns a static, terminated string for every code.
        let text = unsafe { CStr::from_ptr(ffi::sqlite3_errstr(rc)) };
        Failure::Database(format!("sqlite: {} (code {rc})", text.to_string_lossy()))
    }

    /// Runs `body` while this thread holds the connection's own mutex.
    fn exclusively<T>(&self, body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        // SAFETY: the connection is open, and has a mutex because it is serialized.
        let mutex = unsafe { ffi::sqlite3_db_mutex(self.db) };
        // SAFETY: the mutex lives as long as the connection.
        unsafe { ffi::sqlite3_mutex_enter(mutex) };
        let outcome = body();
        // SAFETY: entered above by this thread.
        unsafe { ffi::sqlite3_mutex_leave(mutex) };
        outcome
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        // SAFETY: nothing uses the connection after this; statements borrow `self`, so none is left.
        unsafe { ffi::sqlite3_close(self.db) };
    }
}

impl Database for Sqlite {
    type Session<'a> = Reader<'a>;

    fn session(&self, thread: u64) -> Result<Reader<'_>, Failure> {
        Ok(Reader {
            sqlite: self,
            begin: self.prepare(BEGIN)?,
            commit: self.prepare(COMMIT)?,
            insert: Insert(self.prepare(INSERT)?),
            point: self.prepare(c"SELECT kind, note FROM item WHERE key = ?1")?,
            range: self
                .prepare(c"SELECT count(*) FROM item WHERE key BETWEEN ?1 AND ?2 AND kind = ?3")?,
            scan: self.prepare(c"SELECT count(*) FROM archive WHERE kind = ?1")?,
            operations: 0,
            scans: 0,
            first: (thread + 1) << 32,
            inserted: 0,
        })
    }

    fn engine(&self) -> String {
        // SAFETY: a static, terminated string.
        let version = unsafe { CStr::from_ptr(ffi::sqlite3_libversion()) };
        format!("SQLite {}", version.to_string_lossy())
    }

    fn verify(&self, sessions: &[Reader<'_>]) -> Result<Value, Failure> {
        let keys = sessions.iter().flat_map(|s| s.first..s.first + s.inserted).chain(0..ROWS);
        let (mut rows, mut kinds) = (0, 0);
        for key in keys {
            rows += 1;
            kinds += kind(key);
        }
        let found = self.prepare(c"SELECT count(*), sum(kind) FROM item")?;
        found.row(|row| {
            if (row.integer(0), row.integer(1)) == (rows, kinds) {
                return Ok(());
            }
            Err(Failure::Wrong(format!(
                "{} rows with kinds adding up to {}, expected {rows} and {kinds}",
                row.integer(0),
                row.integer(1)
            )))
        })?;
        let integrity = self.prepare(c"PRAGMA integrity_check")?;
        integrity.row(|row| match row.text(0) {
            b"ok" => Ok(()),
            other => Err(Failure::Wrong(String::from_utf8_lossy(other).into_owned())),
        })?;
        let scans: u64 = sessions.iter().map(|session| session.scans).sum();
        Ok(json!({ "rows": rows, "inserted": rows - ROWS, "sum": kinds, "scans": scans }))
    }
}

const BEGIN: &CStr = c"BEGIN DEFERRED";
const COMMIT: &CStr = c"COMMIT";
const INSERT: &CStr = c"INSERT INTO item (key, kind, note) VALUES (?1, ?2, ?3)";
const ARCHIVE: &CStr = c"INSERT INTO archive (key, kind, note) VALUES (?1, ?2, ?3)";

/// One thread's statements.
pub(crate) struct Reader<'a> {
    sqlite: &'a Sqlite,
    begin: Statement<'a>,
    commit: Statement<'a>,
    insert: Insert<'a>,
    point: Statement<'a>,
    range: Statement<'a>,
    scan: Statement<'a>,
    operations: u64,
    scans: u64,
    /// Key of the first row that this thread inserts; the others follow.
    first: u64,
    inserted: u64,
}

impl Reader<'_> {
    fn transaction<T>(&self, body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        self.sqlite.exclusively(|| {
            self.begin.run()?;
            let outcome = body()?;
            self.commit.run()?;
            Ok(outcome)
        })
    }

    fn insert(&mut self) -> Result<(), Failure> {
        let key = self.first + self.inserted;
        let note = note(key);
        self.transaction(|| self.insert.row(key, &note))?;
        self.inserted += 1;
        Ok(())
    }

    /// A point query. Half of them ask for rows that this thread inserted: another thread must not have lost
    /// them.
    fn point(&self, random: &mut Random) -> Result<(), Failure> {
        let key = if self.inserted > 0 && random.below(2) == 0 {
            self.first + random.below(self.inserted)
        } else {
            random.below(ROWS)
        };
        let expected = note(key);
        self.transaction(|| {
            self.point.bind(1, key)?;
            self.point.row(|row| {
                if row.integer(0) == kind(key) && row.text(1) == expected.as_bytes() {
                    return Ok(());
                }
                Err(Failure::Wrong(format!("key {key} has another row's contents")))
            })
        })
    }

    fn range(&self, random: &mut Random) -> Result<(), Failure> {
        let (low, kind) = (random.below(ROWS - RANGE), random.below(KINDS));
        let prefix = &self.sqlite.of_kind[kind as usize];
        let expected = prefix[(low + RANGE) as usize] - prefix[low as usize];
        self.transaction(|| {
            self.range.bind(1, low)?;
            self.range.bind(2, low + RANGE - 1)?;
            self.range.bind(3, kind)?;
            self.range.row(|row| match row.integer(0) {
                count if count == expected => Ok(()),
                count => Err(Failure::Wrong(format!(
                    "{count} rows of kind {kind} from key {low} on, expected {expected}"
                ))),
            })
        })
    }
}

impl Reader<'_> {
    fn scan(&mut self, random: &mut Random) -> Result<(), Failure> {
        let kind = random.below(KINDS);
        let expected = self.sqlite.archived[kind as usize];
        self.scans += 1;
        self.transaction(|| {
            self.scan.bind(1, kind)?;
            self.scan.row(|row| match row.integer(0) {
                count if count == expected => Ok(()),
                count => Err(Failure::Wrong(format!(
                    "{count} archived rows of kind {kind}, expected {expected}"
                ))),
            })
        })
    }
}

impl Session for Reader<'_> {
    fn operation(&mut self, random: &mut Random) -> Result<(), Failure> {
        self.operations += 1;
        let every = self.sqlite.scan_every;
        if every > 0 && self.operations.is_multiple_of(every) {
            return self.scan(random);
        }
        match random.below(3) {
            0 => self.insert(),
            1 => self.point(random),
            _ => self.range(random),
        }
    }
}

/// A prepared statement.
struct Statement<'a> {
    handle: *mut ffi::sqlite3_stmt,
    sqlite: &'a Sqlite,
}

// SAFETY: the connection is serialized, so a statement may move between threads; it is used by one at a time.
unsafe impl Send for Statement<'_> {}

impl Statement<'_> {
    fn bind(&self, at: c_int, value: u64) -> Result<(), Failure> {
        // SAFETY: the statement is prepared and not running.
        self.sqlite.check(unsafe { ffi::sqlite3_bind_int64(self.handle, at, value as i64) })
    }

    /// Runs a statement that returns nothing.
    fn run(&self) -> Result<(), Failure> {
        self.step(ffi::SQLITE_DONE)?;
        self.reset()
    }

    /// Runs a query that returns one row, and shows it to `read`.
    fn row(&self, read: impl FnOnce(CurrentRow<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        self.step(ffi::SQLITE_ROW)?;
        let outcome = read(CurrentRow(self));
        self.reset()?;
        outcome
    }

    fn step(&self, expected: c_int) -> Result<(), Failure> {
        // SAFETY: the statement is prepared, all its parameters are bound.
        match unsafe { ffi::sqlite3_step(self.handle) } {
            rc if rc == expected => Ok(()),
            ffi::SQLITE_DONE => Err(Failure::Wrong("no row where there must be one".into())),
            rc => Err(self.sqlite.failure(rc)),
        }
    }

    fn reset(&self) -> Result<(), Failure> {
        // SAFETY: the statement is prepared.
        self.sqlite.check(unsafe { ffi::sqlite3_reset(self.handle) })
    }
}

impl Drop for Statement<'_> {
    fn drop(&mut self) {
        // SAFETY: prepared by us and not used again.
        unsafe { ffi::sqlite3_finalize(self.handle) };
    }
}

/// The row on which a statement stands.
struct CurrentRow<'a>(&'a Statement<'a>);

impl CurrentRow<'_> {
    fn integer(&self, column: c_int) -> u64 {
        // SAFETY: the statement stands on a row.
        unsafe { ffi::sqlite3_column_int64(self.0.handle, column) as u64 }
    }

    fn text(&self, column: c_int) -> &[u8] {
        // SAFETY: the statement stands on a row; the text lives until the statement moves on, which
        // it can't while `self` is borrowed.
        unsafe {
            let text = ffi::sqlite3_column_text(self.0.handle, column);
            if text.is_null() {
                return b"";
            }
            CStr::from_ptr(text.cast()).to_bytes()
        }
    }
}

/// The insert statement.
struct Insert<'a>(Statement<'a>);

impl Insert<'_> {
    fn row(&self, key: u64, note: &str) -> Result<(), Failure> {
        self.0.bind(1, key)?;
        self.0.bind(2, kind(key))?;
        // SAFETY: the text outlives the call of `run` below, and SQLite only keeps it until then or
        // until it is bound again (`SQLITE_STATIC`).
        let rc = unsafe {
            ffi::sqlite3_bind_text(
                self.0.handle,
                3,
                note.as_ptr().cast(),
                note.len() as c_int,
                ffi::SQLITE_STATIC(),
            )
        };
        self.0.sqlite.check(rc)?;
        self.0.run()
    }
}
