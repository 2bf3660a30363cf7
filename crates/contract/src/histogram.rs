//! A log-linear histogram of times: exact below 64 ns, then 32 buckets for each doubling ([`Scale::FINE`]); or exact below 16 ns,
//! then 8 ([`Scale::COARSE`]).

/// How many buckets each doubling has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// That number as a power of two.
    bits: u32,
}

impl Scale {
    /// 32: the middle of a bucket is off by at most 1/64.
    pub const FINE: Self = Self { bits: 5 };
    /// 8: the middle of a bucket is off by at most 1/16. For histograms that exist in thousands.
    pub const COARSE: Self = Self { bits: 3 };

    /// Buckets: they reach to 2^40 ns, about 18 minutes; longer times count in the last one.
    pub const fn buckets(self) -> usize {
        (41 - self.bits as usize) << self.bits
    }

    /// The bucket of a time in ns.
    #[inline]
    pub const fn bucket(self, ns: u64) -> usize {
        let shift = (63 - (ns | 1 << self.bits).leading_zeros()) - self.bits;
        let at = ((shift as usize) << self.bits) + (ns >> shift) as usize;
        if at < self.buckets() { at } else { self.buckets() - 1 }
    }

    /// The smallest time of a bucket, and the bucket's width, ns.
    pub const fn range(self, bucket: usize) -> (u64, u64) {
        if bucket < 2 << self.bits {
            return (bucket as u64, 1);
        }
        let shift = (bucket >> self.bits) - 1;
        let low = (bucket & ((1 << self.bits) - 1)) + (1 << self.bits);
        ((low as u64) << shift, 1 << shift)
    }

    /// The middle of a bucket, ns.
    pub const fn middle(self, bucket: usize) -> u64 {
        let (low, width) = self.range(bucket);
        low + (width - 1) / 2
    }
}

/// Buckets of [`Scale::FINE`].
pub const BUCKETS: usize = Scale::FINE.buckets();

/// The bucket of a time in ns, by [`Scale::FINE`].
#[inline]
pub const fn bucket(ns: u64) -> usize {
    Scale::FINE.bucket(ns)
}

/// The smallest time of a bucket of [`Scale::FINE`], and the bucket's width, ns.
pub const fn range(bucket: usize) -> (u64, u64) {
    Scale::FINE.range(bucket)
}

/// The middle of a bucket of [`Scale::FINE`], ns.
pub const fn middle(bucket: usize) -> u64 {
    Scale::FINE.middle(bucket)
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
