//! (in the making)

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn main(_: Args) -> anyhow::Result<()> {
    anyhow::bail!("not built yet")
}
