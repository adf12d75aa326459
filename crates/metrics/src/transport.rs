//! The exact earth mover's distance: the minimum cost of moving supply to demand.
//!
//! Successive shortest paths over the dense bipartite network (Ahuja, Magnanti and Orlin, Network Flows, 1993, §9.7),
//! with potentials, so that Dijkstra's algorithm finds each path. Among paths of equal cost the one with the fewest
//! edges is taken, which guarantees termination for real amounts.

/// The minimum cost of moving `supply` to `demand`, both non-negative, at a non-negative cost per unit of `cost[i ·
/// demand.len() + j]` from `i` to `j`. Moves as much as both sides have.
pub(crate) fn transport_cost(supply: &[f64], demand: &[f64], cost: &[f64]) -> f64 {
    debug_assert_eq!(cost.len(), supply.len() * demand.len());
    let mut network = FlowNetwork::new(supply, demand, cost);
    while let Some(end) = network.find_path() {
        network.push_along(end);
    }
    // Sums the final flows in order of positions: the bits do not depend on the paths.
    network.flow.iter().zip(cost).map(|(flow, cost)| flow * cost).sum()
}

/// Supply nodes come first, then demand nodes.
struct FlowNetwork<'a> {
    sources: usize,
    sinks: usize,
    cost: &'a [f64],
    /// The flow from each source to each sink.
    flow: Vec<f64>,
    /// The remaining supply or demand of each node.
    left: Vec<f64>,
    /// `cost + potential[source] − potential[sink]` is zero on edges with flow, and never negative.
    potential: Vec<f64>,
    reached: Vec<Reached>,
}

/// How a node is reached from a source with remaining supply.
#[derive(Clone, Copy)]
struct Reached {
    distance: f64,
    steps: usize,
    from: Option<usize>,
    done: bool,
}

impl<'a> FlowNetwork<'a> {
    fn new(supply: &[f64], demand: &[f64], cost: &'a [f64]) -> Self {
        let (sources, sinks) = (supply.len(), demand.len());
        let left = [supply, demand].concat();
        let unreached = Reached { distance: f64::INFINITY, steps: 0, from: None, done: false };
        Self {
            sources,
            sinks,
            cost,
            flow: vec![0.0; sources * sinks],
            left,
            potential: vec![0.0; sources + sinks],
            reached: vec![unreached; sources + sinks],
        }
    }

    /// The shortest path to a sink with remaining demand; updates the potentials.
    fn find_path(&mut self) -> Option<usize> {
        for (place, reached) in self.reached.iter_mut().enumerate() {
            let starts = place < self.sources && self.left[place] > 0.0;
            *reached =
                Reached { distance: if starts { 0.0 } else { f64::INFINITY }, steps: 0, from: None, done: false };
        }
        loop {
            let place = self.nearest()?;
            self.reached[place].done = true;
            if place < self.sources {
                for sink in 0..self.sinks {
                    let reduced = self.cost[place * self.sinks + sink] + self.potential[place]
                        - self.potential[self.sources + sink];
                    // Rounding may make it negative, which Dijkstra's algorithm does not allow.
                    self.reach(self.sources + sink, place, reduced.max(0.0));
                }
            } else if self.left[place] > 0.0 {
                let end = self.reached[place].distance;
                for (potential, reached) in self.potential.iter_mut().zip(&self.reached) {
                    // Nodes farther than the end are not settled yet; the end's distance keeps the reduced costs of
                    // their edges non-negative.
                    *potential += reached.distance.min(end);
                }
                return Some(place);
            } else {
                for source in 0..self.sources {
                    if self.flow[source * self.sinks + place - self.sources] > 0.0 {
                        // Reverse edges with flow have zero reduced cost; computing it would add rounding.
                        self.reach(source, place, 0.0);
                    }
                }
            }
        }
    }

    fn nearest(&self) -> Option<usize> {
        let open = self.reached.iter().enumerate().filter(|(_, r)| !r.done && r.distance.is_finite());
        open.min_by(|(_, a), (_, b)| a.distance.total_cmp(&b.distance).then(a.steps.cmp(&b.steps)))
            .map(|(place, _)| place)
    }

    fn reach(&mut self, to: usize, from: usize, cost: f64) {
        let (distance, steps) = (self.reached[from].distance + cost, self.reached[from].steps + 1);
        let before = &mut self.reached[to];
        if !before.done && (distance, steps) < (before.distance, before.steps) {
            *before = Reached { distance, steps, from: Some(from), done: false };
        }
    }

    /// Moves as much as the path to `end` allows. This exhausts an edge or node, so the next path differs.
    fn push_along(&mut self, end: usize) {
        let edge = |from: usize, to: usize| {
            if from < self.sources {
                (from * self.sinks + to - self.sources, 1.0)
            } else {
                (to * self.sinks + from - self.sources, -1.0)
            }
        };
        let mut edges = Vec::new();
        let (mut amount, mut place) = (self.left[end], end);
        while let Some(from) = self.reached[place].from {
            let (index, direction) = edge(from, place);
            if direction < 0.0 {
                amount = amount.min(self.flow[index]);
            }
            edges.push((index, direction));
            place = from;
        }
        // The amount equals one of these numbers exactly, so the subtraction gives exactly 0 and the algorithm
        // terminates.
        amount = amount.min(self.left[place]);
        for (index, direction) in edges {
            self.flow[index] += direction * amount;
        }
        self.left[place] -= amount;
        self.left[end] -= amount;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_detour_is_taken_where_it_is_cheaper_on_the_whole() {
        // The first would prefer the first sink, but the second source can only use that one.
        let cost = [1.0, 2.0, 1.0, 10.0];
        assert_eq!(transport_cost(&[1.0, 1.0], &[1.0, 1.0], &cost), 3.0);
        assert_eq!(transport_cost(&[0.5, 0.5], &[0.75, 0.25], &cost), 0.5 + 0.25 + 0.5);
    }

    #[test]
    fn as_much_moves_as_there_is_on_both_sides() {
        assert_eq!(transport_cost(&[2.0], &[0.5, 0.5], &[3.0, 1.0]), 2.0);
        assert_eq!(transport_cost(&[], &[1.0], &[]), 0.0);
        assert_eq!(transport_cost(&[0.0], &[1.0], &[1.0]), 0.0);
    }

    fn problem() -> impl Strategy<Value = (Vec<f64>, Vec<f64>, Vec<f64>)> {
        (1usize..7, 1usize..7).prop_flat_map(|(n, m)| {
            let masses = |len| prop::collection::vec(prop_oneof![Just(0.0), 0.01..1.0_f64, Just(0.25)], len);
            (masses(n), masses(m), prop::collection::vec(prop_oneof![Just(0.0), Just(1.0), 0.0..2.0_f64], n * m))
        })
    }

    proptest! {
        /// Certificate of linear programming: prices that satisfy all cost constraints and sum to the cost prove
        /// optimality.
        #[test]
        fn no_way_is_cheaper((supply, demand, cost) in problem()) {
            let mut network = FlowNetwork::new(&supply, &demand, &cost);
            while let Some(end) = network.find_path() {
                network.push_along(end);
            }
            let (n, m) = (supply.len(), demand.len());
            for i in 0..n {
                for j in 0..m {
                    let reduced = cost[i * m + j] + network.potential[i] - network.potential[n + j];
                    prop_assert!(reduced > -1e-12, "an arc is cheaper than the prices say");
                    prop_assert!(network.flow[i * m + j] >= 0.0);
                    prop_assert!(network.flow[i * m + j] == 0.0 || reduced < 1e-12, "goods move on an arc that is too \
                        dear");
                }
            }
            let moved: f64 = network.flow.iter().sum();
            let most = supply.iter().sum::<f64>().min(demand.iter().sum());
            prop_assert!((moved - most).abs() < 1e-12, "{moved} of {most} moved");
            for (j, wanted) in demand.iter().enumerate() {
                let got: f64 = (0..n).map(|i| network.flow[i * m + j]).sum();
                prop_assert!(got <= wanted + 1e-12);
            }
        }

        #[test]
        fn sides_may_be_exchanged((supply, demand, cost) in problem()) {
            let m = demand.len();
            let turned: Vec<f64> = (0..m).flat_map(|j| cost.iter().skip(j).step_by(m).copied()).collect();
            let (there, back) = (transport_cost(&supply, &demand, &cost), transport_cost(&demand, &supply, &turned));
            prop_assert!((there - back).abs() < 1e-12);
        }
    }
}
