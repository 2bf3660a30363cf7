//! Which request for a line is served next: a weighted draw.
//!
//! A core's weight depends on its class, and on whether it is in the line's own cluster. So a long queue keeps a bit mask
//! of its places for each class and each cluster. The sum of all weights then takes a few bit counts, and halving finds
//! the place that a draw falls on: the cost doesn't grow with the queue. A short queue is looked at one by one.

use crate::units::Tid;

/// A request for a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) thread: Tid,
    pub(crate) write: bool,
    /// The requester's class.
    pub(crate) class: u16,
    pub(crate) cluster: u16,
}

/// A place in the queue is a bit: no machine has more than 128 CPUs, and each asks for one line at a time.
type Places = [u64; 2];

/// Up to this many places are looked at one after the other.
const FEW: usize = 12;

/// Requests for a line.
#[derive(Default)]
pub(crate) struct Queue {
    requests: Vec<Request>,
    /// By class, then by cluster. Empty until a draw among more than [`FEW`] needs them, and when there are so few again.
    places: Vec<Places>,
}

/// The groups of places in a draw, with their weights: for each class those outside the line's cluster, and those in it.
#[derive(Default)]
pub(crate) struct Draw {
    groups: Vec<(Places, f64)>,
}

/// Where the line is, and what that means.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'a> {
    /// By class.
    pub(crate) by_class: &'a [f64],
    /// How many clusters the machine has.
    pub(crate) clusters: usize,
    /// The line's cluster.
    pub(crate) home: Option<usize>,
    /// The factor by which weights are multiplied there.
    pub(crate) local: f64,
}

impl Weights<'_> {
    #[inline]
    fn of(&self, request: &Request) -> f64 {
        let local = if Some(usize::from(request.cluster)) == self.home { self.local } else { 1.0 };
        local * self.by_class[usize::from(request.class)]
    }
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    #[inline]
    fn kinds(request: Request, classes: usize) -> [usize; 2] {
        [usize::from(request.class), classes + usize::from(request.cluster)]
    }

    /// A request arrives, on a machine with this many classes.
    #[inline]
    pub(crate) fn push(&mut self, request: Request, classes: usize) {
        if !self.places.is_empty() {
            self.mark(self.len(), request, classes);
        }
        self.requests.push(request);
    }

    fn mark(&mut self, place: usize, request: Request, classes: usize) {
        for kind in Self::kinds(request, classes) {
            self.places[kind][place / 64] |= 1 << (place % 64);
        }
    }

    /// Makes the masks.
    #[cold]
    fn mark_all(&mut self, classes: usize, clusters: usize) {
        self.places.resize(classes + clusters, [0; 2]);
        for place in 0..self.len() {
            self.mark(place, self.requests[place], classes);
        }
    }

    /// The request at `place` leaves, and the last one takes its place.
    #[inline]
    pub(crate) fn take(&mut self, place: usize, classes: usize) -> Request {
        if !self.places.is_empty() {
            self.unmark(place, classes);
        }
        self.requests.swap_remove(place)
    }

    fn unmark(&mut self, place: usize, classes: usize) {
        let last = self.len() - 1;
        if last <= FEW {
            return self.places.clear();
        }
        let (leaves, moves) = (self.requests[place], self.requests[last]);
        for kind in Self::kinds(leaves, classes) {
            self.places[kind][place / 64] &= !(1 << (place % 64));
        }
        for kind in Self::kinds(moves, classes) {
            self.places[kind][last / 64] &= !(1 << (last % 64));
            self.places[kind][place / 64] |= u64::from(last != place) << (place % 64);
        }
    }

    /// The place at which the running total of the weights exceeds `share`, drawn evenly from 0 to 1, of all.
    pub(crate) fn draw(&mut self, draw: &mut Draw, weights: Weights<'_>, share: f64) -> usize {
        if self.len() <= FEW {
            return self.draw_of_few(weights, share);
        }
        if self.places.is_empty() {
            self.mark_all(weights.by_class.len(), weights.clusters);
        }
        draw.split(&self.places, weights);
        let (start, left) = draw.halve(share, self.len());
        self.walk(start, left, weights)
    }

    /// The same for at most [`FEW`] requests.
    fn draw_of_few(&self, weights: Weights<'_>, share: f64) -> usize {
        let (mut all, mut total) = ([0.0; FEW], 0.0);
        for (weight, request) in all.iter_mut().zip(&self.requests) {
            *weight = weights.of(request);
            total += *weight;
        }
        // No further weight can bring a sum below 0 back above it: so the place is the number of sums that are not below 0.
        let mut left = share * total;
        let above = |&&weight: &&f64| {
            left -= weight;
            left >= 0.0
        };
        let place = all[..self.len()].iter().filter(above).count();
        place.min(self.len() - 1) // rounding
    }

    /// From `place` on, one by one.
    fn walk(&self, place: usize, mut left: f64, weights: Weights<'_>) -> usize {
        for (further, request) in self.requests[place..].iter().enumerate() {
            left -= weights.of(request);
            if left < 0.0 {
                return place + further;
            }
        }
        self.len() - 1 // rounding
    }
}

impl Draw {
    /// Places of equal weight.
    fn split(&mut self, places: &[Places], weights: Weights<'_>) {
        self.groups.clear();
        let (by_class, by_cluster) = places.split_at(weights.by_class.len());
        let near = weights.home.map_or([0; 2], |home| by_cluster[home]);
        for (&weight, places) in weights.by_class.iter().zip(by_class) {
            let far = [places[0] & !near[0], places[1] & !near[1]];
            let near = [places[0] & near[0], places[1] & near[1]];
            for (places, weight) in [(far, weight), (near, weight * weights.local)] {
                if places != [0; 2] {
                    self.groups.push((places, weight));
                }
            }
        }
    }

    /// The weight of those places of the lower or upper 64 that `mask` has.
    fn weight(&self, word: usize, mask: u64) -> f64 {
        let of =
            |(all, weight): &(Places, f64)| f64::from((all[word] & mask).count_ones()) * weight;
        self.groups.iter().map(of).sum()
    }

    /// Leaves out as many lower places as it can by halves; returns the first place left, and what is left of the draw.
    fn halve(&self, share: f64, len: usize) -> (usize, f64) {
        let lower = self.weight(0, u64::MAX);
        let upper = if len > 64 { self.weight(1, u64::MAX) } else { 0.0 };
        let (mut draw, mut word, mut start) = (share * (lower + upper), 0, 0);
        if len > 64 && draw >= lower {
            (draw, word) = (draw - lower, 1);
        }
        for width in [32, 16, 8] {
            let lower = self.weight(word, ((1 << width) - 1) << start);
            if draw >= lower {
                draw -= lower;
                start += width;
            }
        }
        (64 * word + start, draw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One by one, as the definition says.
    fn by_definition(weights: &[f64], share: f64) -> usize {
        let mut draw = share * weights.iter().sum::<f64>();
        let found = weights.iter().position(|weight| {
            draw -= weight;
            draw < 0.0
        });
        found.unwrap_or(weights.len() - 1)
    }

    #[test]
    fn a_draw_falls_where_the_running_total_exceeds_it() {
        let mut rng = fastrand::Rng::with_seed(7);
        let (class_of, by_class) = ([0, 0, 1, 1, 0], [6.73, 1.0]);
        for home in [None, Some(0), Some(3)] {
            for local in [1.0, 7.0] {
                let (mut queue, mut draw) = (Queue::default(), Draw::default());
                let mut expected: Vec<u16> = Vec::new();
                for thread in 0..20_000 {
                    if queue.is_empty()
                        || queue.len() < 128 && rng.u32(0..130) > expected.len() as u32
                    {
                        let cluster = rng.u16(0..5);
                        let class = class_of[usize::from(cluster)];
                        queue.push(Request { thread, write: false, class, cluster }, 2);
                        expected.push(cluster);
                        continue;
                    }
                    let weight = |&cluster: &u16| {
                        let local = if Some(usize::from(cluster)) == home { local } else { 1.0 };
                        by_class[usize::from(class_of[usize::from(cluster)])] * local
                    };
                    let weights: Vec<f64> = expected.iter().map(weight).collect();
                    let share = rng.f64();
                    let of = Weights { by_class: &by_class, clusters: 5, home, local };
                    let place = queue.draw(&mut draw, of, share);
                    assert_eq!(place, by_definition(&weights, share));
                    assert_eq!(queue.take(place, 2).cluster, expected.swap_remove(place));
                }
            }
        }
    }
}
