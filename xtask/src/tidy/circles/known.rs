//! The circles of files that are left. A circle that is broken is struck from here; none is added.

/// Crate, and the circle's files below its `src`.
pub(super) const KNOWN: &[(&str, &[&str])] = &[
    ("crates/bench", &["worker/rw.rs", "worker/workload/rwlock.rs"]),
    (
        "crates/calibrate",
        &["class.rs", "kernel.rs", "layout.rs", "lib.rs", "memory.rs", "power.rs"],
    ),
    ("crates/demo", &["lmdb.rs", "main.rs", "place.rs", "sqlite.rs"]),
    ("crates/energy", &["battery.rs", "gauge.rs", "hwmon.rs", "lib.rs", "perf.rs", "rapl.rs"]),
    ("crates/model", &["machine.rs", "machine/cell.rs", "machine/world.rs"]),
    ("crates/native", &["topology.rs", "topology/list.rs", "topology/read.rs", "topology/spec.rs"]),
    ("crates/policy", &["interpret.rs", "interpret/escape.rs", "interpret/memory.rs"]),
    ("crates/policy", &["jit.rs", "jit/aarch64.rs", "jit/x86_64.rs"]),
    ("crates/policy", &["object.rs", "object/btf.rs", "object/constants.rs", "object/elf.rs"]),
    ("crates/policy", &["verify.rs", "verify/step.rs", "verify/walk.rs"]),
    ("crates/shards", &["file.rs", "session.rs", "words.rs"]),
    ("xtask", &["book.rs", "book/links.rs"]),
    ("xtask", &["conformance.rs", "conformance/suite.rs"]),
    (
        "xtask",
        &[
            "demo.rs",
            "demo/chart.rs",
            "demo/measure.rs",
            "demo/picture.rs",
            "demo/readme.rs",
            "demo/report.rs",
            "demo/stats.rs",
            "demo/words.rs",
        ],
    ),
    (
        "xtask",
        &[
            "eval.rs",
            "eval/chart.rs",
            "eval/drivers.rs",
            "eval/figures.rs",
            "eval/measure.rs",
            "eval/programs.rs",
            "eval/programs/list.rs",
            "eval/programs/measure.rs",
            "eval/programs/report.rs",
            "eval/report.rs",
        ],
    ),
    (
        "xtask",
        &[
            "dist.rs",
            "dist/crates.rs",
            "dist/deb.rs",
            "dist/recipes.rs",
            "dist/root.rs",
            "dist/stage.rs",
        ],
    ),
];
