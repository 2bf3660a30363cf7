//! One function of a loaded object, by the object's hash table: what the dynamic linker does, without its lock and its scopes.

use super::{DT_GNU_HASH, DT_STRTAB, DT_SYMTAB, DT_VERSYM, DynamicEntry, Object};
use core::ffi::{CStr, c_char};

/// What an object says about a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// It doesn't define it.
    Absent,
    /// Its address.
    At(usize),
    /// Only the dynamic linker can tell.
    Odd,
}

/// A name's hash in the hash table of symbols.
pub(crate) const fn hash(name: &CStr) -> u32 {
    let (bytes, mut hash, mut at) = (name.to_bytes(), 5381_u32, 0);
    while at < bytes.len() {
        hash = hash.wrapping_mul(33).wrapping_add(bytes[at] as u32);
        at += 1;
    }
    hash
}

impl Object {
    /// The function of this name and [`hash`], in its default version, as the dynamic linker would find it for a reference without a
    /// version.
    #[unsafe(link_section = ".lockwright.begin")]
    pub(crate) fn function(&self, name: &CStr, hash: u32) -> Lookup {
        let symbols: *const DynamicEntry = self.table(DT_SYMTAB);
        let strings: *const c_char = self.table(DT_STRTAB);
        let table: *const u32 = self.table(DT_GNU_HASH);
        if table.is_null() || symbols.is_null() || strings.is_null() {
            return Lookup::Odd;
        }
        const HIDDEN: u16 = 0x8000; // a flag of a version that isn't the default
        const INDIRECT: u8 = 10;
        const LOCAL: u8 = 6;
        let versions: *const u16 = self.table(DT_VERSYM);
        // SAFETY: the object's own tables; the hash table is as in `symbols`.
        unsafe {
            let [buckets, first, filter, shift] = *table.cast::<[u32; 4]>();
            let word = *table.add(4).cast::<u64>().add((hash / 64 % filter) as usize);
            if word >> (hash % 64) & word >> ((hash >> shift) % 64) & 1 == 0 {
                return Lookup::Absent;
            }
            let heads = table.add(4 + 2 * filter as usize);
            let chains = heads.add(buckets as usize);
            let mut at = *heads.add((hash % buckets) as usize);
            while at >= first {
                let link = *chains.add((at - first) as usize);
                let symbol = &*symbols.add(at as usize);
                let is_default = || versions.is_null() || *versions.add(at as usize) & HIDDEN == 0;
                if (link ^ hash) >> 1 == 0
                    && symbol.section != 0
                    && CStr::from_ptr(strings.add(symbol.name as usize)) == name
                    && is_default()
                {
                    let is_odd = [INDIRECT, LOCAL].contains(&(symbol.info & 15));
                    let at = self.base.wrapping_add(symbol.value);
                    return if is_odd { Lookup::Odd } else { Lookup::At(at) };
                }
                if link & 1 != 0 {
                    break;
                }
                at += 1;
            }
        }
        Lookup::Absent
    }
}
