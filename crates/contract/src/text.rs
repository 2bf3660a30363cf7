//! Texts in fields of a fixed length, as files and memory have them: UTF-8, padded with zeroes.

/// Copies what fits; the last byte stays zero.
pub(crate) fn fill(field: &mut [u8], text: &[u8]) {
    let len = text.len().min(field.len() - 1);
    field[..len].copy_from_slice(&text[..len]);
}

/// What is in a field, without the zeroes.
pub fn unpadded(field: &[u8]) -> &[u8] {
    let len = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    &field[..len]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_so_that_a_zero_ends_it() {
        let mut field = [0; 5];
        fill(&mut field, b"abc");
        assert_eq!((unpadded(&field), unpadded(b"full")), (&b"abc"[..], &b"full"[..]));
        fill(&mut field, b"longer");
        assert_eq!((field, unpadded(&field)), (*b"long\0", &b"long"[..]));
    }
}
