//! `lockwright --completions SHELL`.

use crate::hints::Failure;
use crate::{output, spelling};
use clap_complete::Shell;
use std::process::ExitCode;

/// Print a shell's completions
#[derive(clap::Args)]
#[command(after_help = "Examples:
  d=~/.local/share/bash-completion/completions
  lockwright --completions bash > $d/lockwright
  lockwright --completions fish > ~/.config/fish/completions/lockwright.fish
  lockwright --completions zsh > ~/.zfunc/_lockwright")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn main(args: Args, command: &clap::Command) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    let mut command = spelling::words(command, args.shell);
    clap_complete::generate(args.shell, &mut command, "lockwright", &mut script);
    output::print_own(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
