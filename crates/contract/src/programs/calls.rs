//! The helpers that need nothing but a policy's maps, for an environment in any process. What they are told is what the verifier has
//! checked: pointers to maps of this policy, and to as much memory as the signature says.

use crate::programs::env::{Env, HelperFn};
use crate::programs::helpers::{self, HELPERS};
use crate::programs::maps::Map;

fn map(address: u64) -> *mut Map {
    core::ptr::with_exposed_provenance_mut(address as usize)
}

fn memory(address: u64) -> *const u8 {
    core::ptr::with_exposed_provenance(address as usize)
}

/// The CPU, which only per-CPU arrays ask for.
#[inline]
unsafe fn cpu(map: *const Map, env: &Env) -> u32 {
    // SAFETY: our caller's promise: a map, and an environment whose helpers are functions.
    unsafe { if (*map).rows > 1 { (env.helpers[CPU])(0, 0, 0, 0, 0, env) as u32 } else { 0 } }
}

const CPU: usize = helpers::index(helpers::CPU);

/// `lw_lookup`.
///
/// # Safety
/// `at` is the address of a map, `key` that of as many readable bytes as its keys have.
pub unsafe extern "C" fn lookup(at: u64, key: u64, _: u64, _: u64, _: u64, env: &Env) -> u64 {
    // SAFETY: our caller's promise.
    unsafe { Map::lookup(map(at), memory(key), cpu(map(at), env)).expose_provenance() as u64 }
}

/// `lw_update`.
///
/// # Safety
/// As [`lookup`]; `value` is the address of as many readable bytes as the map's values have.
pub unsafe extern "C" fn update(
    at: u64,
    key: u64,
    value: u64,
    flags: u64,
    _: u64,
    env: &Env,
) -> u64 {
    // SAFETY: our caller's promise.
    unsafe { Map::update(map(at), memory(key), memory(value), flags, cpu(map(at), env)) as u64 }
}

/// `lw_delete`.
///
/// # Safety
/// As [`lookup`].
pub unsafe extern "C" fn delete(at: u64, key: u64, _: u64, _: u64, _: u64, _: &Env) -> u64 {
    // SAFETY: our caller's promise.
    unsafe { Map::delete(map(at), memory(key)) as u64 }
}

/// `lw_storage`.
///
/// # Safety
/// As [`lookup`].
pub unsafe extern "C" fn storage(at: u64, key: u64, _: u64, _: u64, _: u64, _: &Env) -> u64 {
    // SAFETY: our caller's promise.
    unsafe { Map::storage(map(at), memory(key)).expose_provenance() as u64 }
}

/// `lw_report`.
///
/// # Safety
/// `at` is the address of a map, `data` that of `size` readable bytes.
pub unsafe extern "C" fn report(at: u64, data: u64, size: u64, flags: u64, _: u64, _: &Env) -> u64 {
    // SAFETY: our caller's promise.
    unsafe { Map::report(map(at), memory(data), size, flags) as u64 }
}

/// `lw_log2`: the place of the highest bit; 0 for 0.
pub const fn log2_of(value: u64) -> u32 {
    match value.checked_ilog2() {
        Some(log) => log,
        None => 0,
    }
}

/// `lw_log2`.
///
/// # Safety
/// None is needed; the type is a helper's.
pub unsafe extern "C" fn log2(value: u64, _: u64, _: u64, _: u64, _: u64, _: &Env) -> u64 {
    log2_of(value).into()
}

/// What the machine answers: the helpers that [`helpers`](helpers()) can't know.
#[derive(Clone, Copy, Debug)]
pub struct MachineHelpers {
    /// `lw_now`.
    pub now: HelperFn,
    /// `lw_cpu`.
    pub cpu: HelperFn,
    /// `lw_pid_tgid`.
    pub pid_tgid: HelperFn,
    /// `lw_numa`.
    pub numa: HelperFn,
    /// `lw_tag`.
    pub tag: HelperFn,
    /// `lw_prio`.
    pub prio: HelperFn,
    /// `lw_class`.
    pub class: HelperFn,
}

/// All helpers, for an [`Env`].
pub const fn helpers(machine: MachineHelpers) -> [HelperFn; HELPERS] {
    let mut all = [log2 as HelperFn; HELPERS];
    all[helpers::index(helpers::LOOKUP)] = lookup;
    all[helpers::index(helpers::UPDATE)] = update;
    all[helpers::index(helpers::DELETE)] = delete;
    all[helpers::index(helpers::NOW)] = machine.now;
    all[CPU] = machine.cpu;
    all[helpers::index(helpers::PID_TGID)] = machine.pid_tgid;
    all[helpers::index(helpers::NUMA)] = machine.numa;
    all[helpers::index(helpers::REPORT)] = report;
    all[helpers::index(helpers::TAG)] = machine.tag;
    all[helpers::index(helpers::PRIO)] = machine.prio;
    all[helpers::index(helpers::LOG2)] = log2;
    all[helpers::index(helpers::CLASS)] = machine.class;
    all[helpers::index(helpers::STORAGE)] = storage;
    all
}
