//! The linear ordering problem: the order of n items with the largest total gain, where each ordered pair has a gain.

/// Maximum number of items for an exact search: 2^n · n steps, and 30 MB at 20.
pub(super) const EXACT_SEARCH: usize = 20;

/// Number of starting orders of a local search beyond that.
const STARTS: usize = 24;

/// Maximum number of items for the upper bound by triples.
const BOUNDED_BY_TRIPLES: usize = 300;

/// A linear ordering problem.
#[derive(Debug)]
pub(super) struct LinearOrder {
    /// `gains[i][j]` is gained if i is ahead of j; antisymmetric.
    pub(super) gains: Vec<Vec<f64>>,
    /// Sums that differ by less are equal up to rounding.
    pub(super) tolerance: f64,
    /// Number of positions that each item takes.
    pub(super) widths: Vec<usize>,
}

/// The result of a search.
pub(super) struct FoundOrder {
    /// The mean number of positions ahead of each item over the best orders found, including half of its own other
    /// positions.
    pub(super) places: Vec<f64>,
    /// Their total gain.
    pub(super) value: f64,
    /// Upper bound of the gain of any order.
    pub(super) bound: f64,
}

impl LinearOrder {
    /// The best order: over all orders up to [`EXACT_SEARCH`] items, otherwise the best of many local searches. `start`
    /// is an initial guess.
    pub(super) fn best(&self, start: Vec<usize>) -> FoundOrder {
        if self.gains.len() <= EXACT_SEARCH { self.exact() } else { self.local(start) }
    }

    /// Dynamic programming over the sets of leading items (Held and Karp 1962).
    pub(super) fn exact(&self) -> FoundOrder {
        let n = self.gains.len();
        let sets = 1_usize << n;
        let won = ColumnSums::new(&self.gains);
        let mut best = vec![0.0_f64; sets];
        // The number of best orders of each set. At most 20!, and only ratios are used, so f64 is sufficient.
        let mut ways = vec![0.0_f64; sets];
        // The items that are last in a best order of each set.
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
        // Frees eight megabytes at 20 items; the backward pass allocates a table of that size.
        drop(best);
        FoundOrder { places: self.mean_places(&ways, &lasts), value, bound: value }
    }

    /// Backward pass: the share of all best orders that go through each set gives the mean position of each item.
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

    /// Mean offset of an item's own positions.
    fn own_middle(&self, item: usize) -> f64 {
        (self.widths[item] - 1) as f64 / 2.0
    }

    /// Local searches from the guess, from orders by each item's gain, and from perturbations of the best order so far;
    /// the first best result wins.
    fn local(&self, start: Vec<usize>) -> FoundOrder {
        let mut best = self.improved(start);
        let mut value = self.value(&best);
        for round in 0..STARTS {
            let order = self.improved(if round == 0 { self.by_gain() } else { kicked(&best, round) });
            let found = self.value(&order);
            // Of orders that are equal up to rounding, the first is kept.
            if found > value + self.tolerance {
                (best, value) = (order, found);
            }
        }
        FoundOrder { places: self.shared_places(&best), value, bound: self.upper_bound().max(value) }
    }

    /// The items by their total gain against all others, in descending order.
    fn by_gain(&self) -> Vec<usize> {
        let gain: Vec<f64> = self.gains.iter().map(|row| row.iter().sum()).collect();
        let mut order: Vec<usize> = (0..gain.len()).collect();
        order.sort_by(|&a, &b| gain[b].total_cmp(&gain[a]));
        order
    }

    /// Moves a block of neighbours (possibly a single item) to another position while that increases the gain, the best
    /// move first.
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

    /// The block `start..end` and the position `to` of the best move: before the item at `to` if that precedes the
    /// block, after it otherwise. `None` if no move helps.
    pub(super) fn best_move(&self, order: &[usize]) -> Option<(usize, usize, usize)> {
        let n = order.len();
        // Moves that gain only by rounding could cycle forever.
        let mut best = (self.tolerance, None);
        // Gain of each item if the block precedes it.
        let mut after_block = vec![0.0; n];
        for start in 0..n {
            after_block.fill(0.0);
            for end in start + 1..=n {
                for (of, &j) in after_block.iter_mut().zip(order) {
                    *of += self.gains[order[end - 1]][j];
                }
                let mut gain = 0.0;
                for to in (0..start).rev() {
                    // Twice: the gain of the old order is lost, and that of the new order is won.
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

    /// Adjacent items that no gain distinguishes share their mean position.
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

    /// Each pair gains at most its larger side. In a cycle of three one pair must lose, by twice the smallest gain.
    /// Each pair's gain is used for cycles once, so the losses add up.
    fn upper_bound(&self) -> f64 {
        let n = self.gains.len();
        let mut left: Vec<Vec<f64>> =
            self.gains.iter().map(|row| row.iter().map(|gain| gain.max(0.0)).collect()).collect();
        let mut bound: f64 = left.iter().flatten().sum();
        // The number of triples is cubic; beyond the limit the bound by pairs is used.
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

    /// Gain of placing `last` after all others of the set; an item gains nothing from itself.
    fn by_putting_behind(&self, last: usize, set: usize) -> f64 {
        self.low[last][set & ((1 << self.half) - 1)] + self.high[last][set >> self.half]
    }
}

/// Deterministic perturbation by the round's number: reverses a block and moves another to the front.
fn kicked(order: &[usize], round: usize) -> Vec<usize> {
    // Steps of the golden section spread evenly over the positions.
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

    /// A problem with gains `gain(i, j)` for j < i.
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

    /// Pseudo-random gains: the fractional parts of multiples of the golden section.
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
