//! The lines that `lockwright doctor` prints.

use crate::output::shown;
use lockwright_observer::elf::Program;
use lockwright_observer::whose::Whose;
use std::fmt::Write;

pub(super) fn is_script(program: &Program) -> bool {
    program.path.canonicalize().is_ok_and(|path| path != program.file)
}

#[derive(Default)]
pub(super) struct DoctorReport {
    pub(super) text: String,
}

impl DoctorReport {
    pub(super) fn fact(&mut self, label: &str, text: impl std::fmt::Display) {
        // A program's name must not break the line.
        let _ = writeln!(self.text, "{label:<10}{}", shown(&text.to_string()));
    }

    pub(super) fn program(&mut self, program: &Program, made_by: Option<Whose>) {
        self.fact("program", program.path.display());
        if is_script(program) {
            self.fact("runs by", program.file.display());
        }
        if let Some(interpreter) = &program.interpreter {
            self.fact("linker", interpreter);
        }
        match made_by {
            Some(Whose::Go) => {
                self.fact("language", "Go: its own locks don't use pthreads, only its C parts do")
            }
            Some(_) => {
                self.fact("language", "Rust: std's locks don't use pthreads, only its C parts do")
            }
            None => {}
        }
    }
}
