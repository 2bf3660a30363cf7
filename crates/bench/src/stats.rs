//! Figures of the reports: fairness and order. Definitions: `docs/bench.md`.

/// Jain's index of `shares`: 1 if all are equal, 1/n if one has everything. If all are zero, they count as equal.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|s| s * s).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// CAL's fairness: the smallest slowdown divided by the largest. A thread's slowdown is its time per operation in
/// competition (`shared`) divided by its time per operation alone (`alone`).
///
/// The result is 1 if all are slowed equally, and 0 if one of them never got the lock (`shared` infinite).
pub(crate) fn cal(shared: &[f64], alone: &[f64]) -> f64 {
    let slowdowns = || shared.iter().zip(alone).map(|(s, a)| s / a.max(f64::MIN_POSITIVE));
    let (min, max) = (slowdowns().fold(f64::INFINITY, f64::min), slowdowns().fold(0.0, f64::max));
    if max == 0.0 {
        1.0
    } else if max.is_infinite() {
        0.0
    } else {
        min / max
    }
}

/// How well a lock preserved the order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Order {
    /// Acquisitions.
    pub served: u64,
    /// Acquisitions that a later arrival overtook.
    pub overtaken: u64,
    /// Those whose first overtaker arrived at least the grace time later.
    pub overtaken_late: u64,
    /// The maximum number of overtakers of one acquisition.
    pub longest_bypass: u64,
    /// The 99.9th percentile of the number of overtakers.
    pub bypass_p999: u64,
}

/// Evaluates the order in which `services` (arrival ticket, arrival time) got the lock.
///
/// The tickets are 0, 1, 2, ... without gaps, in any order.
pub(crate) fn order(services: &[(u64, u64)], grace_ns: u64) -> Order {
    let n = services.len();
    // A Fenwick tree over tickets: how many tickets below t have been served?
    let mut tree = vec![0u64; n + 1];
    let mut bypasses = Vec::with_capacity(n);
    for (served_before, &(ticket, _)) in services.iter().enumerate() {
        let mut older = 0;
        let mut i = ticket as usize;
        while i > 0 {
            older += tree[i];
            i &= i - 1;
        }
        bypasses.push(served_before as u64 - older);
        let mut i = ticket as usize + 1;
        while i <= n {
            tree[i] += 1;
            i += i & i.wrapping_neg();
        }
    }
    // The latest arrival among those served before. If it came well after this one, it certainly overtook this one.
    let mut latest = 0;
    let mut late = 0;
    for &(_, arrived) in services {
        late += u64::from(latest >= arrived + grace_ns.max(1));
        latest = latest.max(arrived);
    }
    bypasses.sort_unstable();
    let at = |q: f64| bypasses.get(((n as f64 * q) as usize).min(n.saturating_sub(1))).copied();
    Order {
        served: n as u64,
        overtaken: bypasses.iter().filter(|&&b| b > 0).count() as u64,
        overtaken_late: late,
        longest_bypass: bypasses.last().copied().unwrap_or(0),
        bypass_p999: at(0.999).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cal_compares_slowdowns_not_shares() {
        // A little core needs twice the time when alone, so half the operations is fair.
        assert_eq!(cal(&[10.0, 20.0], &[1.0, 2.0]), 1.0);
        assert_eq!(cal(&[10.0, 20.0], &[1.0, 1.0]), 0.5);
        assert_eq!(cal(&[10.0, f64::INFINITY], &[1.0, 1.0]), 0.0);
    }

    #[test]
    fn order_counts_the_overtaken_and_their_overtakers() {
        let kept = order(&[(0, 10), (1, 20), (2, 30)], 5);
        assert_eq!((kept.overtaken, kept.overtaken_late, kept.longest_bypass), (0, 0, 0));
        // Ticket 0 was overtaken by 1 and 2, ticket 3 by none.
        let broken = order(&[(1, 12), (2, 30), (0, 10), (3, 40)], 5);
        assert_eq!((broken.served, broken.overtaken, broken.longest_bypass), (4, 1, 2));
        assert_eq!(broken.overtaken_late, 1);
        // Drawn at almost the same moment: overtaken, but within the grace time.
        assert_eq!(order(&[(1, 12), (0, 10)], 5).overtaken_late, 0);
    }

    proptest! {
        #[test]
        fn jain_lies_between_one_nth_and_one(shares in prop::collection::vec(0.0..1e6f64, 1..20)) {
            let j = jain(&shares);
            prop_assert!(j <= 1.0 + 1e-9 && j >= 1.0 / shares.len() as f64 - 1e-9);
            prop_assert!((jain(&[shares[0]; 7]) - 1.0).abs() < 1e-9);
        }

        #[test]
        fn cal_is_scale_free(shared in prop::collection::vec(1.0..1e6f64, 1..20), k in 0.1..10.0f64) {
            let alone = vec![1.0; shared.len()];
            let f = cal(&shared, &alone);
            prop_assert!((0.0..=1.0).contains(&f));
            let scaled: Vec<_> = shared.iter().map(|s| s * k).collect();
            prop_assert!((cal(&scaled, &alone) - f).abs() < 1e-9);
        }

        #[test]
        fn fast_bypass_count_equals_the_plain_one(
            seats in Just((0..30u64).collect::<Vec<_>>()).prop_shuffle()
        ) {
            let services: Vec<_> = seats.iter().map(|&t| (t, t * 10)).collect();
            let plain: Vec<u64> = (0..seats.len())
                .map(|i| seats[..i].iter().filter(|&&t| t > seats[i]).count() as u64)
                .collect();
            let fast = order(&services, 0);
            prop_assert_eq!(fast.longest_bypass, plain.iter().copied().max().unwrap());
            prop_assert_eq!(fast.overtaken, plain.iter().filter(|&&b| b > 0).count() as u64);
            prop_assert_eq!(fast.overtaken_late, fast.overtaken);
        }
    }
}
