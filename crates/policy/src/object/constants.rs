//! Constants that may be changed before a policy is verified: numbers that its source declares as `const volatile`.
//!
//! They lie in `.rodata`. The compiler doesn't know their values, so another value in the section is all that it takes.

use super::Object;
use super::btf::Btf;
use object::read::elf::{ElfFile64, ElfSection64, ElfSymbol64};
use object::{LittleEndian, Object as _, ObjectSection, ObjectSymbol};
use std::collections::BTreeMap;

/// The section of constants.
pub(super) const SECTION: &str = ".rodata";

/// The most symbols of the section that are looked at.
const MOST: usize = 256;

/// A constant: where it lies in its section's value, and what numbers it can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedConstant {
    /// Its name in the source.
    pub name: String,
    /// Its first byte.
    offset: usize,
    /// Bytes: 1, 2, 4 or 8.
    size: usize,
    is_signed: bool,
    is_bool: bool,
}

/// Why a constant can't have a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CantSet {
    /// The policy has no such constant.
    #[error("there is no such constant")]
    Unknown,
    /// The value doesn't fit.
    #[error("it can be {0} to {1}")]
    Range(i128, i128),
}

impl NamedConstant {
    /// The smallest and the largest number that it can be.
    pub fn range(&self) -> (i128, i128) {
        let bits = 8 * self.size as u32;
        match (self.is_bool, self.is_signed) {
            (true, _) => (0, 1),
            (_, true) => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            (_, false) => (0, (1 << bits) - 1),
        }
    }

    /// Its value in these bytes of its section.
    fn value(&self, section: &[u8]) -> Option<i128> {
        let mut bytes = [0; 16];
        bytes[..self.size].copy_from_slice(section.get(self.offset..self.offset + self.size)?);
        let unused = 128 - 8 * self.size as u32;
        let value = i128::from_le_bytes(bytes) << unused;
        Some(if self.is_signed { value >> unused } else { (value as u128 >> unused) as i128 })
    }
}

impl Object {
    /// Its constants, and their values.
    pub fn constants(&self) -> impl Iterator<Item = (&NamedConstant, i128)> {
        self.maps.iter().flat_map(|map| {
            map.constants.iter().filter_map(|one| Some((one, one.value(&map.initial)?)))
        })
    }

    /// Gives a constant another value.
    ///
    /// # Errors
    /// It has none of this name, or the value doesn't fit.
    pub fn set(&mut self, name: &str, value: i128) -> Result<(), CantSet> {
        for map in &mut self.maps {
            let Some(one) = map.constants.iter().find(|one| one.name == name) else { continue };
            let (least, most) = one.range();
            if !(least..=most).contains(&value) {
                return Err(CantSet::Range(least, most));
            }
            let place = map.initial.get_mut(one.offset..one.offset + one.size);
            let place = place.ok_or(CantSet::Unknown)?;
            place.copy_from_slice(&value.to_le_bytes()[..one.size]);
            return Ok(());
        }
        Err(CantSet::Unknown)
    }
}

/// The constants of the section; none if the object doesn't say what they are.
pub(super) fn of(
    elf: &ElfFile64<'_, LittleEndian>,
    btf: Option<&Btf<'_>>,
    section: &ElfSection64<'_, '_, LittleEndian>,
) -> Vec<NamedConstant> {
    let Some(btf) = btf else { return Vec::new() };
    let variables: BTreeMap<&str, u32> = btf.variables(SECTION).into_iter().collect();
    let one = |symbol: ElfSymbol64<'_, '_, LittleEndian>| {
        let name = symbol.name().ok().filter(|name| !name.is_empty())?;
        let number = variables.get(name)?;
        let (size, is_signed, is_bool) = btf.integer(*number)?;
        let offset = usize::try_from(symbol.address()).ok()?;
        let size = usize::try_from(size).ok().filter(|size| [1, 2, 4, 8].contains(size))?;
        let is_inside = offset.checked_add(size)? as u64 <= section.size();
        is_inside.then(|| NamedConstant { name: name.to_owned(), offset, size, is_signed, is_bool })
    };
    let symbols = elf.symbols().filter(|one| one.section_index() == Some(section.index()));
    let mut found: Vec<_> = symbols.take(MOST).filter_map(one).collect();
    found.sort_by_key(|one| one.offset);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shipped::shipped;

    fn read(name: &str) -> Object {
        let shipped = shipped().iter().find(|one| one.name == name).unwrap();
        Object::read(shipped.object).unwrap()
    }

    fn values(object: &Object) -> Vec<(String, i128)> {
        object.constants().map(|(one, value)| (one.name.clone(), value)).collect()
    }

    #[test]
    fn each_shipped_policy_says_what_its_constants_are() {
        for shipped in shipped() {
            let object = Object::read(shipped.object).unwrap();
            let declared = shipped.source.lines().filter_map(|line| {
                let (head, value) = line.strip_prefix("const volatile ")?.split_once(" = ")?;
                let (_, name) = head.split_once(' ')?;
                Some((name.to_owned(), value.trim_end_matches(';').parse().unwrap()))
            });
            let mut declared: Vec<(String, i128)> = declared.collect();
            let mut known = values(&object);
            declared.sort();
            known.sort();
            assert_eq!(known, declared, "{}", shipped.name);
        }
    }

    #[test]
    fn a_constant_gets_what_fits_and_nothing_else_changes() {
        let mut object = read("pi");
        object.set("least_prio", -5).unwrap();
        assert_eq!(
            values(&object),
            [("least_prio".to_owned(), -5), ("most_passed".to_owned(), 100)]
        );
        let range = (i128::from(i32::MIN), i128::from(i32::MAX));
        assert_eq!(object.set("least_prio", 1 << 31), Err(CantSet::Range(range.0, range.1)));
        assert_eq!(object.set("most_passed", -1), Err(CantSet::Range(0, 0xffff_ffff)));
        assert_eq!(object.set("prio", 1), Err(CantSet::Unknown));
        object.set("least_prio", 1).unwrap();
        assert_eq!(object, read("pi"));
    }

    #[test]
    fn numbers_of_all_sizes_are_written_and_read() {
        for size in [1, 2, 4, 8] {
            for (is_signed, is_bool) in [(false, false), (true, false), (false, true)] {
                let one = NamedConstant { name: "c".into(), offset: 3, size, is_signed, is_bool };
                let (least, most) = one.range();
                for value in [least, 0, 1, most] {
                    let mut section = [0xff; 11];
                    section[3..3 + size].copy_from_slice(&value.to_le_bytes()[..size]);
                    assert_eq!(one.value(&section), Some(value), "{one:?}");
                }
                assert_eq!(one.value(&[0; 3]), None);
            }
        }
    }
}
