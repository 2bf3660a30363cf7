//! `--format`: whom the output is for.

/// Its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs; it has everything
    Json,
}

// No doc comment: clap would show it instead of the command's.
#[derive(clap::Args)]
pub(crate) struct FormatFlags {
    /// The output's format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// What `--format json` was called.
    #[arg(long, hide = true, conflicts_with = "format")]
    json: bool,
}

impl FormatFlags {
    pub(crate) fn is_json(&self) -> bool {
        self.json || self.format == Format::Json
    }
}
