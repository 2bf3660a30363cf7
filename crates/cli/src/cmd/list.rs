//! `lockwright list`.

use crate::format::FormatFlags;
use crate::hints::Failure;
use crate::output;
use lockwright_locks::catalog::{CATALOG, DELEGATED, READ_WRITE, all};
use lockwright_locks::entry::{Entry, Kind, OptionSpec};
use serde_json::{Value, json};
use std::process::ExitCode;

/// List the locks
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright list
  lockwright list --format json | jq -r '.[].name'")]
pub(crate) struct Args {
    #[command(flatten)]
    format: FormatFlags,
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    if args.format.is_json() {
        output::print_json(&all().map(as_json).collect())?;
    } else {
        let options = |entry: &Entry| {
            entry.options.iter().map(|option| option.key).collect::<Vec<_>>().join(", ")
        };
        let mut table = output::table(&["lock", "kind", "idea", "options"]).all_by("--format json");
        for entry in CATALOG {
            table.add_row([entry.id, kind(entry.kind), entry.idea, &options(entry)]);
        }
        output::print_table(&table)?;
        output::print("\nfront: for programs; textbook: for study\n\n")?;
        let mut table = output::table(&["delegated lock", "idea"]).all_by("--format json");
        for entry in DELEGATED {
            table.add_row([entry.id, entry.idea]);
        }
        output::print_table(&table)?;
        output::print("\nthey run sections that a program hands over\n\n")?;
        let mut table =
            output::table(&["readers-writer lock", "idea", "options"]).all_by("--format json");
        for entry in READ_WRITE {
            table.add_row([entry.id, entry.idea, &options(entry)]);
        }
        output::print_table(&table)?;
        output::print(
            "\nrwlock serves pthread_rwlock_t; the others are for sim, explore and bench\n",
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The name of a kind.
pub(crate) fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Front => "front",
        Kind::Whole => "textbook",
        Kind::Delegated => "delegated",
        Kind::ReadWrite => "readers-writer",
    }
}

fn as_json(entry: &Entry) -> Value {
    let option = |option: &OptionSpec| {
        json!({
            "key": option.key, "meaning": option.meaning,
            "min": option.min, "max": option.max, "default": option.default,
        })
    };
    json!({
        "name": entry.id, "kind": kind(entry.kind), "idea": entry.idea, "source": entry.source,
        "order": entry.order, "space": entry.space, "wakes": entry.wakes, "delay": entry.delay,
        "advice": entry.advice, "options": entry.options.iter().map(option).collect::<Value>(),
    })
}
