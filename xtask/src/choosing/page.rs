//! The page.
use super::data::Results;
pub(super) fn page(_: &Results, _: &str) -> String {
    String::new()
}
