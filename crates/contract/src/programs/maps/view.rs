//! A copy of a policy's maps, as the command reads it from another process. Nothing in it is believed.

use super::{CELL, MAP_NAME, Map, MapKind, MapSpec, Reported, hash, ring};

/// A copy of one map.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Its kind.
    pub kind: MapKind,
    /// The number of the map in its policy.
    pub number: u32,
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of a value.
    pub value_size: usize,
    /// The number of entries that it may have; of a ring, its bytes.
    pub max_entries: usize,
    /// The number of rows of a per-CPU array; 1 for others.
    pub rows: usize,
    /// The entries that a hash has; 0 for others.
    pub live: usize,
    /// Records that a ring didn't take.
    pub lost: u64,
    head: u64,
    stride: usize,
    first: usize,
    buckets: usize,
    bytes: &'a [u8],
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl<'a> View<'a> {
    /// The maps in a copy of a policy's data, up to the first that makes no sense.
    pub fn all(mut data: &'a [u8]) -> impl Iterator<Item = Self> {
        core::iter::from_fn(move || {
            let view = Self::new(data)?;
            data = &data[view.bytes.len()..];
            Some(view)
        })
    }

    fn new(data: &'a [u8]) -> Option<Self> {
        use core::mem::offset_of;
        let len = u64_at(data, offset_of!(Map, len))?;
        let bytes = data.get(..usize::try_from(len).ok()?)?;
        if bytes.len() < size_of::<Map>() {
            return None;
        }
        let number = u32_at(bytes, offset_of!(Map, number))?;
        let spec = MapSpec {
            kind: MapKind::of(u32_at(bytes, offset_of!(Map, kind))?)?,
            key_size: u32_at(bytes, offset_of!(Map, key_size))?,
            value_size: u32_at(bytes, offset_of!(Map, value_size))?,
            max_entries: u32_at(bytes, offset_of!(Map, max_entries))?,
        };
        spec.check().ok()?;
        // What these ask for fits: so nobody counts to a number that has only been claimed.
        let map = spec.header(number, u32_at(bytes, offset_of!(Map, rows))?);
        (map.len == len).then_some(Self {
            kind: spec.kind,
            number,
            key_size: map.key_size as usize,
            value_size: map.value_size as usize,
            max_entries: map.max_entries as usize,
            rows: map.rows as usize,
            live: u32_at(bytes, offset_of!(Map, live))? as usize,
            lost: u64_at(bytes, offset_of!(Map, lost))?,
            head: u64_at(bytes, offset_of!(Map, head))?,
            stride: map.stride as usize,
            first: map.first as usize,
            buckets: map.buckets as usize,
            bytes,
        })
    }

    /// Its name, in UTF-8; it may be cut off.
    pub fn name(&self) -> &'a [u8] {
        let name = &self.bytes[core::mem::offset_of!(Map, name)..][..MAP_NAME];
        name.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Bytes of the map with its entries: where the next one begins.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// An array's value; `row`: which CPUs', of a per-CPU array.
    pub fn value(&self, number: usize, row: usize) -> Option<&'a [u8]> {
        let is_array = matches!(self.kind, MapKind::Array | MapKind::PerCpuArray);
        if !is_array || number >= self.max_entries || row >= self.rows {
            return None;
        }
        let row = self
            .max_entries
            .checked_mul(self.stride)?
            .checked_next_multiple_of(64)?
            .checked_mul(row)?;
        let at = self.first.checked_add(row)?.checked_add(number.checked_mul(self.stride)?)?;
        self.bytes.get(at..at.checked_add(self.value_size)?)
    }

    /// A hash's keys and values. A value that was being changed may be half old, half new; so may a key's entry that had just been
    /// deleted.
    pub fn entries(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let view = *self;
        let slots = if view.kind == MapKind::Hash { view.buckets * hash::WAYS as usize } else { 0 };
        let key_bytes = view.key_size.next_multiple_of(8);
        let begin = view.first.checked_sub(8 + key_bytes);
        (0..slots).filter_map(move |slot| {
            let at = begin?.checked_add(slot.checked_mul(view.stride)?)?;
            let is_live = u64_at(view.bytes, at)? & 1 != 0;
            let key = view.bytes.get(at + 8..)?.get(..view.key_size)?;
            let value = view.bytes.get(at + 8 + key_bytes..)?.get(..view.value_size)?;
            is_live.then_some((key, value))
        })
    }

    /// A ring's records from this number on, oldest first. `before` and `after` are copies of the same map, made before and after
    /// this one: a record that was overwritten meanwhile is left out. `from`: one more than the last [`Reported::number`], or 0.
    pub fn records(
        &self,
        before: &'a Self,
        after: &'a Self,
        from: u64,
    ) -> impl Iterator<Item = Reported> + use<'a> {
        let cells = |view: &Self| {
            let len = view.max_entries / CELL * CELL;
            let is_ring = view.kind == MapKind::Ring;
            view.bytes
                .get(view.first..)
                .and_then(|cells| cells.get(..len))
                .filter(|_| is_ring)
                .unwrap_or_default()
        };
        let copies = [cells(before), cells(self), cells(after)];
        let all = (copies[1].len() / CELL) as u64;
        let head = before.head.min(1 << 52);
        (from.max(head.saturating_sub(all))..head)
            .filter_map(move |number| ring::read(copies, number))
    }
}
