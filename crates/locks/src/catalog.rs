//! The catalogue: the only list of locks. The command, the docs, the tests, the models and the runtime
//! iterate over it; a new lock takes a file of its own and one line below. A preset is another lock with other
//! defaults, or over another base. It has only an entry here (auto has a file, too, since it chooses).

use crate::amp::cal_textbook;
use crate::amp::reorderable::{self, Reorderable};
use crate::amp::reorderable_try::Tries;
use crate::amp::standby::WINDOW_MAX_NS;
use crate::delegation::{self, cc_synch, combiner, combiner_numa, dsm_synch, dynamic, ffwd};
use crate::delegation::{flat_combining, rcl};
use crate::entry::{Entry, Kind};
use crate::front::{self, Alone, AsIs, Rule, Tune, Tuning, Window, tuning};
use crate::numa::cohort::{self, Cohort};
use crate::numa::shfllock;
use crate::rw::ReadWrite;
use crate::wide::Wide;
use crate::{block, numa, queue, rw, spin};
use lockwright_platform::{Delegated, InPlace, Machine, TryLock};

/// Does something with the type of every lock: the way to run generic code over the catalogue.
pub trait Visitor<P: Machine> {
    /// Called once per lock, in the catalogue's order.
    fn visit<L: TryLock<P> + 'static>(&mut self, entry: &'static Entry);
}

/// As [`Visitor`], for the whole locks, which can live in place.
pub trait WholeVisitor<P: Machine> {
    /// Called once per whole lock, in the catalogue's order.
    fn visit<L: TryLock<P> + InPlace + 'static>(&mut self, entry: &'static Entry);
}

/// As [`Visitor`], for the front locks' rules.
pub trait FrontVisitor<P: Machine> {
    /// Called once per front lock, in the catalogue's order. `defaults`: the lock's defaults, on top of what suits the machine.
    fn visit<R: Rule<P>>(&mut self, entry: &'static Entry, defaults: fn(Tuning) -> Tuning);
}

/// As [`Visitor`], for the delegated locks.
pub trait DelegatedVisitor<P: Machine> {
    /// Called once per delegated lock, in the catalogue's order.
    fn visit<L: Delegated<P> + 'static>(&mut self, entry: &'static Entry);
}

/// As [`Visitor`], for the readers-writer locks.
pub trait ReadWriteVisitor<P: Machine> {
    /// Called once per readers-writer lock, in the catalogue's order.
    fn visit<L: ReadWrite<P> + 'static>(&mut self, entry: &'static Entry);
}

/// A front lock's defaults. Each program that we are preloaded into asks for those of one lock when it starts, so they lie with what else
/// runs then.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".lockwright.begin"))]
fn tuned<P: Machine, R: Rule<P>, T: Tune>(tuning: Tuning) -> Tuning {
    T::tune(R::defaults(tuning))
}

macro_rules! catalog {
    (
        front { $($front:ident: $rule:ty, $tune:ty = $front_entry:expr;)* }
        whole { $($whole:ident: $lock:ty = $whole_entry:expr;)* }
        wide { $($wide:ident: $large:ty = $wide_entry:expr;)* }
        delegated { $($sent:ident: $delegate:ty = $sent_entry:expr;)* }
        readers { $($shared:ident: $rw:ty = $shared_entry:expr;)* }
    ) => {
        $(static $front: Entry = $front_entry;)*
        $(static $whole: Entry = $whole_entry;)*
        $(static $wide: Entry = $wide_entry;)*
        $(static $sent: Entry = $sent_entry;)*
        $(static $shared: Entry = $shared_entry;)*

        /// Every lock of mutexes.
        pub static CATALOG: &[&Entry] = &[$(&$front,)* $(&$whole,)* $(&$wide,)*];

        /// Every delegated lock.
        pub static DELEGATED: &[&Entry] = &[$(&$sent,)*];

        /// Every readers-writer lock.
        pub static READ_WRITE: &[&Entry] = &[$(&$shared,)*];

        /// Shows every delegated lock's type to `visitor`.
        pub fn visit_delegated<P: Machine>(visitor: &mut impl DelegatedVisitor<P>) {
            $({
                type Lock<P> = $delegate;
                visitor.visit::<Lock<P>>(&$sent);
            })*
        }

        /// Shows every readers-writer lock's type to `visitor`.
        pub fn visit_read_write<P: Machine>(visitor: &mut impl ReadWriteVisitor<P>) {
            $({
                type Lock<P> = $rw;
                visitor.visit::<Lock<P>>(&$shared);
            })*
        }

        /// Shows every lock's type to `visitor`.
        pub fn visit_all<P: Machine>(visitor: &mut impl Visitor<P>) {
            $(visitor.visit::<Alone<P, $rule, $tune>>(&$front);)*
            $({
                type Lock<P> = $lock;
                visitor.visit::<Lock<P>>(&$whole);
            })*
            $({
                type Lock<P> = $large;
                visitor.visit::<Lock<P>>(&$wide);
            })*
        }

        /// Shows every front lock's rule to `visitor`.
        pub fn visit_front<P: Machine>(visitor: &mut impl FrontVisitor<P>) {
            $(visitor.visit::<$rule>(&$front, tuned::<P, $rule, $tune>);)*
        }

        /// Shows every whole lock's type to `visitor`; wide locks as they live in place.
        pub fn visit_whole<P: Machine>(visitor: &mut impl WholeVisitor<P>) {
            $({
                type Lock<P> = $lock;
                visitor.visit::<Lock<P>>(&$whole);
            })*
            $({
                type Lock<P> = $large;
                visitor.visit::<Wide<P, Lock<P>>>(&$wide);
            })*
        }
    };
}

catalog! {
    front {
        AUTO: front::auto::Lock, AsIs = front::auto::ENTRY;
        BARGING: front::barging::Lock, AsIs = front::barging::ENTRY;
        FIFO: front::fifo::Lock, AsIs = front::fifo::ENTRY;
        SLO: front::slo::Lock, AsIs = front::slo::ENTRY;
        ASL: front::asl::Lock, AsIs = front::asl::ENTRY;
        ASL_MAX: front::asl::Lock, Max = ASL_MAX_ENTRY;
        ASL_OPT: front::asl::Lock, Opt = ASL_OPT_ENTRY;
        ASL_PTHREAD: front::asl_pthread::Lock, AsIs = front::asl_pthread::ENTRY;
        PB10: front::pb10::Lock, AsIs = front::pb10::ENTRY;
        MALTHUSIAN: front::malthusian::Lock, AsIs = front::malthusian::ENTRY;
        CAL: front::cal::Lock, AsIs = front::cal::ENTRY;
        PROGRAMMED: front::programmed::Lock, AsIs = front::programmed::ENTRY;
        MUTEXEE: front::mutexee::Lock, AsIs = front::mutexee::ENTRY;
    }
    whole {
        TAS: spin::tas::Lock<P> = spin::tas::ENTRY;
        TTAS: spin::ttas::Lock<P> = spin::ttas::ENTRY;
        TICKET: spin::ticket::Lock<P> = spin::ticket::ENTRY;
        MCS: queue::mcs::Lock<P> = queue::mcs::ENTRY;
        CLH: queue::clh::Lock<P> = queue::clh::ENTRY;
        RECIPROCATING: queue::reciprocating::Lock<P> = queue::reciprocating::ENTRY;
        CNA: numa::cna::Lock<P> = numa::cna::ENTRY;
        MCS_STP: block::mcs_stp::Lock<P> = block::mcs_stp::ENTRY;
        ASL_MCS: Reorderable<queue::mcs::Lock<P>> = reorderable::over(queue::mcs::ENTRY, "asl-mcs");
        ASL_MCS_TRY: Reorderable<queue::mcs::Lock<P>, Tries> = ASL_MCS_TRY_ENTRY;
        ASL_TICKET: Reorderable<spin::ticket::Lock<P>> = reorderable::over(spin::ticket::ENTRY, "asl-ticket");
        ASL_CNA: Reorderable<numa::cna::Lock<P>> = reorderable::over_near(numa::cna::ENTRY, "asl-cna", "as cna in line; little cores join the line after their window");
    }
    wide {
        MCS_TP: queue::mcs_tp::Lock<P> = queue::mcs_tp::ENTRY;
        MCS_TP_YIELD: queue::mcs_tp::Yielding<P> = delegation::yielding(queue::mcs_tp::ENTRY, "mcs-tp-yield", "mcs-tp, whose waiters yield their CPU every microsecond");
        HAPAX: queue::hapax::Lock<P> = queue::hapax::ENTRY;
        PTKT: spin::ptkt::Lock<P> = spin::ptkt::ENTRY;
        GLK: block::glk::Lock<P> = block::glk::ENTRY;
        U_SCL: block::u_scl::Lock<P> = block::u_scl::ENTRY;
        CAL_TEXTBOOK: cal_textbook::Lock<P> = cal_textbook::ENTRY;
        SHFLLOCK: shfllock::Lock<P> = shfllock::ENTRY;
        SHFLLOCK_PB10: shfllock::Pb10<P> = shfllock::proportional("shfllock-pb10");
        C_TKT_TKT: Cohort<P, spin::ticket::Lock<P>, spin::ticket::Lock<P>> = C_TKT_TKT_ENTRY;
        CPTLTKT: Cohort<P, spin::ptkt::Lock<P>, spin::ticket::Lock<P>> = cohort::over(spin::ptkt::ENTRY, "cptltkt", "a global partitioned ticket lock over one ticket lock per cluster; a cluster keeps the global lock for a while");
        ASL_C_TKT_TKT: Reorderable<Cohort<P, spin::ticket::Lock<P>, spin::ticket::Lock<P>>> = reorderable::over_near(C_TKT_TKT_ENTRY, "asl-c-tkt-tkt", "as c-tkt-tkt in line; little cores join the line after their window");
    }
    delegated {
        DYNAMIC: dynamic::Lock<P> = dynamic::ENTRY;
        COMBINER: combiner::Lock<P> = combiner::ENTRY;
        COMBINER_NUMA: combiner_numa::Lock<P> = combiner_numa::ENTRY;
        RCL: rcl::Lock<P> = rcl::ENTRY;
        RCL_YIELD: rcl::Yielding<P> = delegation::yielding(rcl::ENTRY, "rcl-yield", "rcl, whose waiters yield their CPU every 0.5 µs");
        RCL_POOL: rcl::Pool<P> = rcl::POOL_ENTRY;
        FFWD: ffwd::Lock<P> = ffwd::ENTRY;
        FLAT_COMBINING: flat_combining::Lock<P> = flat_combining::ENTRY;
        FLAT_COMBINING_YIELD: flat_combining::Yielding<P> = delegation::yielding(flat_combining::ENTRY, "flat-combining-yield", "flat-combining, whose waiters yield their CPU every 0.5 µs");
        CC_SYNCH: cc_synch::Lock<P> = cc_synch::ENTRY;
        CC_SYNCH_YIELD: cc_synch::Yielding<P> = delegation::yielding(cc_synch::ENTRY, "cc-synch-yield", "cc-synch, whose waiters yield their CPU every 0.5 µs");
        DSM_SYNCH: dsm_synch::Lock<P> = dsm_synch::ENTRY;
        DSM_SYNCH_YIELD: dsm_synch::Yielding<P> = delegation::yielding(dsm_synch::ENTRY, "dsm-synch-yield", "dsm-synch, whose waiters yield their CPU every 0.5 µs");
    }
    readers {
        RWLOCK: rw::rwlock::Lock<P> = rw::rwlock::ENTRY;
        PROGRAMMED_RW: rw::programmed_rw::Lock<P> = rw::programmed_rw::ENTRY;
        PHASE_FAIR: rw::phase_fair::Lock<P> = rw::phase_fair::ENTRY;
        BRAVO: rw::bravo::Lock<P> = rw::bravo::ENTRY;
        BRAVO_PHASE_FAIR: rw::bravo::Bravo<P, rw::phase_fair::Lock<P>> = BRAVO_PHASE_FAIR_ENTRY;
        PER_CPU: rw::per_cpu::Lock<P> = rw::per_cpu::ENTRY;
    }
}

const ASL_MCS_TRY_ENTRY: Entry = Entry {
    preset_of: Some("asl-mcs"),
    idea: "asl-mcs, whose little cores try to take the lock while they stand by, and stay out of the line if somebody was faster",
    source: "our own, on LibASL's algorithm 1: Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022",
    advice: "to compare with asl-mcs: never slower than mcs, simulated on an M1 (asl-mcs: 0.98 of it at low contention); in programs, use asl",
    ..reorderable::over(queue::mcs::ENTRY, "asl-mcs-try")
};

const C_TKT_TKT_ENTRY: Entry = cohort::over(
    spin::ticket::ENTRY,
    "c-tkt-tkt",
    "a global ticket lock over one ticket lock per cluster; a cluster keeps the global lock for a while",
);

const BRAVO_PHASE_FAIR_ENTRY: Entry = Entry {
    id: "bravo-phase-fair",
    preset_of: Some("bravo"),
    idea: "bravo over phase-fair",
    source: "D. Dice, A. Kogan, BRAVO: Biased Locking for Reader-Writer Locks, USENIX ATC 2019; over phase-fair",
    order: "as phase-fair while the bias is off",
    space: "8 B more per lock than phase-fair; one table of 32 KB for all locks",
    wakes: "none: waiters spin and never sleep",
    options: &[rw::INHIBIT],
    ..rw::bravo::ENTRY
};

/// LibASL-MAX (PPoPP 2022, section 4.1): the most throughput that reordering can give, and the longest waits on
/// little cores.
struct Max;
impl Tune for Max {
    fn tune(tuning: Tuning) -> Tuning {
        Tuning { window: Window::Fixed, window_ns: WINDOW_MAX_NS, ..tuning }
    }
}

const ASL_MAX_ENTRY: Entry = Entry {
    id: "asl-max",
    preset_of: Some("asl"),
    idea: "asl with the largest window, 100 ms, inside and outside epochs",
    source: "LibASL: Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022, section 4.1, LibASL-MAX",
    order: "as asl",
    space: "as asl",
    wakes: "as asl",
    delay: "a thread on a little core, by up to 100 ms; then as fifo",
    advice: "to see the most that reordering can gain; for programs that need throughput and nothing else",
    ..front::asl::ENTRY
};

/// LibASL-OPT (PPoPP 2022, section 4.1): the best static window, found by trying; feedback is compared with it.
struct Opt;
impl Tune for Opt {
    fn tune(tuning: Tuning) -> Tuning {
        Tuning { window: Window::Fixed, window_ns: OPT_WINDOW_NS, ..tuning }
    }
}

/// ASL-OPT's window, by default, ns.
const OPT_WINDOW_NS: u32 = 50_000;

const ASL_OPT_ENTRY: Entry = Entry {
    id: "asl-opt",
    preset_of: Some("asl"),
    idea: "asl with a fixed window, inside and outside epochs",
    source: "LibASL: Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022, section 4.1, LibASL-OPT",
    order: "as asl",
    space: "as asl",
    wakes: "as asl",
    delay: "a thread on a little core, by `window`; then as fifo",
    advice: "to compare with asl; for programs where one window fits every operation",
    options: &[
        tuning::WINDOW.or(OPT_WINDOW_NS),
        tuning::WAIT,
        tuning::SPIN,
        tuning::BYPASS.or(front::fifo::BYPASS),
    ],
    ..front::asl::ENTRY
};

/// The front locks that are not presets of others: whole-system tests run under these.
pub fn front_rules() -> impl Iterator<Item = &'static Entry> {
    let is_rule = |entry: &&Entry| entry.kind == Kind::Front && entry.preset_of.is_none();
    CATALOG.iter().copied().filter(is_rule)
}

/// The readers-writer lock called `id`.
pub fn find_read_write(id: &str) -> Option<&'static Entry> {
    READ_WRITE.iter().copied().find(|entry| entry.id == id)
}

/// All locks: of mutexes, delegated, and readers-writer locks.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    [CATALOG, DELEGATED, READ_WRITE].into_iter().flatten().copied()
}

/// The entry called `id`, whatever it locks.
pub fn find_any(id: &str) -> Option<&'static Entry> {
    all().find(|entry| entry.id == id)
}

/// The entry called `id`.
pub fn find(id: &str) -> Option<&'static Entry> {
    CATALOG.iter().copied().find(|entry| entry.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Promise;
    use crate::testing::{Threads, counts_right, lives_in_zeroed_memory};
    use lockwright_platform::{InPlace, TryLock};

    struct Counts;
    impl Visitor<Threads> for Counts {
        fn visit<L: TryLock<Threads> + 'static>(&mut self, _: &'static Entry) {
            counts_right::<L>();
        }
    }

    #[test]
    fn no_lock_loses_an_increment() {
        visit_all::<Threads>(&mut Counts);
    }

    struct InZeroes;
    impl WholeVisitor<Threads> for InZeroes {
        fn visit<L: TryLock<Threads> + InPlace>(&mut self, _: &'static Entry) {
            lives_in_zeroed_memory::<L>();
        }
    }

    #[test]
    fn zeroed_memory_is_an_unlocked_whole_lock() {
        visit_whole::<Threads>(&mut InZeroes);
    }

    #[test]
    fn what_an_entry_says_of_its_order_is_what_it_promises() {
        for entry in CATALOG {
            let in_order =
                ["first come", "arrival"].iter().any(|words| entry.order.starts_with(words));
            let of = entry.preset_of.and_then(find);
            let says = of.filter(|_| entry.order.starts_with("as ")).map_or(in_order, |of| {
                of.order.starts_with("arrival") || of.order.starts_with("first come")
            });
            let promises = matches!(entry.promise, Promise::Arrival | Promise::ArrivalOrBypass);
            assert_eq!(says, promises, "{}: '{}'", entry.id, entry.order);
        }
    }
}
