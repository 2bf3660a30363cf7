//! What the bench needs from Linux.

use crate::names::misspelt_class;
use lockwright_native::topology::Topology;
use std::ffi::{CStr, OsString};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// The CPUs that this process may run on, ascending.
pub fn cpus() -> Vec<usize> {
    // SAFETY: cpu_set_t is plain bits, filled by the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &mut set) != 0 {
            return vec![0];
        }
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Passes the CPUs' classes in the emulated machine `spec` to [`lockwright_native::place`].
pub(crate) fn publish_classes(spec: &str) {
    let mut topology = Box::new(Topology::new());
    topology.read(b"/sys");
    // The command line was checked, so this can't fail.
    let _ = topology.set_emulated(spec);
    topology.publish();
}

/// The CPUs that this process may run on, fastest class first; by the emulated machine `emulate`, if given.
pub(crate) fn fastest_first(emulate: Option<&str>) -> Vec<usize> {
    let mut topology = Box::new(Topology::new());
    topology.read(b"/sys");
    // The command line was checked, so this can't fail.
    let _ = emulate.map(|spec| topology.set_emulated(spec).map(drop));
    let mut cpus = cpus();
    cpus.sort_by_key(|&cpu| topology.cpu(cpu).map_or(0, |cpu| cpu.class.0));
    cpus
}

/// Checks that this machine can emulate `spec`.
pub(crate) fn check_emulation(spec: &str) -> anyhow::Result<()> {
    if let Some((name, meant)) = misspelt_class(spec) {
        anyhow::bail!(
            "bad emulated machine '{spec}': unknown class '{name}'\nhint: did you mean '{meant}'? A new \
                 class must have a less similar name"
        );
    }
    let mut topology = Box::new(Topology::new());
    topology.read(b"/sys");
    topology.set_emulated(spec).map(drop).map_err(|error| {
        anyhow::anyhow!(
            "bad emulated machine '{spec}': {error}\nhint: --emulate big:0,little:1x3.75; lockwright doctor --topology"
        )
    })
}

/// A machine to emulate: all CPUs are big except `little`, which is slowed by `factor`.
pub(crate) fn one_little(little: usize, factor: &str) -> String {
    let mut topology = Box::new(Topology::new());
    topology.read(b"/sys");
    let big: Vec<_> = topology.online().map(|(cpu, _)| cpu).filter(|&cpu| cpu != little).collect();
    let big: Vec<_> = big.iter().map(usize::to_string).collect();
    format!("big:{},little:{little}x{factor}", big.join(","))
}

/// The processor's time-stamp counter (on aarch64 the generic timer, whose ticks aren't cycles).
#[cfg(target_arch = "x86_64")]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The generic timer.
#[cfg(target_arch = "aarch64")]
pub(crate) fn ticks() -> u64 {
    let now: u64;
    // SAFETY: reads a counter that Linux opens to programs.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) now, options(nomem, nostack)) };
    now
}

/// Binds the calling thread to one CPU.
pub fn pin_to(cpu: usize) {
    // SAFETY: cpu_set_t is plain bits; the CPU's number came from such a set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// User and system time of this process.
pub fn cpu_time() -> Duration {
    usage(libc::RUSAGE_SELF)
}

/// The same of the children that it has waited for, and theirs.
pub fn children_time() -> Duration {
    usage(libc::RUSAGE_CHILDREN)
}

/// User and system time of another process of the same user; `None`: there is no such process.
pub(crate) fn cpu_time_of(id: u32) -> Option<Duration> {
    // SAFETY: a timespec is plain numbers; both calls only fill what they are given.
    let time = unsafe {
        let (mut clock, mut time): (libc::clockid_t, libc::timespec) = std::mem::zeroed();
        let is_known = libc::clock_getcpuclockid(id as libc::pid_t, &mut clock) == 0
            && libc::clock_gettime(clock, &mut time) == 0;
        is_known.then_some(time)?
    };
    Some(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

fn usage(whose: libc::c_int) -> Duration {
    // SAFETY: rusage is plain numbers, filled by the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(whose, &mut usage);
        usage
    };
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Measures how much other programs use the CPUs that this process may run on. The load average and the kernel's
/// pressure figures would include our own threads.
pub(crate) struct Others {
    at: Instant,
    /// CPU time of all programs there, including stolen time; and our own, including children that we waited for.
    all: Duration,
    own: Duration,
}

impl Others {
    /// Starts to measure. `None`: the kernel doesn't say.
    pub(crate) fn since_now() -> Option<Others> {
        Some(Others { at: Instant::now(), all: busy_time(&cpus())?, own: tree_time() })
    }

    /// Average number of CPUs that others have used since then.
    pub(crate) fn cpus(&self) -> Option<f64> {
        let now = Others::since_now()?;
        let (all, own) = (now.all.checked_sub(self.all)?, now.own.saturating_sub(self.own));
        besides(all.as_secs_f64(), own.as_secs_f64(), self.at.elapsed().as_secs_f64())
    }
}

/// Number of CPUs that others used, if `all` seconds of CPU time were used within `elapsed` seconds, `own` of them by
/// us.
fn besides(all: f64, own: f64, elapsed: f64) -> Option<f64> {
    // Some sandboxes provide the kernel's file without real figures.
    (all >= own / 2.0).then(|| (all - own).max(0.0) / elapsed.max(1e-3))
}

/// CPU time used on, or stolen from, these CPUs since boot.
fn busy_time(cpus: &[usize]) -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    // SAFETY: asks for a constant.
    let hertz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let ticks = busy_ticks(&text, cpus)?;
    Some(Duration::from_secs_f64(
        ticks as f64 / u32::try_from(hertz).ok().filter(|h| *h > 0)? as f64,
    ))
}

/// The sum of user, nice, system and steal. Interrupts are left out: they belong to no program, and our own wake-ups
/// cause some.
fn busy_ticks(stat: &str, cpus: &[usize]) -> Option<u64> {
    let of = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        let is_ours = cpus.contains(&words.next()?.parse().ok()?);
        let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        is_ours.then(|| [0, 1, 2, 7].iter().filter_map(|&at| ticks.get(at)).sum::<u64>())
    };
    let all: Vec<u64> = stat.lines().filter_map(of).collect();
    (all.len() == cpus.len()).then(|| all.iter().sum())
}

/// User and system time of this process and of children that it has waited for.
fn tree_time() -> Duration {
    cpu_time() + children_time()
}

/// Private memory of this process, counted page by page (`status` is only an estimate).
pub(crate) fn resident_bytes() -> u64 {
    let kilobytes = std::fs::read_to_string("/proc/self/smaps_rollup").ok().and_then(|rollup| {
        let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    });
    kilobytes.unwrap_or(0) * 1024
}

/// Begins a session, which this process leads. May be called between fork and exec.
pub(crate) fn new_session() -> std::io::Result<()> {
    // SAFETY: no preconditions.
    match unsafe { libc::setsid() } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Ends this process when its parent ends.
pub(crate) fn die_with_parent() {
    // SAFETY: sets one attribute of this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// File name of the object whose `pthread_mutex_lock` this process calls.
pub(crate) fn provider_of_pthread_mutex_lock() -> String {
    // SAFETY: dladdr reads the loader's tables, and fills `info` if it returns non-zero.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let address = libc::pthread_mutex_lock as *const libc::c_void;
        if libc::dladdr(address, &mut info) == 0 || info.dli_fname.is_null() {
            return "unknown".into();
        }
        let path = CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned();
        path.rsplit('/').next().unwrap_or("unknown").to_owned()
    }
}

/// One-way time of a cache line between the first and the last CPU in nanoseconds.
///
/// `None` with a single CPU. Takes about 20 ms.
pub(crate) fn line_transfer_ns() -> Option<f64> {
    let cpus = cpus();
    let [first, .., last] = cpus[..] else { return None };
    line_transfer_between(first, last, Duration::from_millis(20))
}

/// One-way time of a cache line between two CPUs in nanoseconds: the median of many short bouts of ping-pong.
///
/// Takes about `time`, but does at least 20 bouts and takes half a second at most. `None` if a thread could not be
/// started.
pub fn line_transfer_between(first: usize, last: usize, time: Duration) -> Option<f64> {
    const ROUNDS: u64 = 100;
    #[repr(align(128))]
    struct Ball(AtomicU64);
    let ball = Ball(AtomicU64::new(0));
    let over = AtomicBool::new(false);
    let (ball, over) = (&ball, &over);
    // Two new threads keep the caller's affinity unchanged.
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin_to(last);
            while !over.load(Relaxed) {
                let seen = ball.0.load(Acquire);
                if seen % 2 == 1 {
                    ball.0.store(seen + 1, Release);
                }
            }
        });
        let ping = scope.spawn(move || {
            pin_to(first);
            let start = Instant::now();
            let mut bouts = Vec::new();
            let mut at = 0;
            while start.elapsed() < time || bouts.len() < 20 {
                let bout = Instant::now();
                for _ in 0..ROUNDS {
                    ball.0.store(at + 1, Release);
                    at += 2;
                    while ball.0.load(Acquire) != at {}
                }
                bouts.push(bout.elapsed().as_nanos() as f64 / (2 * ROUNDS) as f64);
                if start.elapsed() > Duration::from_millis(500) {
                    break;
                }
            }
            over.store(true, Relaxed);
            lockwright_numbers::median(&bouts).expect("a bout at least")
        });
        ping.join().ok()
    })
}

/// The signal that asks for the end, such as SIGINT for Ctrl-C; 0: none has come.
static INTERRUPTED: AtomicI32 = AtomicI32::new(0);

/// From now on, the first Ctrl-C is only recorded. The second one ends the process.
pub fn catch_interrupts() {
    catch(libc::SIGINT);
}

/// The same for SIGHUP and SIGTERM, too. Where SIGHUP is ignored (nohup), it stays so.
pub fn catch_ends() {
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].into_iter().for_each(catch);
}

fn catch(signal: libc::c_int) {
    extern "C" fn note(signal: libc::c_int) {
        if INTERRUPTED.swap(signal, Relaxed) != 0 {
            // SAFETY: _exit may be called in a signal handler.
            unsafe { libc::_exit(128 + signal) };
        }
    }
    // SAFETY: the handler does nothing but an atomic swap and _exit.
    let before = unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
    if before == libc::SIG_IGN && signal != libc::SIGINT {
        // SAFETY: as it was.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Has Ctrl-C been pressed, or another signal come that is caught?
pub fn interrupted() -> bool {
    ending_signal().is_some()
}

/// Which one?
pub fn ending_signal() -> Option<i32> {
    Some(INTERRUPTED.load(Relaxed)).filter(|signal| *signal != 0)
}

/// The command as a shell takes it, without folders: those are nobody's business.
pub fn command_line() -> String {
    shown_command(words_shown(std::env::args_os()))
}

/// Words as far as they can be shown: not all paths are text.
fn words_shown(words: impl Iterator<Item = OsString>) -> impl Iterator<Item = String> {
    words.map(|word| word.to_string_lossy().into_owned())
}

/// A command's words for reports, starting with the program's name.
pub fn shown_command(words: impl IntoIterator<Item = String>) -> String {
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or("lockwright").to_owned();
    let shown =
        |word: String| quoted(word.split(' ').map(without_folder).collect::<Vec<_>>().join(" "));
    std::iter::once(name).chain(words.map(shown)).collect::<Vec<_>>().join(" ")
}

/// The last part of a path, also of an option's (`--output=DIR`). What has other characters, such as a URL or a regular
/// expression, stays as it is.
fn without_folder(word: &str) -> String {
    let (option, path) = match word.split_once('=') {
        Some((option, path)) if option.starts_with("--") => (&word[..=option.len()], path),
        _ => ("", word),
    };
    let is_path = path.chars().all(|c| c.is_alphanumeric() || "/._-+~@%,".contains(c));
    match path.trim_end_matches('/').rsplit_once('/') {
        Some((_, last)) if is_path => format!("{option}{last}"),
        _ => word.to_owned(),
    }
}

/// A word as a shell takes it.
fn quoted(word: String) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+~@%,:=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word;
    }
    shlex::try_quote(&word).map_or_else(|_| word.clone(), |quoted| quoted.into_owned())
}

/// The machine and the time, as in the head of every report.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Machine {
    /// The origin of the figures: `real`, `emulated`, or both.
    #[serde(skip_deserializing)]
    pub origin: &'static str,
    /// The processor's own name.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The C library's version.
    pub libc: String,
    /// UTC, ISO 8601.
    pub date: String,
    /// Runnable threads of other programs at the start (load average over one minute).
    pub load: f64,
}

impl Machine {
    /// This machine, now.
    pub fn here() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let name = info
            .lines()
            .find_map(|l| l.strip_prefix("model name").or_else(|| l.strip_prefix("Model")))
            .and_then(|l| l.split_once(':'));
        // SAFETY: returns a constant string.
        let libc = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
        Machine {
            origin: "real",
            cpu: name.map_or(std::env::consts::ARCH, |(_, name)| name.trim()).to_owned(),
            cpus: cpus().len(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            libc: format!("glibc {}", libc.to_string_lossy()),
            date: utc_now(),
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|l| l.parse().ok())
                .unwrap_or(0.0),
        }
    }

    /// One line. It says *real*, because everything this command prints was measured.
    pub(crate) fn line(&self) -> String {
        format!("{}: {}", self.origin, self.what())
    }

    /// The origin of figures on one line: `origin`, this machine, and other load on it.
    pub fn source(&self, origin: impl std::fmt::Display) -> String {
        let load = match self.load {
            load if load > 0.5 => format!(", load average at the start {load:.1}"),
            _ => String::new(),
        };
        format!("{origin}: {}{load}", self.what())
    }

    /// Processor, CPUs, kernel, C library and date, on one line.
    pub fn what(&self) -> String {
        format!("{}, {}", self.kind(), self.date)
    }

    /// Processor, CPUs, kernel and C library, on one line.
    fn kind(&self) -> String {
        format!(
            "{}, {} CPU{}, Linux {}, {}",
            self.cpu,
            self.cpus,
            if self.cpus == 1 { "" } else { "s" },
            self.kernel,
            self.libc,
        )
    }

    /// This machine's name and kind, on one line, to distinguish machines.
    pub fn host(&self) -> String {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        format!("{}: {}", name.trim(), self.kind())
    }
}

fn utc_now() -> String {
    // SAFETY: `tm` is plain numbers, filled by the call.
    let tm = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        let now = libc::time(std::ptr::null_mut());
        libc::gmtime_r(&now, &mut tm);
        tm
    };
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        tm.tm_year + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_who_ran_on_our_cpus_and_what_was_stolen() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\n\
                    cpu0 100 10 5 7000 50 3 2 4 0 0\ncpu1 1 1 1 1 1 1 1 1 1 1\n\
                    cpu12 20 0 0 9 0 0 0\nintr 12 0\n";
        assert_eq!(busy_ticks(stat, &[0]), Some(119));
        assert_eq!(busy_ticks(stat, &[0, 12]), Some(139), "an old kernel knows no stolen time");
        assert_eq!(busy_ticks(stat, &[0, 2]), None, "a CPU that is not there");
        assert_eq!(busy_ticks("", &[0]), None);
    }

    #[test]
    fn a_shown_command_can_be_typed_again_and_names_no_folder() {
        let of = |words: &[&str]| shown_command(words.iter().map(|word| (*word).to_owned()));
        let words = [
            "/opt/bin/lockwright",
            "compare",
            "--lock",
            "glibc,fifo:spin=5us",
            "--load",
            "/opt/wrk -d5 http://localhost:8080/",
            "--more",
            "(?<rps>[0-9.]+)/s",
            "--html=out/c.html",
            "--",
            "./server",
            "/srv/data/",
        ];
        assert_eq!(
            of(&words),
            "lockwright compare --lock glibc,fifo:spin=5us --load 'wrk -d5 http://localhost:8080/' --more \
             '(?<rps>[0-9.]+)/s' --html=c.html -- server data"
        );
        assert_eq!(of(&["lockwright", ""]), "lockwright ''");
    }

    #[test]
    fn what_we_use_ourselves_is_not_others_and_silence_is_no_answer() {
        assert_eq!(besides(12.0, 10.0, 10.0), Some(0.2));
        assert_eq!(besides(9.9, 10.0, 10.0), Some(0.0), "ticks are coarse");
        assert_eq!(besides(0.0, 10.0, 10.0), None, "an account that nobody writes");
    }
}
