//! Copied pieces of processes' stacks, which this command unwinds.

use crate::bytes::Bytes;
use lockwright_contract::pieces::{PIECE, Stack};
use lockwright_symbols::{AddressSpace, Registers, Unwinder};
use std::cell::OnceCell;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;

/// A piece of a stack.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The return address of the call.
    pub site: u64,
    pointer: u64,
    frame: u64,
    bytes: Vec<u8>,
    unwound: OnceCell<Vec<u64>>,
}

impl Piece {
    /// The piece with this index in the table at `table`. `key` is its entry in the table's keys. `None`: there is
    /// none, or it was being written.
    pub fn read(file: &File, table: usize, index: usize, key: u64) -> Option<Self> {
        let mut bytes = vec![0; size_of::<Stack>()];
        file.read_exact_at(&mut bytes, (table + index * size_of::<Stack>()) as u64).ok()?;
        let number = |at: usize| Bytes(&bytes).u64(at);
        if key == 0 || number(offset_of!(Stack, key)) != key {
            return None;
        }
        let length = (number(offset_of!(Stack, length)) as u32 as usize).min(PIECE);
        let from = offset_of!(Stack, bytes);
        (length > 0).then(|| Self {
            site: number(offset_of!(Stack, site)),
            pointer: number(offset_of!(Stack, pointer)),
            frame: number(offset_of!(Stack, frame)),
            bytes: bytes[from..from + length].to_vec(),
            unwound: OnceCell::new(),
        })
    }

    /// The addresses of the calls, the innermost first.
    pub fn calls(&self, unwinder: &mut Unwinder, space: &AddressSpace) -> &[u64] {
        self.unwound.get_or_init(|| {
            let registers = Registers {
                instruction: self.site.wrapping_sub(1),
                stack: self.pointer,
                frame: Some(self.frame),
                link: 0,
            };
            unwinder.copied(space, registers, &self.bytes)
        })
    }
}

impl PartialEq for Piece {
    fn eq(&self, other: &Self) -> bool {
        (self.site, self.pointer, &self.bytes) == (other.site, other.pointer, &other.bytes)
    }
}

impl Eq for Piece {}
