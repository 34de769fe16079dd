//! Placing buffers with known residences in one memory.

use crate::action::Residence;

/// Where buffers lie, and the size of what they lie in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    /// First byte of each buffer, a multiple of [`planner::ARENA_ALIGNMENT`].
    pub(crate) offsets: Vec<u64>,
    /// Bytes of the whole.
    pub(crate) len: u64,
}

/// To find a better order, each buffer is placed again so often on average, as long as that is about so many comparisons.
const AGAIN: (usize, usize) = (200, 100_000_000);

/// Places buffers so that two that live at the same time never overlap. Tries the same orders in turn and returns
/// the first placing of at most `enough` bytes, or else the smallest: what fits some memory fits it when placed for the
/// least, too (`enough` 0). Buffers that `goes_last` selects are placed after all others, and change nothing for them.
///
/// The first order is by falling size, of equal ones the earliest first, each at the lowest offset where it fits between
/// those already placed (the optimum is NP-hard; Pisarchyk and Lee 2020, "greedy by size"). Buffers of one size it
/// places perfectly. The second begins with what lives longest while memory is short. Then whatever would end where the
/// best placing so far does, or nearly so, moves forward by a third of its place in the order, and what was placed from
/// there on is placed again.
pub(crate) fn place(buffers: &[Residence], goes_last: impl Fn(usize) -> bool, enough: u64) -> Placement {
    let mut order: Vec<usize> = (0..buffers.len()).filter(|&index| buffers[index].bytes.0 > 0).collect();
    order.sort_by_key(|&index| {
        let Residence { bytes, first, .. } = buffers[index];
        (goes_last(index), std::cmp::Reverse(bytes.0), first, index)
    });
    let last = order.split_off(order.partition_point(|&index| !goes_last(index)));
    let alive = alive(order.iter().map(|&index| &buffers[index]));
    let least = alive.iter().copied().max().unwrap_or(0);
    // Sums up to each step of what is alive, in parts of the most, to the 64th power: next to nothing unless memory is short.
    let mut short = vec![0.0];
    let power = |alive: u64| (0..6).fold(alive as f64 / least as f64, |power, _| power * power);
    alive.iter().for_each(|&alive| short.push(short[short.len() - 1] + power(alive)));
    let shortage = |index: usize| short[buffers[index].last + 1] - short[buffers[index].first];
    let mut best = Placed::default().add(buffers, &order);
    order.sort_by(|&a, &b| shortage(b).total_cmp(&shortage(a)));
    let (mut now, mut at) = (Placed::default(), 0);
    for _ in 0..(AGAIN.0 * order.len()).min(AGAIN.1 / order.len().max(1)) {
        if best.placement.len <= least.max(enough) {
            break;
        }
        if at == order.len() {
            (best, at) = (std::mem::take(&mut now), 0);
        }
        now = now.add(buffers, &order[at..=at]);
        if now.placement.len <= best.placement.len - (best.placement.len - least).div_ceil(10) {
            at += 1;
        } else {
            let forward = at * 2 / 3;
            now.take_back(forward);
            order[forward..=at].rotate_right(1);
            at = forward;
        }
    }
    best.add(buffers, &last).placement
}

/// No placement is smaller than the most that lives at any one step.
pub(crate) fn lower_bound(buffers: &[Residence]) -> u64 {
    alive(buffers.iter()).into_iter().max().unwrap_or(0)
}

/// What lives at each step.
pub(crate) fn alive<'a>(buffers: impl Iterator<Item = &'a Residence> + Clone) -> Vec<u64> {
    let steps = buffers.clone().map(|buffer| buffer.last + 2).max().unwrap_or(0);
    let mut changes = vec![[0, 0]; steps]; // what comes to life and what has died
    for buffer in buffers {
        let len = buffer.bytes.aligned().0;
        changes[buffer.first][0] += len;
        changes[buffer.last + 1][1] += len;
    }
    let mut alive = 0;
    let sum = |[born, died]: [u64; 2]| {
        alive = alive + born - died;
        alive
    };
    changes.into_iter().map(sum).collect()
}

/// A buffer that has its place.
#[derive(Clone, Copy)]
struct Block {
    /// So many were placed before.
    number: usize,
    offset: u64,
    end: u64,
    life: Residence,
}

/// Blocks by rising offset, in runs. Mostly all of a run or nothing of it is alive together with a new buffer, and the
/// search for a place takes the run in one step: 30,000 layers would need a billion steps from block to block.
#[derive(Default)]
struct Placed {
    runs: Vec<Run>,
    /// How many blocks there are.
    count: usize,
    placement: Placement,
}

/// Most blocks of a run.
const RUN: usize = 256;

struct Run {
    blocks: Vec<Block>,
    /// The earliest and the latest first step, and the earliest and the latest last step.
    first: [usize; 2],
    last: [usize; 2],
    end: u64,
    /// No hole between the blocks is larger if all of them are alive.
    hole: u64,
}

impl Placed {
    /// Places those of `order`, in that order.
    fn add(mut self, buffers: &[Residence], order: &[usize]) -> Self {
        self.placement.offsets.resize(buffers.len(), 0);
        for &index in order {
            let (life, len) = (buffers[index], buffers[index].bytes.aligned().0);
            let offset = self.lowest(&life, len);
            self.insert(Block { number: self.count, offset, end: offset + len, life });
            self.count += 1;
            self.placement.offsets[index] = offset;
            self.placement.len = self.placement.len.max(offset + len);
        }
        self
    }

    /// Takes away all but the first `count`.
    fn take_back(&mut self, count: usize) {
        let left = std::mem::take(&mut self.runs).into_iter().filter_map(|Run { mut blocks, .. }| {
            blocks.retain(|block| block.number < count);
            (!blocks.is_empty()).then(|| Run::new(blocks))
        });
        self.runs = left.collect();
        self.count = count;
        self.placement.len = self.runs.iter().map(|run| run.end).max().unwrap_or(0);
    }

    /// The lowest offset at which `len` bytes are free as long as `life` lasts.
    fn lowest(&self, life: &Residence, len: u64) -> u64 {
        let mut offset = 0;
        for run in &self.runs {
            if run.blocks[0].offset >= offset + len {
                break;
            }
            if run.first[0] > life.last || run.last[1] < life.first {
                continue;
            }
            if run.first[1] <= life.last && run.last[0] >= life.first && run.hole < len {
                offset = offset.max(run.end);
                continue;
            }
            for block in run.blocks.iter().filter(|block| block.life.meets(life)) {
                if block.offset >= offset + len {
                    return offset;
                }
                offset = offset.max(block.end);
            }
        }
        offset
    }

    fn insert(&mut self, block: Block) {
        let next = self.runs.partition_point(|run| run.blocks[0].offset < block.offset);
        let at = next.saturating_sub(1);
        let Some(run) = self.runs.get_mut(at) else { return self.runs.push(Run::new(vec![block])) };
        run.widen(&block);
        run.blocks.insert(run.blocks.partition_point(|other| other.offset < block.offset), block);
        if run.blocks.len() > RUN {
            let rest = run.blocks.split_off(RUN / 2);
            *run = Run::new(std::mem::take(&mut run.blocks));
            self.runs.insert(at + 1, Run::new(rest));
        }
    }
}

impl Run {
    fn new(blocks: Vec<Block>) -> Self {
        let never = [usize::MAX, 0];
        let mut run = Self { blocks: Vec::new(), first: never, last: never, end: blocks[0].offset, hole: 0 };
        blocks.iter().for_each(|block| run.widen(block));
        Self { blocks, ..run }
    }

    /// Includes one more block. A hole that it lies in counts as before, so that `hole` may be too large.
    fn widen(&mut self, block: &Block) {
        let Residence { first, last, .. } = block.life;
        self.first = [self.first[0].min(first), self.first[1].max(first)];
        self.last = [self.last[0].min(last), self.last[1].max(last)];
        let below = self.blocks.first().map_or(0, |lowest| lowest.offset.saturating_sub(block.end));
        self.hole = self.hole.max(block.offset.saturating_sub(self.end)).max(below);
        self.end = self.end.max(block.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Place;
    use planner::{ARENA_ALIGNMENT as ALIGNMENT, Bytes};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn buffer(len: u64, first: usize, last: usize) -> Residence {
        Residence { place: Place::Device, first, last, bytes: Bytes(len) }
    }

    #[test]
    fn buffers_that_never_meet_share_their_place() {
        let block = ALIGNMENT;
        let buffers = [buffer(2 * block - 1, 0, 1), buffer(block, 2, 3), buffer(16, 1, 2)];
        let placement = place(&buffers, |_| false, 0);
        assert_eq!(placement, Placement { offsets: vec![0, 0, 2 * block], len: 3 * block });
    }

    #[test]
    fn nothing_alive_together_overlaps_and_the_bound_holds() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        for _ in 0..200 {
            let buffers: Vec<Residence> = (0..rng.random_range(1..40))
                .map(|_| {
                    let first = rng.random_range(0..30);
                    buffer(rng.random_range(0..2000), first, first + rng.random_range(0..10))
                })
                .collect();
            let placement = place(&buffers, |index| index % 3 == 1, 0);
            for (i, a) in buffers.iter().enumerate() {
                assert!(
                    placement.offsets[i].is_multiple_of(ALIGNMENT)
                        && placement.offsets[i] + a.bytes.0 <= placement.len
                );
                for (j, b) in buffers.iter().enumerate().take(i).filter(|(_, b)| b.meets(a)) {
                    let (first, second) = (placement.offsets[i], placement.offsets[j]);
                    assert!(
                        first + a.bytes.0 <= second || second + b.bytes.0 <= first,
                        "{a:?} and {b:?} overlap"
                    );
                }
            }
            assert!(placement.len >= lower_bound(&buffers));
        }
    }

    /// So many buffers of a few sizes.
    fn sets(count: usize) -> impl Iterator<Item = Vec<Residence>> {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        std::iter::repeat_with(move || {
            let one = |_| {
                let first = rng.random_range(0..2 * count);
                buffer(ALIGNMENT << rng.random_range(0..5), first, first + rng.random_range(0..15))
            };
            (0..count).map(one).collect()
        })
    }

    #[test]
    fn nearly_all_of_many_sets_take_no_more_than_lives_at_once() {
        for (count, least) in [(20, 196), (60, 190)] {
            let is_tight =
                |buffers: &Vec<Residence>| place(buffers, |_| false, 0).len == lower_bound(buffers);
            let tight = sets(count).take(200).filter(is_tight).count();
            assert!(tight >= least, "{tight} of 200 sets of {count}");
        }
    }

    /// What a search has found room for is laid out later, when nobody knows how much there was.
    #[test]
    fn what_was_placed_within_some_memory_is_so_again_where_that_is_not_known() {
        let mut early = 0;
        for buffers in sets(60).take(100) {
            let (best, least) = (place(&buffers, |_| false, 0).len, lower_bound(&buffers));
            for enough in [least, best, least + least / 50, least + least / 10] {
                let found = place(&buffers, |_| false, enough).len;
                assert_eq!(found <= enough, best <= enough, "{found} and {best} of {enough}");
                assert!(best <= found);
                early += usize::from(best < found);
            }
        }
        assert!(early > 20, "only {early} searches ended early");
    }

    /// The definitions, block by block and step by step.
    #[test]
    fn runs_change_no_place_and_sums_no_bound() {
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        for round in 0..30 {
            let steps = [3, 40, 2000][round % 3];
            let buffers: Vec<Residence> = (0..1500)
                .map(|_| {
                    let first = rng.random_range(0..steps);
                    buffer(rng.random_range(0..20u64) * 50, first, rng.random_range(first..steps))
                })
                .collect();
            let mut order: Vec<usize> =
                (0..buffers.len()).filter(|&index| buffers[index].bytes.0 > 0).collect();
            order.sort_by_key(|&index| (index % 3 == 1, std::cmp::Reverse(buffers[index].bytes.0)));
            let mut again = Placed::default().add(&buffers, &order);
            let placement = again.placement.clone();
            again.take_back(order.len() / 3);
            assert_eq!(again.add(&buffers, &order[order.len() / 3..]).placement, placement);
            let end =
                |index: usize| placement.offsets[index] + buffers[index].bytes.0.next_multiple_of(ALIGNMENT);
            for (done, &index) in order.iter().enumerate() {
                let mut met: Vec<usize> = order[..done].to_vec();
                met.retain(|&other| buffers[other].meets(&buffers[index]));
                met.sort_by_key(|&other| placement.offsets[other]);
                let len = buffers[index].bytes.0.next_multiple_of(ALIGNMENT);
                let lowest = met.iter().try_fold(0, |offset: u64, &other| {
                    if placement.offsets[other] >= offset + len {
                        Err(offset)
                    } else {
                        Ok(offset.max(end(other)))
                    }
                });
                assert_eq!(placement.offsets[index], lowest.unwrap_or_else(|offset| offset));
            }
            let live = |step: usize| {
                let live = buffers.iter().filter(|buffer| buffer.first <= step && step <= buffer.last);
                live.map(|buffer| buffer.bytes.0.next_multiple_of(ALIGNMENT)).sum::<u64>()
            };
            assert_eq!(lower_bound(&buffers), (0..steps).map(live).max().unwrap());
        }
    }
}
