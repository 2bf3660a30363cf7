//! A policy's maps in this process's memory.

use crate::object::NamedMap;
use lockwright_contract::programs::maps::{BadMap, Layout, MAP_NAME, Map, MapKind, MapSpec};
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::offset_of;

/// How their memory is aligned. Maps need 64; with 128, a simulated core finds the same entries in a cache line in each run.
const LINE: usize = 128;

#[derive(Clone, Copy)]
#[repr(align(128))]
struct Aligned([u8; LINE]);

/// A policy's maps, with the values that its object gives them.
pub struct Maps {
    names: Vec<String>,
    offsets: Vec<usize>,
    size: usize,
    lines: Box<[UnsafeCell<Aligned>]>,
}

/// A map that can't be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("map '{name}': {why}")]
pub struct MapError {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: BadMap,
}

impl Maps {
    /// The maps of an object. A per-CPU array has `rows` rows; CPUs whose numbers are equal modulo the rows share one.
    ///
    /// # Errors
    /// The first map that can't be.
    pub fn new(maps: &[NamedMap], rows: u32) -> Result<Self, MapError> {
        let specs: Vec<MapSpec> = maps.iter().map(|map| map.spec).collect();
        let layout = Layout::new(&specs, rows)
            .map_err(|(at, why)| MapError { name: maps[at].name.clone(), why })?;
        let size = layout.size();
        let mut bytes = vec![0; size];
        layout.write(&mut bytes);
        for (map, (offset, header)) in maps.iter().zip(layout.maps()) {
            let offset = usize::try_from(offset).unwrap_or(size);
            let name = &map.name.as_bytes()[..map.name.len().min(MAP_NAME)];
            bytes[offset + offset_of!(Map, name)..][..name.len()].copy_from_slice(name);
            // Only an array has a first value; it is the whole of a section of variables.
            let value = header.first as usize + offset;
            let len = map.initial.len().min(map.spec.value_size as usize);
            if matches!(map.spec.kind, MapKind::Array) {
                bytes[value..][..len].copy_from_slice(&map.initial[..len]);
            }
        }
        let line = |line: &[u8]| {
            let mut whole = Aligned([0; LINE]);
            whole.0[..line.len()].copy_from_slice(line);
            UnsafeCell::new(whole)
        };
        Ok(Self {
            names: maps.iter().map(|map| map.name.clone()).collect(),
            offsets: layout.maps().map(|(offset, _)| offset as usize).collect(),
            size,
            lines: bytes.chunks(LINE).map(line).collect(),
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Their names, in the order of their numbers.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// A copy of their memory, which [`View`](lockwright_contract::programs::maps::View) reads.
    pub fn bytes(&self) -> Vec<u8> {
        // SAFETY: inside the memory, which stays; volatile, as hooks may write it.
        (0..self.size).map(|at| unsafe { self.data().add(at).read_volatile() }).collect()
    }

    /// Their memory, of [`size`](Self::size) bytes. Hooks write it.
    pub fn data(&self) -> *mut u8 {
        self.lines.as_ptr().cast_mut().cast::<u8>()
    }

    /// Bytes of their memory.
    pub fn size(&self) -> usize {
        self.size
    }

    /// A map's offset there.
    pub fn offset(&self, number: usize) -> usize {
        self.offsets[number]
    }

    /// A map.
    pub(crate) fn map(&self, number: usize) -> &Map {
        // SAFETY: a map begins there, in a line; what else changes in its header is atomic.
        unsafe { &*self.data().add(self.offsets[number]).cast::<Map>() }
    }
}

impl fmt::Debug for Maps {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Maps").field("names", &self.names).field("size", &self.size).finish()
    }
}
