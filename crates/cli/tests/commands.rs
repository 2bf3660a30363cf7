//! Every word that the command prints, as snapshots in `tests/commands/`.
//!
//! `TRYCMD=overwrite cargo test -p lockwright-cli --test commands` writes them anew.

use std::time::Duration;

#[test]
fn words_are_as_in_the_snapshots() {
    trycmd::TestCases::new()
        .env("COLUMNS", "100")
        .env("LOCKWRIGHT_LIBRARY", "/nonexistent/liblockwright.so")
        .timeout(Duration::from_secs(60))
        .case("tests/commands/*.trycmd");
}
