//! What threads do in a schedule: a few acquisitions, in all the ways that the lock has, and what must
//! hold.

use super::explorer::explorer;
use super::protected::{Protected, check_lines, is_last, pause, spawn};
use super::subject::Make;
use super::{memory::Explored, setting::Cast};
use crate::check::Violation;
use crate::engine::{Engine, engine, fail};
use crate::lock::LockSpec;
use crate::watched::Watched;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How a thread acquires.
#[derive(Clone, Copy, Debug)]
enum Way {
    Lock {
        window_ns: u32,
    },
    Try,
    /// Front locks can be waited for at their word: until a deadline, or as glibc's own code does.
    OnWord {
        ns: Option<u32>,
    },
    /// It joins a front lock's line, and is torn out of its wait.
    Torn {
        asleep: bool,
        ns: Option<u32>,
    },
}

/// What all threads of a schedule share.
struct Scene {
    lock: Watched,
    data: Protected,
    finished: Cell<u32>,
    /// The thread that the others may overtake has had its turn.
    victim_done: Cell<bool>,
    /// Half of the waits are torn, and at the end the line may still have the nodes of threads that left.
    leaving: bool,
    /// glibc's own code unlocks at times.
    foreign: bool,
    rng: RefCell<fastrand::Rng>,
}

/// The maximal number of acquisitions by others while one waits.
const OVERTAKERS: u32 = 40;

impl Scene {
    fn draw(&self, below: u32) -> u32 {
        self.rng.borrow_mut().u32(0..below)
    }

    fn way(&self) -> Way {
        let way = match self.leaving {
            true => [0, 0, 1, 6, 6, 6, 6, 7][self.draw(8) as usize],
            false => self.draw(9),
        };
        match way {
            0..=4 => Way::Lock { window_ns: [0, 300, 3_000, 100_000_000][self.draw(4) as usize] },
            5 => Way::Try,
            6 => {
                let ns = [None, None, Some(500), Some(100_000)][self.draw(4) as usize];
                Way::Torn { asleep: self.draw(2) == 0, ns }
            }
            _ => Way::OnWord {
                ns: [None, None, Some(0), Some(500), Some(100_000)][self.draw(5) as usize],
            },
        }
    }

    /// One acquisition, with a critical section.
    fn visit(&self, way: Way) {
        if self.lock.is_delegated() {
            let window_ns = if let Way::Lock { window_ns } = way { window_ns } else { 0 };
            return self.lock.with(window_ns, || self.acquired_section());
        }
        let got = match way {
            // If glibc's code may unlock, the lock itself doesn't end the section.
            Way::Lock { window_ns } if !self.foreign => {
                return self.lock.with(window_ns, || self.acquired_section());
            }
            Way::Lock { window_ns } => {
                self.lock.lock(window_ns);
                true
            }
            Way::Try => self.lock.try_lock(),
            Way::OnWord { ns } => {
                self.lock.lock_on_word(ns).unwrap_or_else(|| self.lock.try_lock())
            }
            Way::Torn { asleep, ns } => !self.lock.torn_wait(asleep, ns) && self.lock.try_lock(),
        };
        if got {
            self.acquired_section();
            if self.foreign && self.draw(2) == 0 {
                self.lock.unlock_as_glibc();
            } else {
                self.lock.unlock();
            }
        }
    }

    fn acquired_section(&self) {
        let x = explorer(engine());
        x.acquired_at = x.steps;
        self.data.section(self.draw(8));
    }

    /// The last thread to end checks that all is well.
    fn finish(&self, threads: u32) {
        let Some(me) = is_last(&self.finished, threads) else { return };
        self.data.check();
        if self.lock.is_delegated() {
            self.lock.with(0, || ());
            return self.lock.stop();
        }
        if !self.lock.try_lock() {
            fail(Violation::NotFree { who: engine().name(me) });
        }
        self.lock.unlock();
        // If glibc's code unlocked last, a node may still be in line, until another thread comes.
        self.lock.lock(0);
        self.lock.unlock();
        check_lines();
    }
}

/// Makes lock and threads. The returned value must stay until they have ended; it may be dropped without a
/// happens-before.
pub(super) fn set_up(
    e: &mut Engine,
    spec: &LockSpec,
    make: Make,
    setting: &Cast,
    mut rng: fastrand::Rng,
) -> impl Sized + use<> {
    let (lock, memory) = make(spec, setting.threads as usize);
    explorer(e).lock = memory;
    explorer(e).lines_out = 0; // a wide lock's own, which it keeps
    let (kind, foreign) = (rng.u8(0..8), rng.u8(0..5) == 0);
    let (one_waits, leaving) = (kind == 0, kind == 2);
    if leaving {
        explorer(e).often_reads_old();
    }
    let lock = Watched::over::<Explored>(lock, spec, 0, setting.threads as usize);
    let threads = setting.threads - lock.servers() * lock.pool();
    let scene = Rc::new(Scene {
        lock,
        data: Protected::default(),
        finished: Cell::default(),
        victim_done: Cell::default(),
        leaving,
        foreign: foreign || leaving,
        rng: RefCell::new(rng),
    });
    spawn(e, &scene, setting.threads, move |scene: &Scene, number| {
        if number >= threads {
            return scene.lock.serve();
        }
        if one_waits {
            overtakes(scene, number);
        } else {
            for _ in 0..=scene.draw(3) {
                if scene.draw(4) == 0 {
                    pause(1_000);
                }
                if scene.lock.is_delegated() && scene.draw(4) == 0 {
                    scene.lock.vary(scene.draw(2));
                }
                scene.visit(scene.way());
            }
        }
        scene.finish(threads);
    });
    scene
}

/// Thread 0 acquires once; the others acquire as often as they can until it has.
fn overtakes(scene: &Scene, number: u32) {
    let way = Way::Lock { window_ns: 3_000 };
    if number == 0 {
        scene.visit(way);
        scene.victim_done.set(true);
        return;
    }
    for _ in 0..OVERTAKERS {
        if scene.victim_done.get() {
            break;
        }
        scene.visit(way);
    }
}
