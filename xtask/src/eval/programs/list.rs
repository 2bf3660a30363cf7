//! The programs: what must be installed, how to run each, and what its operations are. All come from Debian packages.

use super::bench::{Bench, Program, ProgramSample, free_port, listens};
use super::load;
use crate::eval::drivers::Database;
use crate::eval::save;
use anyhow::{Context, Result};
use lockwright_tests::Child;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

const LEVELDB: &[&str] = &["build-essential", "libleveldb-dev"];
const PUTS: &str = "Puts of 100 bytes at random keys into an empty database in memory.";
const READS: &str =
    "Gets of 100,000 keys, all in the cache, while one thread more puts; the gets are measured.";

/// Batch programs get work for about the length of the load on two CPUs.
pub(super) const PROGRAMS: &[Program] = &[
    Program {
        id: "memcached",
        name: "memcached, 4 threads",
        packages: &["memcached", "libmemcached-tools"],
        workload: "<code>memcaslap</code>, 2 threads, 32 connections: 90 % get, 10 % set, 100 bytes. It counts latencies \
             by powers of two, so percentiles are interpolated; the longest is exact.",
        run: memcached,
    },
    Program {
        id: "redis",
        name: "Redis, I/O threads",
        packages: &["redis-server", "redis-tools"],
        workload: "<code>redis-benchmark -t set</code>, 2 threads, 50 connections. Half as many I/O threads as CPUs, 2 to \
             4, which also read.",
        run: redis,
    },
    Program {
        id: "nginx",
        name: "nginx, thread pool",
        packages: &["nginx", "wrk"],
        workload: "<code>wrk</code>, 2 threads, 32 connections, a file of 64 KiB, which <code>aio threads</code> reads in a \
             pool of 8 threads.",
        run: nginx,
    },
    Program {
        id: "mariadb",
        name: "MariaDB, 32 connections",
        packages: &["mariadb-server-core", "mariadb-client-core", "sysbench"],
        workload: "<code>sysbench oltp_read_write</code>, 32 threads, 2 tables of 5,000 rows, in memory. An operation is a \
             transaction of 20 queries.",
        run: mariadb,
    },
    Program {
        id: "leveldb-fill4",
        name: "LevelDB, fillrandom, 4 threads",
        packages: LEVELDB,
        workload: PUTS,
        run: |bench| leveldb(bench, "fillrandom", 4),
    },
    Program {
        id: "leveldb-fill16",
        name: "LevelDB, fillrandom, 16 threads",
        packages: LEVELDB,
        workload: PUTS,
        run: |bench| leveldb(bench, "fillrandom", 16),
    },
    Program {
        id: "leveldb-rww4",
        name: "LevelDB, readwhilewriting, 4 threads",
        packages: LEVELDB,
        workload: READS,
        run: |bench| leveldb(bench, "readwhilewriting", 4),
    },
    Program {
        id: "leveldb-rww16",
        name: "LevelDB, readwhilewriting, 16 threads",
        packages: LEVELDB,
        workload: READS,
        run: |bench| leveldb(bench, "readwhilewriting", 16),
    },
    Program {
        id: "rocksdb-fill4",
        name: "RocksDB, fillrandom, 4 threads",
        packages: &["rocksdb-tools"],
        workload: "<code>db_bench --benchmarks=fillrandom</code>. Writers yield first, and block later.",
        run: |bench| rocksdb_fill(bench, 4),
    },
    Program {
        id: "rocksdb-fill16",
        name: "RocksDB, fillrandom, 16 threads",
        packages: &["rocksdb-tools"],
        workload: "The same with 16 threads.",
        run: |bench| rocksdb_fill(bench, 16),
    },
    Program {
        id: "rocksdb-rww4",
        name: "RocksDB, readwhilewriting, 4 threads",
        packages: &["rocksdb-tools"],
        workload: "<code>db_bench --benchmarks=readwhilewriting</code> on 100,000 keys.",
        run: rocksdb_read,
    },
    Program {
        id: "python",
        name: "Python, ThreadPoolExecutor",
        packages: &["python3"],
        workload: "Tasks through a pool of 8 threads (<code>eval/pool.py</code>): SHA-256 of 32 KiB, without the \
             interpreter’s lock, then a loop with it. Latencies are from submission to completion.",
        run: python,
    },
    Program {
        id: "sysbench",
        name: "sysbench threads",
        packages: &["sysbench"],
        workload: "16 threads, 4 mutexes; the holder calls <code>sched_yield</code>, 100 times an operation. A stress, not \
             a use.",
        run: sysbench_threads,
    },
    Program {
        id: "x264",
        name: "x264, 4 threads",
        packages: &["x264"],
        workload: "Encodes 640 × 360 at <code>veryfast</code>. An operation is a frame.",
        run: x264,
    },
    Program {
        id: "ffmpeg",
        name: "ffmpeg, libx264, 4 threads",
        packages: &["ffmpeg"],
        workload: "Generates, scales and encodes 640 × 360 at <code>veryfast</code>. An operation is a frame.",
        run: ffmpeg,
    },
    Program {
        id: "gstreamer",
        name: "GStreamer, 3 queues",
        packages: &["gstreamer1.0-tools", "gstreamer1.0-plugins-base"],
        workload: "A pipeline of four threads: test pictures, colours, scaling. An operation is a frame. GLib’s plain \
             mutexes are futexes of its own: only its recursive ones can be reached.",
        run: gstreamer,
    },
    Program {
        id: "pbzip2",
        name: "pbzip2, 4 threads",
        packages: &["pbzip2"],
        workload: "Compresses text. An operation is a megabyte.",
        run: |bench| compress(bench, 20, &["pbzip2", "-p4", "-1", "-b1", "-c"]),
    },
    Program {
        id: "zstd",
        name: "zstd, 4 threads",
        packages: &["zstd"],
        workload: "Compresses text at level 9. An operation is a megabyte.",
        run: |bench| compress(bench, 20, &["zstd", "-q", "-T4", "-9", "-B1000000", "-c"]),
    },
    Program {
        id: "xz",
        name: "xz, 4 threads",
        packages: &["xz-utils"],
        workload: "Compresses text at level 1. An operation is a megabyte.",
        run: |bench| compress(bench, 8, &["xz", "-T4", "-1", "--block-size=300000", "-c"]),
    },
];

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn memcached(bench: &Bench) -> Result<ProgramSample> {
    let port = free_port()?;
    let mut program = bench.program("memcached").args(["-l", "127.0.0.1", "-U", "0", "-t", "4"]);
    program = program.args(["-m", "64", "-p", &port.to_string()]);
    if is_root() {
        program = program.args(["-u", "root"]);
    }
    let seconds = format!("{}s", bench.seconds);
    let clients = bench
        .helper("memcaslap")
        .args(["-s", &format!("127.0.0.1:{port}"), "-T", "2", "-c", "32", "-X", "100"])
        .args(["-t", &seconds, "-S", &seconds]);
    bench.serve(program, || listens(port))?.measure(clients, load::memcaslap)
}

fn redis(bench: &Bench) -> Result<ProgramSample> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let (port, threads) = (free_port()?.to_string(), (cpus / 2).clamp(2, 4).to_string());
    let program = bench
        .program("redis-server")
        .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--io-threads", &threads, "--io-threads-do-reads", "yes"])
        .args(["--dir".as_ref(), bench.dir.as_os_str()]);
    let requests = bench.rate.map_or(2000.0, |rate| (rate * f64::from(bench.seconds)).max(1000.0));
    let clients = bench
        .helper("redis-benchmark")
        .args(["-h", "127.0.0.1", "-p", &port, "-t", "set", "-c", "50", "--threads", "2"])
        .args(["-r", "100000", "-d", "64", "--precision", "3", "-n", &format!("{requests:.0}")]);
    let port = port.parse()?;
    bench.serve(program, || listens(port))?.measure(clients, load::redis_benchmark)
}

fn nginx(bench: &Bench) -> Result<ProgramSample> {
    let port = free_port()?;
    bench.input("www", |www| {
        fs::create_dir(www)?;
        Ok(fs::write(www.join("file"), text(65_536))?)
    })?;
    let script = bench.input("wrk.lua", |path| save(path, load::WRK_SCRIPT))?;
    let (dir, root) = (bench.dir.display(), bench.shared.join("www"));
    let mut paths = String::new();
    for what in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(paths, "{what}_temp_path {dir}/{what};");
    }
    let settings = format!(
        "daemon off; master_process off; pid {dir}/pid; error_log stderr;\n\
         thread_pool default threads=8;\nevents {{}}\n\
         http {{\naccess_log off; aio threads; output_buffers 1 32k;\n{paths}\
         server {{ listen 127.0.0.1:{port}; root {}; }}\n}}\n",
        root.display()
    );
    let file = bench.dir.join("nginx.conf");
    save(&file, &settings)?;
    // Not all of Debian's users have sbin in their PATH.
    let program = bench.program("/usr/sbin/nginx").args([
        "-e".as_ref(),
        "stderr".as_ref(),
        "-c".as_ref(),
        file.as_os_str(),
    ]);
    let clients = bench
        .helper("wrk")
        .args(["-t2", "-c32", &format!("-d{}s", bench.seconds), "-s"])
        .args([script.as_os_str()])
        .args([format!("http://127.0.0.1:{port}/file")]);
    bench.serve(program, || listens(port))?.measure(clients, load::wrk)
}

fn mariadb(bench: &Bench) -> Result<ProgramSample> {
    /// Sets up the server with the data in `dir`.
    fn server(program: Child, dir: &Path, data: &Path) -> Child {
        let user: &[&str] = if is_root() { &["--user=root"] } else { &[] };
        program
            .args(["--no-defaults", "--skip-networking", "--innodb-flush-log-at-trx-commit=0"])
            .args(["--innodb-log-file-size=16M", "--innodb-buffer-pool-size=64M"])
            .args(user)
            .args([
                format!("--datadir={}", data.display()),
                format!("--tmpdir={}", dir.display()),
                format!("--socket={}/socket", dir.display()),
            ])
    }
    let socket = bench.dir.join("socket");
    let sysbench = || {
        bench
            .helper("sysbench")
            .args(["oltp_read_write", "--db-driver=mysql", "--mysql-user=root", "--tables=2"])
            .args(["--table-size=5000", &format!("--mysql-socket={}", socket.display())])
    };
    let listens = || UnixStream::connect(&socket).is_ok();
    let tables = bench.input("data", |data| {
        let made = bench.dir.join("made");
        let user: &[&str] = if is_root() { &["--user=root"] } else { &[] };
        bench.told(
            bench
                .helper("mariadb-install-db")
                .args(["--no-defaults", "--auth-root-authentication-method=normal"])
                .args(["--skip-test-db", &format!("--datadir={}", made.display())])
                .args(user),
        )?;
        let first = bench.dir.join("first.sql");
        save(&first, "CREATE DATABASE sbtest;\n")?;
        let plain = Bench { lock: None, ..*bench };
        let program = server(plain.program("/usr/sbin/mariadbd"), bench.dir, &made)
            .args([format!("--init-file={}", first.display())]);
        let server = plain.serve(program, listens)?;
        bench.told(sysbench().args(["prepare"]))?;
        server.stop()?;
        Ok(fs::rename(&made, data)?)
    })?;
    let data = bench.dir.join("data");
    bench.told(bench.helper("cp").args(["-a".as_ref(), tables.as_os_str(), data.as_os_str()]))?;
    let program = server(bench.program("/usr/sbin/mariadbd"), bench.dir, &data);
    let clients = sysbench().args([
        "--threads=32",
        "--histogram=on",
        &format!("--time={}", bench.seconds),
        "run",
    ]);
    bench.serve(program, listens)?.measure(clients, load::sysbench)
}

fn leveldb(bench: &Bench, load: &str, threads: u32) -> Result<ProgramSample> {
    let driver = bench.input("driver", |path| {
        fs::copy(Database::find("leveldb")?.program()?, path)?;
        Ok(())
    })?;
    let driver = driver.to_str().context("a folder's name is no text")?;
    // Many keys for puts; for gets, as many as fit the cache.
    let keys = if load == "fillrandom" { "1000000" } else { "100000" };
    bench.driver(
        bench
            .program(driver)
            .args(["--load", load, "--threads", &threads.to_string(), "--size", keys])
            .args(["--seconds", &bench.seconds.to_string()])
            .env("TMPDIR", bench.dir),
    )
}

/// RocksDB's own benchmark from Debian.
fn db_bench(child: Child, bench: &Bench, load: &str) -> Child {
    child.args([
        format!("--benchmarks={load}"),
        format!("--db={}/db", bench.dir.display()),
        "--histogram=1".into(),
        "--value_size=100".into(),
        "--compression_type=none".into(),
    ])
}

fn rocksdb_fill(bench: &Bench, threads: u32) -> Result<ProgramSample> {
    let program = db_bench(bench.program("db_bench"), bench, "fillrandom").args([
        format!("--threads={threads}"),
        format!("--duration={}", bench.seconds),
        "--num=10000000".into(),
    ]);
    bench.alone(program, |text| load::db_bench(text, "fillrandom"))
}

fn rocksdb_read(bench: &Bench) -> Result<ProgramSample> {
    let filling = db_bench(bench.helper("db_bench"), bench, "fillseq");
    bench.told(filling.args(["--num=100000"]))?;
    let program = db_bench(bench.program("db_bench"), bench, "readwhilewriting").args([
        "--threads=4".into(),
        format!("--duration={}", bench.seconds),
        "--num=100000".into(),
        "--use_existing_db=1".into(),
    ]);
    bench.alone(program, |text| load::db_bench(text, "readwhilewriting"))
}

fn python(bench: &Bench) -> Result<ProgramSample> {
    let script =
        bench.input("pool.py", |path| save(path, include_str!("../../../../eval/pool.py")))?;
    let program = bench.program("/usr/bin/python3").args([script.as_os_str()]);
    bench.driver(program.args([&*bench.seconds.to_string(), "8"]))
}

fn sysbench_threads(bench: &Bench) -> Result<ProgramSample> {
    let program = bench
        .program("sysbench")
        .args(["threads", "--threads=16", "--thread-yields=100", "--thread-locks=4"])
        .args(["--histogram=on", &format!("--time={}", bench.seconds), "run"]);
    bench.alone(program, load::sysbench)
}

fn x264(bench: &Bench) -> Result<ProgramSample> {
    let frames = 180 * bench.seconds;
    let input = bench.input("input.y4m", |path| picture(path, frames))?;
    let program = bench
        .program("x264")
        .args(["--quiet", "--no-progress", "--preset", "veryfast", "--threads", "4"])
        .args(["--muxer", "raw", "--output", "/dev/stdout"])
        .args([input.as_os_str()]);
    bench.batch(program, f64::from(frames))
}

fn ffmpeg(bench: &Bench) -> Result<ProgramSample> {
    let frames = 300 * bench.seconds;
    let program = bench
        .program("ffmpeg")
        .args(["-v", "error", "-nostdin", "-f", "lavfi", "-i", "testsrc2=size=960x540:rate=30"])
        .args(["-frames:v", &frames.to_string(), "-vf", "scale=640:360"])
        .args(["-c:v", "libx264", "-preset", "veryfast", "-threads", "4", "-f", "h264", "pipe:1"]);
    bench.batch(program, f64::from(frames))
}

fn gstreamer(bench: &Bench) -> Result<ProgramSample> {
    let frames = 4000 * bench.seconds;
    let pipeline = format!(
        "-q videotestsrc num-buffers={frames} ! video/x-raw,format=I420,width=320,height=240 ! queue ! videoconvert \
         ! video/x-raw,format=RGB ! queue ! videoscale ! video/x-raw,width=160,height=120 ! queue ! fakesink"
    );
    let program = bench
        .program("gst-launch-1.0")
        .args(pipeline.split_whitespace())
        .env("GST_REGISTRY", bench.shared.join("registry"))
        .env("HOME", bench.shared);
    bench.batch(program, f64::from(frames))
}

/// Compresses `megabytes` per second of load. The input's name comes last.
fn compress(bench: &Bench, megabytes: u32, command: &[&str]) -> Result<ProgramSample> {
    let megabytes = megabytes * bench.seconds;
    let input =
        bench.input("text", |path| Ok(fs::write(path, text(megabytes as usize * 1_000_000))?))?;
    let program = bench.program(command[0]).args(&command[1..]).args([input.as_os_str()]);
    bench.batch(program, f64::from(megabytes))
}

/// A deterministic generator (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// This number of bytes of word-like text, with frequent and rare words.
fn text(bytes: usize) -> Vec<u8> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut text = Vec::with_capacity(bytes + 16);
    while text.len() < bytes {
        let word = random.next() % 30_000 * (random.next() % 30_000) / 30_000;
        let letters = 2 + word % 7;
        let mut letter = word.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8;
        for _ in 0..letters {
            text.push(b'a' + (letter % 26) as u8);
            letter /= 26;
        }
        text.push(if random.next().is_multiple_of(12) { b'\n' } else { b' ' });
    }
    text.truncate(bytes);
    text
}

/// A film of moving patterns with noise, 640 x 360, in YUV4MPEG2.
fn picture(path: &Path, frames: u32) -> Result<()> {
    const WIDTH: u32 = 640;
    const HEIGHT: u32 = 360;
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(file, "YUV4MPEG2 W{WIDTH} H{HEIGHT} F30:1 Ip A1:1 C420jpeg")?;
    let mut frame = Vec::new();
    for n in 0..frames {
        frame.clear();
        for y in 0..HEIGHT {
            for x in 0..WIDTH {
                let waves = (x + 3 * n) * (y + 2 * n) / 64 + (x + y) / 4;
                let noise = (random.next() % 8) as u32;
                frame.push(((waves + noise) % 220) as u8);
            }
        }
        for plane in [n, 2 * n] {
            for y in 0..HEIGHT / 2 {
                frame.extend((0..WIDTH / 2).map(|x| ((x / 4 + y / 2 + plane) % 200) as u8));
            }
        }
        file.write_all(b"FRAME\n")?;
        file.write_all(&frame)?;
    }
    Ok(file.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_its_own_name() {
        let ids: std::collections::BTreeSet<_> =
            PROGRAMS.iter().map(|program| program.id).collect();
        assert_eq!(ids.len(), PROGRAMS.len());
    }

    #[test]
    fn inputs_are_the_same_each_time() {
        assert_eq!(text(10_000), text(10_000));
        assert_eq!(text(10_000).len(), 10_000);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("film");
        picture(&path, 2).unwrap();
        let film = fs::read(path).unwrap();
        let start = film.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        assert_eq!(film.len() - start, 2 * (6 + 640 * 360 * 3 / 2));
    }
}
