//! Placing buffers with known lifetimes in one arena.

use tensor::arena::ALIGNMENT;

/// A buffer to be placed: its size and the steps, first and last included, at which it holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Elements.
    pub len: usize,
    /// First step.
    pub first: usize,
    /// Last step.
    pub last: usize,
}

impl Lifetime {
    fn meets(&self, other: &Lifetime) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Where buffers lie: an offset each (in elements), and the size of what they lie in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// First element of each buffer, a multiple of [`ALIGNMENT`].
    pub offsets: Vec<usize>,
    /// Elements of the whole.
    pub len: usize,
}

/// Places buffers so that two that live at the same time never overlap; those that `goes_last` says it of after all others.
///
/// Largest first, each at the lowest offset where it fits between those already placed: simple, deterministic, and on the
/// nets of `models/` at most a few percent above [`lower_bound`] (the optimum is NP-hard; Pisarchyk and Lee 2020, "greedy
/// by size").
pub fn place(buffers: &[Lifetime], goes_last: impl Fn(usize) -> bool) -> Placement {
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.sort_by_key(|&index| (goes_last(index), std::cmp::Reverse(buffers[index].len), index));
    let mut placement = Placement { offsets: vec![0; buffers.len()], len: 0 };
    let mut placed: Vec<usize> = Vec::new(); // sorted by offset
    for index in order {
        let len = buffers[index].len.next_multiple_of(ALIGNMENT);
        let mut offset = 0;
        for &other in placed.iter().filter(|&&other| buffers[other].meets(&buffers[index])) {
            if placement.offsets[other] >= offset + len {
                break;
            }
            offset = offset.max(placement.offsets[other] + buffers[other].len.next_multiple_of(ALIGNMENT));
        }
        placement.offsets[index] = offset;
        placement.len = placement.len.max(offset + len);
        let at = placed.partition_point(|&other| placement.offsets[other] < offset);
        placed.insert(at, index);
    }
    placement
}

/// No placement is smaller than the most that lives at any one step.
pub fn lower_bound(buffers: &[Lifetime]) -> usize {
    let live_at = |step: usize| {
        let live = buffers.iter().filter(|buffer| buffer.first <= step && step <= buffer.last);
        live.map(|buffer| buffer.len.next_multiple_of(ALIGNMENT)).sum()
    };
    // The maximum is reached at a step where some buffer comes to life.
    buffers.iter().map(|buffer| live_at(buffer.first)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    fn buffer(len: usize, first: usize, last: usize) -> Lifetime {
        Lifetime { len, first, last }
    }

    #[test]
    fn buffers_that_never_meet_share_their_place() {
        let block = ALIGNMENT;
        let buffers = [buffer(2 * block - 1, 0, 1), buffer(block, 2, 3), buffer(16, 1, 2)];
        let placement = place(&buffers, |_| false);
        assert_eq!(placement, Placement { offsets: vec![0, 0, 2 * block], len: 3 * block });
    }

    #[test]
    fn nothing_alive_together_overlaps_and_the_bound_holds() {
        let mut rng = tensor::rng::stream(5, 0);
        for _ in 0..200 {
            let buffers: Vec<Lifetime> = (0..rng.random_range(1..40))
                .map(|_| {
                    let first = rng.random_range(0..30);
                    buffer(rng.random_range(0..500), first, first + rng.random_range(0..10))
                })
                .collect();
            let placement = place(&buffers, |index| index % 3 == 1);
            for (i, a) in buffers.iter().enumerate() {
                assert!(
                    placement.offsets[i].is_multiple_of(ALIGNMENT)
                        && placement.offsets[i] + a.len <= placement.len
                );
                for (j, b) in buffers.iter().enumerate().take(i).filter(|(_, b)| b.meets(a)) {
                    let (first, second) = (placement.offsets[i], placement.offsets[j]);
                    assert!(first + a.len <= second || second + b.len <= first, "{a:?} and {b:?} overlap");
                }
            }
            assert!(placement.len >= lower_bound(&buffers));
        }
    }
}
