//! A place in a program's code, in people's terms.

use std::fmt::{self, Display, Formatter};

/// A place in a program's code. Where several functions were inlined into one, each has a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function's name in the source, without parameters.
    pub function: Option<String>,
    /// The source file, as given to the compiler.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
    /// The name of the program's or library's file; empty: no file.
    pub module: String,
    /// The address as in the module's file; the process's address, if no file is there.
    pub offset: u64,
    /// Part of the function that the next frame names.
    pub is_inlined: bool,
}

impl Frame {
    /// The function, or the module and an offset if it isn't known.
    pub fn name(&self) -> String {
        match &self.function {
            Some(function) => function.clone(),
            None if self.module.is_empty() => format!("{:#x}", self.offset),
            None => format!("{}+{:#x}", self.module, self.offset),
        }
    }

    /// `file.c:12`, without folders, or else the module.
    pub fn site(&self) -> Option<String> {
        let short = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        match (&self.file, self.line) {
            (Some(file), Some(line)) => Some(format!("{}:{line}", short(file))),
            (Some(file), None) => Some(short(file)),
            (None, _) if self.function.is_some() && !self.module.is_empty() => {
                Some(self.module.clone())
            }
            (None, _) => None,
        }
    }
}

impl Display for Frame {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self.site() {
            Some(site) => write!(to, "{} ({site})", self.name()),
            None => write!(to, "{}", self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_is_known() {
        let mut frame = Frame { module: "libfoo.so".into(), offset: 0x1234, ..Frame::default() };
        assert_eq!(frame.to_string(), "libfoo.so+0x1234");
        frame.function = Some("get".into());
        assert_eq!(frame.to_string(), "get (libfoo.so)");
        frame.file = Some("/src/get.c".into());
        frame.line = Some(12);
        assert_eq!(frame.to_string(), "get (get.c:12)");
        let bare = Frame { offset: 0x99, ..Frame::default() };
        assert_eq!(bare.to_string(), "0x99");
    }
}
