//! Where clang's entities are in their file.

use clang::Entity;
use clang::source::SourceLocation;
use std::ops::Range;

/// Where this is in the file. What one macro of a header gives to another one is where the outermost is called.
pub fn offset(at: &SourceLocation<'_>) -> usize {
    let (near, seen) = (at.get_file_location(), at.get_expansion_location());
    (if near.file == seen.file { near.offset } else { seen.offset }) as usize
}

/// Where an entity is, in the file.
pub fn place(entity: &Entity<'_>) -> Option<Range<usize>> {
    let range = entity.get_range()?;
    let [start, end] = [range.get_start(), range.get_end()].map(|at| offset(&at));
    Some(start..end)
}

/// Does it begin or end in a macro's own text?
pub fn is_in_macro(entity: &Entity<'_>) -> bool {
    let Some(range) = entity.get_range() else { return true };
    let (spelled, seen) =
        (range.get_start().get_spelling_location(), range.get_start().get_expansion_location());
    spelled.offset != seen.offset
}
