//! Random numbers: SplitMix64 (Steele, Lea, Flood, *Fast splittable pseudorandom number generators*,
//! OOPSLA 2014), which is enough for picking keys.

/// One thread's generator; the same seed and thread give the same choices.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64, thread: u64) -> Random {
        Random(mix(seed) ^ mix(!thread))
    }

    /// A number in `0..bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        ((u128::from(mix(self.0)) * u128::from(bound)) >> 64) as u64
    }
}

/// Scrambles `x`, always in the same way: the contents of a row are derived from its key, so that
/// every answer can be checked.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_below_the_bound_comes_and_no_other() {
        let mut random = Random::new(1, 0);
        let mut seen = [0; 3];
        for _ in 0..3000 {
            seen[random.below(3) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (900..1100).contains(&count)), "{seen:?}");
    }

    #[test]
    fn threads_choose_differently() {
        let draw = |thread| Random::new(7, thread).below(1 << 40);
        assert_ne!(draw(0), draw(1));
        assert_eq!(draw(1), draw(1));
    }
}
