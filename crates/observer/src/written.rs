//! Names of symbols, as the compiler writes them and as the program's source does.

use lockwright_symbols::demangled_cpp;

/// Does the name `wanted` mean `symbol`, mangled or not? Parts that the compiler split off (`f.cold`, `f.part.0`,
/// `f.constprop.0`) belong to `f`.
pub fn is_called(symbol: &str, wanted: &str) -> bool {
    if symbol == wanted {
        return true;
    }
    let whole = symbol.split_once('.').map_or(symbol, |(whole, _)| whole);
    if whole == wanted {
        return true;
    }
    // Demangling is slow, so do it only for symbols that contain the last part of `wanted`.
    let last = wanted.split(['(', '<']).next().unwrap_or(wanted);
    let last = last.rsplit("::").next().unwrap_or(last);
    whole.starts_with("_Z")
        && whole.contains(last)
        && [true, false].iter().any(|&full| demangled_cpp(whole, full).as_deref() == Some(wanted))
}

/// The name in the program's source for the compiler's `symbol`.
pub fn written(symbol: &str) -> String {
    demangled_cpp(symbol, false).unwrap_or_else(|| symbol.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_go_by_their_mangled_and_their_written_names() {
        let get = "_ZN7leveldb6DBImpl3GetERKNS_11ReadOptionsERKNS_5SliceEPNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
        assert!(is_called(get, get));
        assert!(is_called(get, "leveldb::DBImpl::Get"));
        assert!(!is_called(get, "leveldb::DBImpl::Put"));
        assert!(!is_called(get, "Get"));
        assert!(is_called("_Z3runi", "run(int)"));
        assert!(!is_called("_Z3runi", "run(long)"));
        assert!(is_called("work.constprop.0", "work"));
        assert!(is_called("_ZL6g_lock", "g_lock"));
        let names = ["_ZL6g_lock", "g_lock", "t", "h"].map(written);
        assert_eq!(names, ["g_lock", "g_lock", "t", "h"]);
    }
}
