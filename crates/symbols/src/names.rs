//! Names as the source has them.

use cpp_demangle::{DemangleOptions, Symbol};
use std::borrow::Cow;
use std::fmt::{self, Write};

/// The longest name, and the longest symbol that is demangled, bytes. A few letters can stand for gigabytes.
const LONGEST: usize = 4096;

/// A name as long as [`LONGEST`] allows.
struct Name(String);

impl Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// The source's name of a C++ symbol, with parameters or without. `None`: it is no such symbol, or its name is too long.
pub fn demangled_cpp(symbol: &str, with_parameters: bool) -> Option<String> {
    // C's `t` is a name, not C++'s `unsigned short`.
    if !symbol.starts_with("_Z") || symbol.len() > LONGEST {
        return None;
    }
    let options = match with_parameters {
        true => DemangleOptions::new(),
        false => DemangleOptions::new().no_params().no_return_type(),
    };
    let mut name = Name(String::new());
    Symbol::new(symbol).ok()?.structured_demangle(&mut name, &options).ok()?;
    Some(name.0)
}

/// The source's name of a C++ or Rust symbol, without parameters or hash. Other symbols stay as they are.
pub fn demangled(symbol: &str) -> Cow<'_, str> {
    // Compilers number the pieces of a function that they split: `work.part.0`. The source has one function.
    let cut = |name: &str| {
        let end = name.find(".part.").or(name.find(".cold")).or(name.find(".constprop."));
        end.or(name.find(".isra.")).or(name.find(".lto_priv.")).unwrap_or(name.len())
    };
    let whole = &symbol[..cut(symbol)];
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        let mut name = Name(String::new());
        return if write!(name, "{rust:#}").is_ok() { name.0.into() } else { whole.into() };
    }
    demangled_cpp(whole, false).map_or(whole.into(), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_source() {
        assert_eq!(demangled("_ZN7leveldb6DBImpl3GetERKNS_5SliceE"), "leveldb::DBImpl::Get");
        assert_eq!(
            demangled("_ZN3std4sync5mutex4lock17h0123456789abcdefE"),
            "std::sync::mutex::lock"
        );
        assert_eq!(
            (demangled("main"), demangled("work.constprop.0")),
            ("main".into(), "work".into())
        );
        assert_eq!(demangled("_ZN1a4workEv.cold"), "a::work");
        assert_eq!(demangled("_Znonsense"), "_Znonsense");
    }

    #[test]
    fn a_few_letters_do_not_become_gigabytes() {
        // Each parameter is a pair of the one before it: twice as long.
        let pairs = |from: std::ops::Range<u8>| {
            from.map(|at| format!("S0_IS{0}_S{0}_E", char::from(at))).collect::<String>()
        };
        let cpp = format!("_Z1fISt4pairIiiE{}Evv", pairs(b'0'..b'9' + 1) + &pairs(b'A'..b'Z' + 1));
        assert_eq!((demangled(&cpp), demangled_cpp(&cpp, true)), (cpp.as_str().into(), None));
        // In v0, too, a back reference stands for all that came before.
        let (mut rust, mut last) = ("_RIC1aTxxE".to_owned(), 3);
        let digit = |n: usize| match n {
            0..10 => (b'0' + n as u8) as char,
            10..36 => (b'a' + n as u8 - 10) as char,
            _ => (b'A' + n as u8 - 36) as char,
        };
        let digits = |n: usize| match n {
            0..62 => digit(n).to_string(),
            _ => format!("{}{}", digit(n / 62), digit(n % 62)),
        };
        for _ in 0..8 {
            let at = rust.len() - "_R".len();
            let back = format!("B{}_", digits(last));
            rust += &format!("T{}E", back.repeat(4));
            last = at - 1;
        }
        rust.push('E');
        assert!(rustc_demangle::try_demangle(&rust).is_ok(), "{rust}");
        assert_eq!(demangled(&rust), rust);
    }
}
