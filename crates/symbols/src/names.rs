//! Names as the source has them.

use cpp_demangle::{DemangleOptions, Symbol};
use std::borrow::Cow;

/// The source's name of a C++ or Rust symbol, without parameters or hash. Other symbols stay as they are.
pub fn demangled(symbol: &str) -> Cow<'_, str> {
    // Compilers number the pieces of a function that they split: `work.part.0`. The source has one function.
    let cut = |name: &str| {
        let end = name.find(".part.").or(name.find(".cold")).or(name.find(".constprop."));
        end.or(name.find(".isra.")).or(name.find(".lto_priv.")).unwrap_or(name.len())
    };
    let whole = &symbol[..cut(symbol)];
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return format!("{name:#}").into();
    }
    if whole.starts_with("_Z")
        && let Ok(parsed) = Symbol::new(whole)
        && let Ok(name) =
            parsed.demangle_with_options(&DemangleOptions::new().no_params().no_return_type())
    {
        return name.into();
    }
    whole.into()
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
}
