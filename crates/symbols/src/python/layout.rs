//! The layout of the parts of CPython's objects that we read. 3.13 and later state it themselves. For earlier versions
//! we took the offsets from the compiler (3.11.2, 3.11.7, 3.12.1, `offsetof` with the internal headers). Within a minor
//! version they don't change.

/// Offsets in bytes, each within its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// `_PyRuntimeState`: the first interpreter.
    pub(super) interpreters: u64,
    /// `PyInterpreterState`, here and below.
    pub(super) next_interpreter: u64,
    pub(super) threads: u64,
    /// `PyThreadState`, here and below.
    pub(super) next_thread: u64,
    /// The system's id.
    pub(super) thread_id: u64,
    /// The innermost frame, or the object with a pointer to it,
    pub(super) frame: u64,
    /// here (`_PyCFrame`).
    pub(super) within: Option<u64>,
    /// `_PyInterpreterFrame`, here and below.
    pub(super) code: u64,
    pub(super) instruction: u64,
    pub(super) previous: u64,
    pub(super) owner: u64,
    /// `PyCodeObject`, here and below.
    pub(super) file: u64,
    pub(super) function: u64,
    pub(super) lines: u64,
    pub(super) first_line: u64,
    pub(super) bytecode: u64,
    /// Number of code units.
    pub(super) units: u64,
    /// Handlers of exceptions.
    pub(super) handlers: u64,
    pub(super) opcodes: Opcodes,
    /// `PyBytesObject`, here and below.
    pub(super) bytes_size: u64,
    pub(super) bytes: u64,
    /// `PyASCIIObject`, here and below.
    pub(super) text_length: u64,
    pub(super) text_state: u64,
    /// Where the characters begin, of ASCII texts and of others.
    pub(super) ascii: u64,
    pub(super) compact: u64,
}

/// Numbers of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opcodes {
    pub(super) push_exc_info: u8,
    pub(super) with_except_start: u8,
    pub(super) before_with: u8,
}

/// A frame's owner, in its lowest byte: `FRAME_OWNED_BY_CSTACK`, since 3.12.
pub(super) const OWNED_BY_C: u64 = 3;

pub(super) const V3_11: Layout = Layout {
    interpreters: 40,
    next_interpreter: 0,
    threads: 16,
    next_thread: 8,
    thread_id: 160,
    frame: 56,
    within: Some(8),
    code: 32,
    instruction: 56,
    previous: 48,
    owner: 69,
    file: 112,
    function: 128,
    lines: 136,
    first_line: 72,
    bytecode: 184,
    units: 16,
    handlers: 40,
    opcodes: Opcodes { push_exc_info: 35, with_except_start: 49, before_with: 53 },
    bytes_size: 16,
    bytes: 32,
    text_length: 16,
    text_state: 32,
    ascii: 48,
    compact: 72,
};

pub(super) const V3_12: Layout = Layout {
    threads: 72,
    thread_id: 144,
    within: Some(0),
    code: 0,
    previous: 8,
    owner: 70,
    first_line: 68,
    bytecode: 192,
    ascii: 40,
    compact: 56,
    ..V3_11
};

/// Bytes that we read of `_Py_DebugOffsets`, with which `_PyRuntime` begins.
pub(super) const DEBUG_OFFSETS: usize = 71 * 8;

/// What 3.13 states about itself.
pub(super) fn of_3_13(table: &[u8]) -> Option<Layout> {
    const COOKIE: &[u8] = b"xdebugpy";
    if table.len() < DEBUG_OFFSETS || !table.starts_with(COOKIE) {
        return None;
    }
    let offset = |index: usize| {
        let bytes = &table[index * 8..index * 8 + 8];
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    };
    let ascii = offset(70);
    let layout = Layout {
        interpreters: offset(5),
        next_interpreter: offset(8),
        threads: offset(9),
        next_thread: offset(21),
        frame: offset(23),
        within: None,
        thread_id: offset(25),
        previous: offset(29),
        code: offset(30),
        instruction: offset(31),
        owner: offset(33),
        file: offset(35),
        function: offset(37),
        lines: offset(38),
        first_line: offset(39),
        bytecode: offset(43),
        bytes_size: offset(65),
        bytes: offset(66),
        text_state: offset(68),
        text_length: offset(69),
        ascii,
        compact: ascii + 16, // after the text as UTF-8, and its length
        // Not in the table; taken from the compiler.
        units: 16,
        handlers: 40,
        opcodes: Opcodes { push_exc_info: 33, with_except_start: 44, before_with: 2 },
    };
    // If this weren't such a table, these could have any value.
    let is_plausible = [layout.interpreters, layout.threads, layout.thread_id, layout.bytecode]
        .iter()
        .all(|offset| (1..1 << 24).contains(offset));
    is_plausible.then_some(layout)
}

/// How a `str` object stores its characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) is_ascii: bool,
    /// Bytes of a character.
    pub(super) width: u64,
}

impl Text {
    /// Derived from its state; `None`: it isn't a text of the usual form.
    pub(super) fn of(state: u32) -> Option<Self> {
        let (width, is_compact, is_ascii) =
            (state >> 2 & 7, state >> 5 & 1 != 0, state >> 6 & 1 != 0);
        let is_one = is_compact && matches!(width, 1 | 2 | 4);
        is_one.then_some(Self { is_ascii, width: width.into() })
    }

    /// The characters.
    pub(super) fn decode(self, bytes: &[u8]) -> Option<String> {
        let characters = bytes.chunks_exact(self.width as usize).map(|bytes| {
            let number = bytes.iter().rev().fold(0, |sum: u32, &byte| sum << 8 | u32::from(byte));
            char::from_u32(number)
        });
        characters.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_all_widths_are_read() {
        let text = |kind: u32, ascii: u32| Text::of(1 | kind << 2 | 1 << 5 | ascii << 6);
        assert_eq!(text(1, 1).unwrap().decode(b"run").unwrap(), "run");
        assert_eq!(text(1, 0).unwrap().decode(&[0x66, 0xfc, 0x72]).unwrap(), "für");
        assert_eq!(text(2, 0).unwrap().decode(&[0x71, 0x5f, 0x0a, 0]).unwrap(), "影\n");
        assert_eq!(text(4, 0).unwrap().decode(&[0x40, 0xf4, 1, 0]).unwrap(), "👀");
        assert_eq!((text(3, 0), Text::of(1 << 2)), (None, None));
        assert_eq!(text(4, 0).unwrap().decode(&[0xff; 4]), None);
    }

    #[test]
    fn a_table_that_is_none_is_refused() {
        assert_eq!(of_3_13(&[0; DEBUG_OFFSETS]), None);
        let mut table = [0; DEBUG_OFFSETS];
        table[..8].copy_from_slice(b"xdebugpy");
        assert_eq!(of_3_13(&table), None);
        assert_eq!(of_3_13(b"xdebugpy"), None);
    }
}
