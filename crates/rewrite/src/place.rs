//! Where clang's entities are in their file.

use clang::Entity;
use std::ops::Range;

/// Where an entity is, in the file.
pub fn place(entity: &Entity<'_>) -> Option<Range<usize>> {
    let range = entity.get_range()?;
    let [start, end] =
        [range.get_start(), range.get_end()].map(|at| at.get_file_location().offset as usize);
    Some(start..end)
}

/// Does it begin or end in a macro's own text?
pub fn is_in_macro(entity: &Entity<'_>) -> bool {
    let Some(range) = entity.get_range() else { return true };
    let (spelled, seen) =
        (range.get_start().get_spelling_location(), range.get_start().get_expansion_location());
    spelled.offset != seen.offset
}
