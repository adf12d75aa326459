//! The linear ordering problem: which order of n items wins most, where each pair says how much it wins by having the
//! one before the other.

/// Up to so many items the best order is found over all of them: 2^n · n steps, and 30 MB at 20.
pub(super) const EXACT_SEARCH: usize = 20;

/// Above it: so many orders to begin a local search from.
const STARTS: usize = 24;

/// Triples of items are gone through for the upper bound up to so many items.
const BOUNDED_BY_TRIPLES: usize = 300;

/// The problem.
#[derive(Debug)]
pub(super) struct LinearOrder {
    /// `gains[i][j]` is won where i stands before j; antisymmetric.
    pub(super) gains: Vec<Vec<f64>>,
    /// Sums that differ by less are equal but for rounding.
    pub(super) tolerance: f64,
    /// How many places each item takes.
    pub(super) widths: Vec<usize>,
}

/// What a search came to.
pub(super) struct FoundOrder {
    /// The mean number of places in front of each item over the best orders that were found, half of its own other
    /// places among them.
    pub(super) places: Vec<f64>,
    /// What they win.
    pub(super) value: f64,
    /// No order wins more than this.
    pub(super) bound: f64,
}

impl LinearOrder {
    /// The best order: of all up to [`EXACT_SEARCH`] items, else the best that many local searches find. `start` is a
    /// good guess.
    pub(super) fn best(&self, start: Vec<usize>) -> FoundOrder {
        if self.gains.len() <= EXACT_SEARCH { self.exact() } else { self.local(start) }
    }

    /// Dynamic programming over the sets that can stand in front (Held and Karp 1962).
    pub(super) fn exact(&self) -> FoundOrder {
        let n = self.gains.len();
        let sets = 1_usize << n;
        let won = ColumnSums::new(&self.gains);
        let mut best = vec![0.0_f64; sets];
        // How many best orders lead to each set. Up to 20! and only ratios are used, so f64 will do.
        let mut ways = vec![0.0_f64; sets];
        // Which members of the set stand last in a best order of it.
        let mut lasts = vec![0_u32; sets];
        ways[0] = 1.0;
        let mut values = vec![0.0; n];
        for set in 1..sets {
            let mut top = f64::NEG_INFINITY;
            for last in members(set) {
                values[last] = best[set & !(1 << last)] + won.by_putting_behind(last, set);
                top = top.max(values[last]);
            }
            for last in members(set).filter(|&last| top - values[last] <= self.tolerance) {
                lasts[set] |= 1 << last;
                ways[set] += ways[set & !(1 << last)];
            }
            best[set] = top;
        }
        let value = best[sets - 1];
        // Eight megabytes at 20 items; the walk back makes a table of that size.
        drop(best);
        FoundOrder { places: self.mean_places(&ways, &lasts), value, bound: value }
    }

    /// Backwards through the sets: the share of all best orders that go through each gives the mean place of each item.
    fn mean_places(&self, ways: &[f64], lasts: &[u32]) -> Vec<f64> {
        let mut share = vec![0.0_f64; ways.len()];
        let mut places = vec![0.0; self.gains.len()];
        share[ways.len() - 1] = 1.0;
        for set in (1..ways.len()).rev().filter(|&set| ways[set] > 0.0) {
            if share[set] == 0.0 {
                continue;
            }
            for last in members(lasts[set] as usize) {
                let front = set & !(1 << last);
                let part = share[set] * ways[front] / ways[set];
                share[front] += part;
                places[last] +=
                    part * (members(front).map(|i| self.widths[i]).sum::<usize>() as f64 + self.own_middle(last));
            }
        }
        places
    }

    /// Where an item's places lie behind what stands in front of it, on average.
    fn own_middle(&self, item: usize) -> f64 {
        (self.widths[item] - 1) as f64 / 2.0
    }

    /// Local searches from the guess, from orders by each item's gain, and from the best order so far with blocks of it
    /// turned round or moved: the first best.
    fn local(&self, start: Vec<usize>) -> FoundOrder {
        let mut best = self.improved(start);
        let mut value = self.value(&best);
        for round in 0..STARTS {
            let order = self.improved(if round == 0 { self.by_gain() } else { kicked(&best, round) });
            let found = self.value(&order);
            // Of orders that rounding alone tells apart the first stays.
            if found > value + self.tolerance {
                (best, value) = (order, found);
            }
        }
        FoundOrder { places: self.shared_places(&best), value, bound: self.upper_bound().max(value) }
    }

    /// The items by what they win against all others together, the greatest first.
    fn by_gain(&self) -> Vec<usize> {
        let gain: Vec<f64> = self.gains.iter().map(|row| row.iter().sum()).collect();
        let mut order: Vec<usize> = (0..gain.len()).collect();
        order.sort_by(|&a, &b| gain[b].total_cmp(&gain[a]));
        order
    }

    /// Moves a block of neighbours (an item alone is one) to another place while that wins anything, the best move
    /// first.
    pub(super) fn improved(&self, mut order: Vec<usize>) -> Vec<usize> {
        while let Some((start, end, to)) = self.best_move(&order) {
            if to < start {
                order[to..end].rotate_left(start - to);
            } else {
                order[start..=to].rotate_left(end - start);
            }
        }
        order
    }

    pub(super) fn value(&self, order: &[usize]) -> f64 {
        order.iter().enumerate().flat_map(|(at, &i)| order[at + 1..].iter().map(move |&j| self.gains[i][j])).sum()
    }

    /// The block `start..end` and the place `to` of the move that wins most: before the item at `to` where that stands
    /// in front of the block, behind it where it stands behind. `None` where none wins.
    pub(super) fn best_move(&self, order: &[usize]) -> Option<(usize, usize, usize)> {
        let n = order.len();
        // Moves that win by rounding alone could go round for ever.
        let mut best = (self.tolerance, None);
        // What each item wins by having the block in front of it.
        let mut after_block = vec![0.0; n];
        for start in 0..n {
            after_block.fill(0.0);
            for end in start + 1..=n {
                for (of, &j) in after_block.iter_mut().zip(order) {
                    *of += self.gains[order[end - 1]][j];
                }
                let mut gain = 0.0;
                for to in (0..start).rev() {
                    // Twice: what the pair won in its old order is lost, and the other order's is won.
                    gain += 2.0 * after_block[to];
                    if gain > best.0 {
                        best = (gain, Some((start, end, to)));
                    }
                }
                gain = 0.0;
                for (to, of) in after_block.iter().enumerate().skip(end) {
                    gain -= 2.0 * of;
                    if gain > best.0 {
                        best = (gain, Some((start, end, to)));
                    }
                }
            }
        }
        best.1
    }

    /// Neighbours among whom no gain tells one from another share the mean of their places.
    fn shared_places(&self, order: &[usize]) -> Vec<f64> {
        let mut places = vec![0.0; order.len()];
        let (mut start, mut front) = (0, 0);
        while start < order.len() {
            let mut end = start + 1;
            while end < order.len()
                && order[start..end].iter().all(|&i| self.gains[i][order[end]].abs() <= self.tolerance)
            {
                end += 1;
            }
            let width: usize = order[start..end].iter().map(|&i| self.widths[i]).sum();
            for &i in &order[start..end] {
                places[i] = front as f64 + (width - 1) as f64 / 2.0;
            }
            (start, front) = (end, front + width);
        }
        places
    }

    /// Each pair wins its own greater side at most; and of three that form a circle one must lose, by the least of them
    /// twice. Each pair's gain is spent on circles once, so the losses add up.
    fn upper_bound(&self) -> f64 {
        let n = self.gains.len();
        let mut left: Vec<Vec<f64>> =
            self.gains.iter().map(|row| row.iter().map(|gain| gain.max(0.0)).collect()).collect();
        let mut bound: f64 = left.iter().flatten().sum();
        // Triples grow with the third power; above that the bound by pairs has to do.
        if n > BOUNDED_BY_TRIPLES {
            return bound;
        }
        for i in 0..n {
            for j in i + 1..n {
                for k in j + 1..n {
                    for (a, b, c) in [(i, j, k), (i, k, j)] {
                        let least = left[a][b].min(left[b][c]).min(left[c][a]);
                        if least > 0.0 {
                            bound -= 2.0 * least;
                            for (from, to) in [(a, b), (b, c), (c, a)] {
                                left[from][to] -= least;
                            }
                        }
                    }
                }
            }
        }
        bound
    }
}

/// The members of a set of items.
fn members(set: usize) -> impl Iterator<Item = usize> {
    let mut rest = set;
    std::iter::from_fn(move || {
        let item = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
        rest &= rest - 1;
        Some(item)
    })
}

/// Sums of columns of the gains over sets of rows, from two tables of half the rows each.
struct ColumnSums {
    low: Vec<Vec<f64>>,
    high: Vec<Vec<f64>>,
    half: usize,
}

impl ColumnSums {
    fn new(gains: &[Vec<f64>]) -> Self {
        let n = gains.len();
        let half = n / 2;
        let sums = |last: usize, from: usize, bits: usize| {
            let mut sums = vec![0.0; 1 << bits];
            for set in 1..sums.len() {
                sums[set] = sums[set & (set - 1)] + gains[from + set.trailing_zeros() as usize][last];
            }
            sums
        };
        let (low, high) = (0..n).map(|last| (sums(last, 0, half), sums(last, half, n - half))).unzip();
        Self { low, high, half }
    }

    /// What is won by putting `last` behind all others of the set; an item wins nothing of itself.
    fn by_putting_behind(&self, last: usize, set: usize) -> f64 {
        self.low[last][set & ((1 << self.half) - 1)] + self.high[last][set >> self.half]
    }
}

/// The order with a block turned round and another moved to the front, by the round's number: the same each time.
fn kicked(order: &[usize], round: usize) -> Vec<usize> {
    // Steps of the golden section spread over the places.
    let place = |k: usize| ((k as f64 * 0.618_033_988_749_894_9).fract() * order.len() as f64) as usize;
    let mut order = order.to_vec();
    let (a, b) = (place(2 * round), place(2 * round + 1));
    order[a.min(b)..=a.max(b)].reverse();
    order.rotate_left(place(3 * round + 1) / 2);
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A problem whose gains are `gain(i, j)` for j < i.
    fn problem(n: usize, gain: impl Fn(usize, usize) -> f64) -> LinearOrder {
        let antisymmetric = |i: usize, j: usize| match i.cmp(&j) {
            std::cmp::Ordering::Greater => gain(i, j),
            std::cmp::Ordering::Less => -gain(j, i),
            std::cmp::Ordering::Equal => 0.0,
        };
        let gains = (0..n).map(|i| (0..n).map(|j| antisymmetric(i, j)).collect()).collect();
        LinearOrder { gains, tolerance: 1e-12, widths: vec![1; n] }
    }

    fn any_order(items: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = LinearOrder> {
        items.prop_flat_map(|n| {
            prop::collection::vec(-1.0_f64..1.0, n * n).prop_map(move |whims| problem(n, |i, j| whims[i * n + j]))
        })
    }

    fn moved(order: &[usize], (start, end, to): (usize, usize, usize)) -> Vec<usize> {
        let block = &order[start..end];
        let others: Vec<usize> = order.iter().filter(|i| !block.contains(i)).copied().collect();
        let at = if to < start { to } else { to + 1 - block.len() };
        [&others[..at], block, &others[at..]].concat()
    }

    proptest! {
        #[test]
        fn the_gain_of_the_best_move_is_the_difference_in_value(ordering in any_order(2..=8)) {
            let n = ordering.gains.len();
            let order: Vec<usize> = (0..n).collect();
            let moves = (0..n).flat_map(|s| (s + 1..=n).flat_map(move |e| (0..n).filter(move |t| *t < s || *t >= e).map(move |t| (s, e, t))));
            let top = moves.map(|m| ordering.value(&moved(&order, m))).fold(ordering.value(&order), f64::max);
            let chosen = ordering.best_move(&order).map_or_else(|| ordering.value(&order), |m| ordering.value(&moved(&order, m)));
            prop_assert!((top - chosen).abs() < 1e-9, "{top} {chosen}");
        }

        #[test]
        fn local_search_ends_where_no_move_helps_and_between_its_start_and_the_best(ordering in any_order(8..=10)) {
            let start: Vec<usize> = (0..ordering.gains.len()).collect();
            prop_assert!(ordering.best_move(&ordering.improved(start.clone())).is_none());
            let (local, exact) = (ordering.local(start.clone()), ordering.exact());
            prop_assert!(ordering.value(&start) <= local.value + 1e-9 && local.value <= exact.value + 1e-9);
            prop_assert!(exact.value <= local.bound + 1e-9, "{} {}", exact.value, local.bound);
            let places = local.places.iter().sum::<f64>();
            prop_assert!((places - (start.len() * (start.len() - 1)) as f64 / 2.0).abs() < 1e-9);
        }
    }

    /// Gains from a seeded walk over the fractional parts of multiples of the golden section.
    fn whims(n: usize, seed: usize) -> LinearOrder {
        problem(n, |i, j| (((i * n + j + 1) * (2 * seed + 3)) as f64 * 0.618_033_988_749_895).fract() - 0.5)
    }

    #[test]
    fn many_local_searches_find_what_all_orders_have_for_seventeen() {
        for seed in 0..6 {
            let ordering = whims(17, seed);
            let (exact, local) = (ordering.exact(), ordering.local((0..17).collect()));
            assert!((exact.value - local.value).abs() < 1e-9, "{seed}: {} {}", exact.value, local.value);
        }
    }

    #[test]
    fn wide_items_push_the_others_on() {
        let ordering =
            LinearOrder { gains: vec![vec![0.0, 1.0], vec![-1.0, 0.0]], tolerance: 1e-12, widths: vec![3, 1] };
        assert_eq!(ordering.best(vec![1, 0]).places, [1.0, 3.0]);
    }
}
