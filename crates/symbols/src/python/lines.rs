//! Which line an instruction belongs to: the table of a code object, since Python 3.11 (`Objects/locations.md`).
//!
//! An entry begins with a byte whose highest bit is set. That byte has the entry's form, and the number of units of
//! code that it covers. The bytes that follow don't have that bit.

/// Entries with a signed number of lines, without columns and with columns after it.
const SIGNED: std::ops::RangeInclusive<u8> = 13..=14;
/// Entries for this line and the next two.
const NEXT: std::ops::RangeInclusive<u8> = 10..=12;

/// The line of a unit of code. Before the first entry it is the function's line; where an entry has none, it is that of
/// the entry before.
pub(super) fn at(table: &[u8], first_line: u32, unit: i64) -> Option<u32> {
    let (mut line, mut end) = (i64::from(first_line), 0);
    let mut rest = table;
    while let Some((&head, behind)) = rest.split_first().filter(|_| end <= unit) {
        let form = head >> 3 & 15;
        line += match form {
            form if SIGNED.contains(&form) => signed(behind),
            form if NEXT.contains(&form) => i64::from(form - NEXT.start()),
            _ => 0, // the line before, or none
        };
        end += i64::from(head & 7) + 1;
        let next = behind.iter().position(|byte| byte & 0x80 != 0).unwrap_or(behind.len());
        rest = &behind[next..];
    }
    u32::try_from(line).ok().filter(|line| *line > 0)
}

/// A number in pieces of 6 bits, the lowest first; its own lowest bit is the sign.
fn signed(bytes: &[u8]) -> i64 {
    let (mut number, mut shift) = (0_i64, 0);
    for byte in bytes {
        number |= i64::from(byte & 63) << shift;
        shift += 6;
        if byte & 64 == 0 || shift > 48 {
            break;
        }
    }
    if number & 1 == 0 { number >> 1 } else { -(number >> 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `def f(lock):` in line 10, with a long jump back and forth in its table.
    #[test]
    fn lines_go_up_and_down() {
        let entry = |form: u8, units: u8| 0x80 | form << 3 | (units - 1);
        let table = [
            [entry(0, 2), 0x11].as_slice(),     // line 10
            &[entry(11, 3), 1, 2],              // 11
            &[entry(13, 1), 0b100_0000 | 8, 3], // + 100: 4 in the lower bits, 3 << 5 above
            &[entry(15, 1)],                    // none: as before
            &[entry(14, 8), 9, 0, 1, 2],        // - 4
        ]
        .concat();
        let lines = [-1, 0, 1, 2, 4, 5, 6, 7, 14, 99].map(|unit| at(&table, 10, unit));
        let all = [10, 10, 10, 11, 11, 111, 111, 107, 107, 107];
        assert_eq!(lines, all.map(Some));
        assert_eq!(at(&[], 7, 3), Some(7));
        assert_eq!(at(&[entry(13, 1), 63], 7, 0), None, "a line before the first");
    }
}
