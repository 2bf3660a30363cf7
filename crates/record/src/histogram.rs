//! A log-linear histogram of times: exact below 64 ns, then 32 buckets for each doubling.
//!
//! The middle of a bucket is off by at most 1/64 (1.6 %) of any value in it.

/// Buckets: they reach to 2^40 ns, about 18 minutes; longer times count in the last one.
pub const BUCKETS: usize = 1152;

/// Buckets for each doubling, as a power of two.
const BITS: u32 = 5;

/// The bucket of a time in ns.
#[inline]
pub const fn bucket(ns: u64) -> usize {
    let shift = (63 - (ns | 1 << BITS).leading_zeros()) - BITS;
    let at = ((shift as usize) << BITS) + (ns >> shift) as usize;
    if at < BUCKETS { at } else { BUCKETS - 1 }
}

/// The smallest time of a bucket, and how many ns it is wide.
pub const fn range(bucket: usize) -> (u64, u64) {
    if bucket < 2 << BITS {
        return (bucket as u64, 1);
    }
    let shift = (bucket >> BITS) - 1;
    let low = (bucket & ((1 << BITS) - 1)) + (1 << BITS);
    ((low as u64) << shift, 1 << shift)
}

/// The middle of a bucket, ns.
pub const fn middle(bucket: usize) -> u64 {
    let (low, width) = range(bucket);
    low + (width - 1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gap() {
        let mut next = 0;
        for at in 0..BUCKETS {
            let (low, width) = range(at);
            assert_eq!(low, next);
            assert_eq!((bucket(low), bucket(low + width - 1)), (at, at));
            assert!(at < 64 || (width as f64) / 2.0 / low as f64 <= 1.0 / 64.0, "{at}");
            next = low + width;
        }
        assert_eq!(next, 1 << 40);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }
}
