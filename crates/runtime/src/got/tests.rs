//! Tests of how the variable is read.

use super::*;

#[test]
fn pieces_are_understood() {
    let said = |function, slo_ns, percentile: Option<&[u8]>| {
        let percentile = percentile.map(|text| Percentile::parse(text).unwrap());
        Ok(Said { name: b"get".as_slice(), function, slo_ns, percentile })
    };
    assert_eq!(parse(b"get=f:50"), said(b"f".as_slice(), 50, None));
    assert_eq!(parse(b"get=a::b:50@99.9"), said(b"a::b".as_slice(), 50, Some(b"99.9")));
    for bad in ["", "get", "get=f", "get=:50", "=f:50", "get=f:x", "get=f:50@", "get=f:50@101"] {
        parse(bad.as_bytes()).unwrap_err();
    }
}
