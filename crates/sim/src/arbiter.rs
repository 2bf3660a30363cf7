//! Who of those that ask for a line is served next: a draw by weights.
//!
//! A core's weight depends on its class, and on whether it is in the line's own cluster. So a queue keeps, for each
//! class and each cluster, which of its places they have, as bits. The sum of all weights is then a few counts of bits, and
//! the place that a draw falls on is found by halving: the cost does not grow with the queue.

use crate::engine::Tid;

/// A request for a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) thread: Tid,
    pub(crate) write: bool,
    /// The requester's.
    pub(crate) class: u16,
    pub(crate) cluster: u16,
}

/// A place in the queue is a bit: no machine has more than 128 CPUs, and each asks for one line at a time.
type Places = u128;

/// Up to this many places are looked at one after the other.
const FEW: u32 = 4;

/// Those who ask for a line.
#[derive(Default)]
pub(crate) struct Queue {
    requests: Vec<Request>,
    /// By class, then by cluster.
    places: Vec<Places>,
}

/// What counts in a draw: by class, as far as they are elsewhere, and the line's own cluster last.
#[derive(Default)]
pub(crate) struct Draw {
    groups: Vec<(Places, f64)>,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    fn kinds(request: &Request, classes: usize) -> [usize; 2] {
        [usize::from(request.class), classes + usize::from(request.cluster)]
    }

    /// A request arrives, on a machine with this many classes and clusters.
    pub(crate) fn push(&mut self, request: Request, classes: usize, clusters: usize) {
        if self.places.is_empty() {
            self.places = vec![0; classes + clusters];
        }
        for kind in Self::kinds(&request, classes) {
            self.places[kind] |= 1 << self.requests.len();
        }
        self.requests.push(request);
    }

    /// The request at `place` leaves, and the last one takes its place.
    pub(crate) fn take(&mut self, place: usize, classes: usize) -> Request {
        let last = self.requests.len() - 1;
        for kind in Self::kinds(&self.requests[place], classes) {
            self.places[kind] &= !(1 << place);
        }
        if last != place {
            for kind in Self::kinds(&self.requests[last], classes) {
                self.places[kind] = self.places[kind] & !(1 << last) | 1 << place;
            }
        }
        self.requests.swap_remove(place)
    }

    /// Draws a place. `home` is the line's cluster, where weights count `local` times; `by_class` has the classes' weights;
    /// `share` is drawn evenly from 0 to 1.
    pub(crate) fn draw(
        &self,
        draw: &mut Draw,
        home: Option<usize>,
        local: f64,
        by_class: impl ExactSizeIterator<Item = f64>,
        share: f64,
    ) -> usize {
        let classes = by_class.len();
        let near = home.map_or(0, |home| self.places[classes + home]);
        draw.groups.clear();
        for (weight, places) in by_class.zip(&self.places) {
            for (places, weight) in [(places & !near, weight), (places & near, weight * local)] {
                if places != 0 {
                    draw.groups.push((places, weight));
                }
            }
        }
        draw.place(share, self.requests.len())
    }
}

/// The lower `width` places.
fn below(width: u32) -> Places {
    if width >= 128 { Places::MAX } else { (1 << width) - 1 }
}

impl Draw {
    fn weight(&self, places: Places) -> f64 {
        let of = |(all, weight): &(Places, f64)| f64::from((all & places).count_ones()) * weight;
        self.groups.iter().map(of).sum()
    }

    /// The first place at which the sum of the weights up to there exceeds `share` of all.
    fn place(&self, share: f64, len: usize) -> usize {
        let mut draw = share * self.weight(Places::MAX);
        let mut width = u32::try_from(len).expect("at most 128").next_power_of_two();
        let mut start = 0;
        while width > FEW {
            width /= 2;
            let lower = self.weight(below(width) << start);
            if draw >= lower {
                draw -= lower;
                start += width;
            }
        }
        for place in start as usize..len {
            draw -= self.weight(1 << place);
            if draw < 0.0 {
                return place;
            }
        }
        len - 1 // rounding
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
                        queue.push(Request { thread, write: false, class, cluster }, 2, 5);
                        expected.push(cluster);
                        continue;
                    }
                    let weight = |&cluster: &u16| {
                        let local = if Some(usize::from(cluster)) == home { local } else { 1.0 };
                        by_class[usize::from(class_of[usize::from(cluster)])] * local
                    };
                    let weights: Vec<f64> = expected.iter().map(weight).collect();
                    let share = rng.f64();
                    let place = queue.draw(&mut draw, home, local, by_class.into_iter(), share);
                    assert_eq!(place, by_definition(&weights, share));
                    assert_eq!(queue.take(place, 2).cluster, expected.swap_remove(place));
                }
            }
        }
    }
}
