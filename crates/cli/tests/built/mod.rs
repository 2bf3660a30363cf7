//! The library that tests of the command preload.

use lockwright_tests::{Child, End, target_dir};
use std::env;
use std::path::PathBuf;
use std::sync::LazyLock;

/// `LOCKWRIGHT_LIBRARY`, else built here. `liblockwright_static.a` lies beside it.
pub(crate) static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    if let Some(path) = env::var_os("LOCKWRIGHT_LIBRARY") {
        return path.into();
    }
    let target = target_dir().expect("a target folder");
    let outcome = Child::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "lockwright-preload"])
        .args(["--package", "lockwright-static", "--target-dir"])
        .args([&target])
        // It has no unwinder. (The gate gives other programs one, as the tests have: then both share what they link.)
        .env("CARGO_PROFILE_DEV_PANIC", "abort")
        .limit(600)
        .run()
        .expect("cargo starts");
    assert_eq!(outcome.end, End::Code(0), "cannot build the library: {}", outcome.describe());
    target.join("debug/liblockwright.so")
});
