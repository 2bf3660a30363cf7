//! Is an instruction in the body of a `with` statement? The table of handlers says so
//! (`Objects/exception_handling_notes.txt`, since Python 3.11): if the body fails, the statement's own handler is
//! called, whatever handlers are in between.

use super::layout::Opcodes;

/// An entry of the table, in units of code.
struct ExceptionRange {
    start: i64,
    end: i64,
    handler: i64,
}

/// How many nested handlers are followed.
const NESTED: usize = 32;

/// Does a `with` statement of this code begin before this unit and end after it?
pub(super) fn is_inside(table: &[u8], code: &[u8], unit: i64, opcodes: Opcodes) -> bool {
    let mut at = unit;
    for _ in 0..NESTED {
        let Some(entry) = entries(table).find(|entry| (entry.start..entry.end).contains(&at))
        else {
            return false;
        };
        let is_its = opcode(code, entry.handler) == Some(opcodes.push_exc_info)
            && opcode(code, entry.handler + 1) == Some(opcodes.with_except_start);
        if is_its {
            return true;
        }
        at = entry.handler;
    }
    false
}

/// Is it the instruction that begins a `with` statement?
pub(super) fn begins(code: &[u8], unit: i64, opcodes: Opcodes) -> bool {
    opcode(code, unit) == Some(opcodes.before_with)
}

fn opcode(code: &[u8], unit: i64) -> Option<u8> {
    code.get(usize::try_from(unit).ok()?.checked_mul(2)?).copied()
}

fn entries(table: &[u8]) -> impl Iterator<Item = ExceptionRange> {
    let mut rest = table;
    std::iter::from_fn(move || {
        let start = number(&mut rest)?;
        let length = number(&mut rest)?;
        let handler = number(&mut rest)?;
        number(&mut rest)?; // the depth of the stack
        Some(ExceptionRange { start, end: start + length, handler })
    })
}

/// A number in pieces of 6 bits, the highest first. (The highest bit of an entry's first byte is set.)
fn number(rest: &mut &[u8]) -> Option<i64> {
    let mut number = 0_i64;
    loop {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        number = number << 6 | i64::from(byte & 63);
        if byte & 64 == 0 {
            return Some(number);
        }
        if number > 1 << 32 {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `with lock:` from unit 4 to 18; in it a `try` from 6 to 9 whose handler, at 10, has its own handler, at 70.
    #[test]
    fn a_try_in_a_with_is_in_it() {
        let opcodes = Opcodes { push_exc_info: 35, with_except_start: 49, before_with: 53 };
        let mut code = [9_u8; 200];
        (code[6], code[40], code[42]) = (53, 35, 49);
        (code[20], code[140]) = (35, 35);
        let entry = |start: u8, length: u8, handler: [u8; 2]| {
            vec![0x80 | start, length, 0x40 | handler[0], handler[1], 1]
        };
        let table = [
            entry(4, 2, [0, 20]),
            entry(6, 4, [0, 10]),
            entry(10, 8, [1, 6]), // 70
            entry(20, 3, [0, 30]),
            vec![0xc1, 6, 2, 20, 1], // from 70 on
        ]
        .concat();
        let inside = |unit| is_inside(&table, &code, unit, opcodes);
        assert_eq!(
            [3, 4, 5, 6, 9, 10, 17, 18, 20, 30].map(inside),
            [false, true, true, true, true, true, true, false, false, false]
        );
        assert!(begins(&code, 3, opcodes) && !begins(&code, 4, opcodes) && !inside(-1));
    }
}
