//! Attention: spans, biases by distance, divisions of the same input.

use std::ops::Range;

use half::bf16;
use probity_kernels::{
    Arithmetic, AttentionSegment, AttentionShape, DistanceColumns, DistanceProducts, Isa, PackedSpan, QueryRows,
    RelativeBias, ScoreBias, attention, attention_with_sinks, join_spans, pack_span,
};

use crate::{Random, bits, isas};

/// Packed keys and values of some rows at these positions.
fn pack(
    isa: Isa,
    shape: &AttentionShape,
    keys: &[f32],
    values: &[f32],
    rows: Range<usize>,
) -> (Vec<u32>, Vec<u32>, usize) {
    let (mut k, mut v) = (vec![0; shape.keys_len(rows.len())], vec![0; shape.values_len(rows.len())]);
    pack_span(isa, shape, (keys, values), rows.clone(), rows.start, &mut k, &mut v);
    (k, v, rows.len())
}

/// An attention test case: keys and values of all positions, queries of the last `rows`.
#[derive(Clone)]
struct Case {
    shape: AttentionShape,
    keys: Vec<f32>,
    values: Vec<f32>,
    queries: Vec<f32>,
    positions: usize,
    rows: usize,
    /// Whether each row sees later positions too; then there are as many rows as positions, or more.
    sees_all: bool,
    bias: Option<RelativeBias>,
    /// One logit per head, if there are sinks.
    sinks: Option<Vec<f32>>,
}

impl Case {
    fn new(random: &mut Random, shape: AttentionShape, positions: usize, rows: usize) -> Self {
        let kv = positions * shape.kv_heads * shape.head_dim;
        let queries: Vec<f32> = random.floats(rows * shape.heads * shape.head_dim).iter().map(|q| 4.0 * q).collect();
        Self {
            shape,
            keys: random.floats(kv),
            values: random.floats(kv),
            queries,
            positions,
            rows,
            sees_all: false,
            bias: None,
            sinks: None,
        }
    }

    /// The result with the positions divided into spans at `cuts`.
    fn attend(&self, isa: Isa, cuts: &[usize]) -> Vec<f32> {
        let mut bounds = vec![0];
        bounds.extend(cuts);
        bounds.push(self.positions);
        let packed: Vec<_> =
            bounds.windows(2).map(|b| pack(isa, &self.shape, &self.keys, &self.values, b[0]..b[1])).collect();
        let spans = packed.iter().map(|(keys, values, len)| PackedSpan { keys, values, len: *len }).collect();
        let mut out = vec![f32::NAN; self.queries.len()];
        let segments = [AttentionSegment { spans, rows: self.seen(), wanted: None }];
        if let Some(sinks) = &self.sinks {
            attention_with_sinks(isa, &self.shape, sinks, &self.queries, &segments, &mut out);
        } else {
            let bias = self.bias.as_ref().map(ScoreBias::Distance);
            attention(isa, &self.shape, bias, &self.queries, &segments, &mut out);
        }
        out
    }

    /// Checks a result against the definition.
    fn assert_near(&self, result: &[f32], tolerance: f64) {
        let Self { shape, positions, rows, .. } = self;
        for (y, expected) in result.iter().zip(self.expected()) {
            assert!(
                (f64::from(*y) - expected).abs() < tolerance,
                "{shape:?} ({positions}, {rows}): {y} for {expected}"
            );
        }
    }

    fn seen(&self) -> QueryRows {
        if self.sees_all {
            QueryRows::All(self.rows)
        } else {
            QueryRows::Causal(self.positions - self.rows + 1..self.positions + 1)
        }
    }

    /// The definition in f64, of numbers rounded as the shape says.
    fn expected(&self) -> Vec<f64> {
        let AttentionShape { heads, kv_heads, head_dim: dim, scale, cap, window, arithmetic } = self.shape;
        let rounded = |x: f32| f64::from(if arithmetic == Arithmetic::Tiles { bf16::from_f32(x).to_f32() } else { x });
        let mut out = Vec::new();
        for row in 0..self.rows {
            let own = if self.sees_all { row } else { self.positions - self.rows + row };
            let behind = if self.sees_all { window.unwrap_or(self.positions) } else { 1 };
            let seen = window.map_or(0, |w| (own + 1).saturating_sub(w))..self.positions.min(own + behind);
            for head in 0..heads {
                let at = |position: usize| (position * kv_heads + head / (heads / kv_heads)) * dim;
                let q = &self.queries[(row * heads + head) * dim..][..dim];
                let dot = |p: usize| (0..dim).map(|d| rounded(q[d]) * rounded(self.keys[at(p) + d])).sum::<f64>();
                let bias = |p: usize| {
                    if self.bias.is_some() { f64::from(summand(head, p as isize - own as isize)) } else { 0.0 }
                };
                let capped = |score: f64| cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh());
                let weights: Vec<f64> =
                    seen.clone().map(|p| (capped(dot(p) * f64::from(scale)) + bias(p)).exp()).collect();
                let sink = self.sinks.as_ref().map_or(0.0, |sinks| f64::from(sinks[head]).exp());
                let sum: f64 = weights.iter().sum::<f64>() + sink;
                for d in 0..dim {
                    let value: f64 = seen.clone().zip(&weights).map(|(p, w)| w * rounded(self.values[at(p) + d])).sum();
                    out.push(value / sum);
                }
            }
        }
        out
    }
}

/// The reach of a bias, and its values.
const REACH: usize = 9;

fn summand(head: usize, distance: isize) -> f32 {
    let distance = distance.clamp(-(REACH as isize), REACH as isize);
    ((head as isize * 5 + distance * 7).rem_euclid(11) - 5) as f32 * 0.3
}

/// The arithmetics of attention, and their tolerances: bf16 weights have eight bits.
const ATTENTIONS: [(Arithmetic, f64); 2] = [(Arithmetic::Exact, 2e-6), (Arithmetic::Tiles, 2e-3)];

#[test]
fn attention_is_right_and_blind_to_how_positions_are_cut() {
    let mut random = Random(6);
    for (arithmetic, tolerance) in ATTENTIONS {
        for (heads, kv_heads, head_dim, window, cap) in [
            (4, 2, 16, None, None),
            (9, 3, 64, None, None),
            (3, 1, 20, Some(5), None),
            (2, 2, 80, Some(40), Some(0.7)),
            (6, 2, 128, None, None),
            (4, 2, 16, None, Some(2.0)),
        ] {
            let scale = 1.0 / (head_dim as f32).sqrt();
            let shape = AttentionShape { heads, kv_heads, head_dim, scale, cap, window, arithmetic };
            for (positions, rows) in [(1, 1), (17, 17), (100, 37), (130, 1)] {
                let case = Case::new(&mut random, shape, positions, rows);
                let whole = case.attend(Isa::Plain, &[]);
                case.assert_near(&whole, tolerance);
                for isa in isas() {
                    assert_eq!(
                        bits(&case.attend(isa, &[])),
                        bits(&whole),
                        "{shape:?} ({positions}, {rows}) on {}",
                        isa.name()
                    );
                    for cuts in [vec![1], vec![16], vec![7, 23], vec![32, 33, 64], vec![positions - rows]] {
                        if cuts.iter().all(|c| *c > 0 && *c < positions) {
                            assert_eq!(
                                bits(&case.attend(isa, &cuts)),
                                bits(&whole),
                                "{shape:?} ({positions}, {rows}) cut at {cuts:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn sinks_take_their_share_of_every_query() {
    let mut random = Random(41);
    for (arithmetic, tolerance) in ATTENTIONS {
        for (heads, kv_heads, head_dim, window, cap) in
            [(4, 2, 16, None, None), (6, 3, 64, Some(5), None), (3, 1, 20, Some(40), None), (2, 2, 32, None, Some(2.0))]
        {
            let scale = 1.0 / (head_dim as f32).sqrt();
            let shape = AttentionShape { heads, kv_heads, head_dim, scale, cap, window, arithmetic };
            for (positions, rows) in [(1, 1), (17, 17), (100, 37), (130, 1)] {
                // Among the scores, far below, and above all of them.
                let sinks = (0..heads).map(|head| [0.7, -4.0, 3.0, 0.0, -90.0, 9.0][head]).collect();
                let case = Case { sinks: Some(sinks), ..Case::new(&mut random, shape, positions, rows) };
                let whole = case.attend(Isa::Plain, &[]);
                case.assert_near(&whole, tolerance);
                for isa in isas() {
                    for cuts in [vec![], vec![1], vec![7, 23], vec![32, 33, 64]] {
                        if cuts.iter().all(|c| *c < positions) {
                            let what = format!("{shape:?} ({positions}, {rows}) cut at {cuts:?} on {}", isa.name());
                            assert_eq!(bits(&case.attend(isa, &cuts)), bits(&whole), "{what}");
                        }
                    }
                }
                // A sink without weight changes no bit, and one that takes everything leaves nothing.
                let with = |sink: f32| Case { sinks: Some(vec![sink; heads]), ..case.clone() }.attend(Isa::best(), &[]);
                let without = Case { sinks: None, ..case.clone() }.attend(Isa::best(), &[]);
                assert_eq!(bits(&with(f32::NEG_INFINITY)), bits(&without), "{shape:?}");
                assert!(with(1e30).iter().all(|y| y.abs() < 1e-30), "{shape:?}");
            }
        }
    }
}

#[test]
fn attention_to_all_positions_and_with_a_bias_is_right_and_blind_to_cuts() {
    let mut random = Random(21);
    for (arithmetic, tolerance) in ATTENTIONS {
        for (heads, head_dim, sees_all, biased, window) in [
            (4, 64, true, true, None),
            (3, 20, true, false, None),
            (2, 32, false, true, None),
            (1, 80, true, true, None),
            (2, 20, true, false, Some(1)),
            (2, 32, true, false, Some(7)),
            (3, 64, true, true, Some(33)),
        ] {
            let shape = AttentionShape { heads, kv_heads: heads, head_dim, scale: 0.2, cap: None, window, arithmetic };
            // With fewer positions than rows, and more: cross-attention.
            for (positions, rows) in [(1, 1), (5, 17), (37, 37), (100, 100), (130, 7)] {
                if (!sees_all || window.is_some()) && rows > positions {
                    continue;
                }
                let bias = biased.then(|| RelativeBias::new(heads, REACH, summand));
                let case = Case { sees_all, bias, ..Case::new(&mut random, shape, positions, rows) };
                let whole = case.attend(Isa::Plain, &[]);
                case.assert_near(&whole, tolerance);
                for isa in isas() {
                    for cuts in [vec![], vec![1], vec![7, 23], vec![32, 33, 64]] {
                        if cuts.iter().all(|c| *c < positions) {
                            assert_eq!(
                                bits(&case.attend(isa, &cuts)),
                                bits(&whole),
                                "{shape:?} {sees_all} cut at {cuts:?} on {}",
                                isa.name()
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn products_with_distances_are_gathered_by_them() {
    const COLUMNS: usize = 11;
    let mut random = Random(31);
    // The first columns are for keys well after the query; distances beyond reach have the last column or the first.
    let column = |distance: isize| (5 - distance.clamp(-5, 5)) as usize;
    let columns = DistanceColumns::new(COLUMNS, 5, column);
    for (arithmetic, tolerance) in ATTENTIONS {
        for (heads, head_dim, with_queries, with_keys) in
            [(3, 20, true, true), (2, 64, true, false), (1, 32, false, true)]
        {
            let shape =
                AttentionShape { heads, kv_heads: heads, head_dim, scale: 0.2, cap: None, window: None, arithmetic };
            let (width, lens) = (heads * head_dim, [37, 1, 64]);
            let all: usize = lens.iter().sum();
            let cases = lens.map(|len| Case { sees_all: true, ..Case::new(&mut random, shape, len, len) });
            // (heads, rows, columns)
            let products = [with_queries, with_keys].map(|with| with.then(|| random.floats(heads * all * COLUMNS)));
            let attend = |isa: Isa, wanted: Option<&[usize]>, of_queries: Option<&[f32]>| {
                let packed =
                    cases.each_ref().map(|case| pack(isa, &shape, &case.keys, &case.values, 0..case.positions));
                let mut segments = Vec::new();
                let mut queries = Vec::new();
                for (case, (keys, values, len)) in cases.iter().zip(&packed) {
                    // For the other segments no rows, if only some of the last are wanted.
                    let wanted = wanted.map(|wanted| if case.rows == 64 { wanted } else { &[] });
                    match wanted {
                        None => queries.extend(&case.queries),
                        Some(wanted) => {
                            for row in wanted {
                                queries.extend(&case.queries[row * width..][..width]);
                            }
                        }
                    }
                    let spans = vec![PackedSpan { keys, values, len: *len }];
                    segments.push(AttentionSegment { spans, rows: case.seen(), wanted });
                }
                let mut out = vec![f32::NAN; queries.len()];
                let products = DistanceProducts { columns: &columns, of_queries, of_keys: products[1].as_deref() };
                attention(isa, &shape, Some(ScoreBias::Products(products)), &queries, &segments, &mut out);
                out
            };
            let whole = attend(Isa::Plain, None, products[0].as_deref());
            // The definition in f64, of numbers rounded as the shape says.
            let rounded =
                |x: f32| f64::from(if arithmetic == Arithmetic::Tiles { bf16::from_f32(x).to_f32() } else { x });
            let mut first = 0;
            for case in &cases {
                for (row, head) in (0..case.rows).flat_map(|row| (0..heads).map(move |head| (row, head))) {
                    let at = |row: usize| (row * heads + head) * head_dim;
                    let product = |which: usize, row: usize, column: usize| {
                        let of = |all_products: &Vec<f32>| all_products[(head * all + first + row) * COLUMNS + column];
                        f64::from(products[which].as_ref().map_or(0.0, of))
                    };
                    let weight = |p: usize| {
                        let column = column(p as isize - row as isize);
                        let dot = (0..head_dim)
                            .map(|d| rounded(case.queries[at(row) + d]) * rounded(case.keys[at(p) + d]))
                            .sum::<f64>();
                        (0.2 * (dot + product(0, row, column) + product(1, p, column))).exp()
                    };
                    let weights: Vec<f64> = (0..case.positions).map(weight).collect();
                    for d in 0..head_dim {
                        let sum =
                            (0..case.positions).map(|p| weights[p] * rounded(case.values[at(p) + d])).sum::<f64>();
                        let (y, expected) = (whole[first * width + at(row) + d], sum / weights.iter().sum::<f64>());
                        assert!(
                            (f64::from(y) - expected).abs() < tolerance,
                            "{shape:?}, row {row}: {y} for {expected}"
                        );
                    }
                }
                first += case.rows;
            }
            let wanted = [0, 3, 40, 63];
            let rows = |x: &[f32], len: usize| -> Vec<f32> {
                wanted.iter().flat_map(|row| x[(38 + row) * len..][..len].to_vec()).collect()
            };
            let of_wanted: Option<Vec<f32>> = products[0]
                .as_ref()
                .map(|products| products.chunks_exact(all * COLUMNS).flat_map(|head| rows(head, COLUMNS)).collect());
            for isa in isas() {
                assert_eq!(
                    bits(&attend(isa, None, products[0].as_deref())),
                    bits(&whole),
                    "{shape:?} on {}",
                    isa.name()
                );
                let some = attend(isa, Some(&wanted), of_wanted.as_deref());
                assert_eq!(bits(&some), bits(&rows(&whole, width)), "{shape:?} on {}: wanted rows", isa.name());
            }
        }
    }
}

#[test]
fn wanted_rows_have_the_bits_they_have_among_all() {
    let mut random = Random(14);
    for (arithmetic, _) in ATTENTIONS {
        let shape =
            AttentionShape { heads: 6, kv_heads: 2, head_dim: 48, scale: 0.2, cap: None, window: Some(30), arithmetic };
        let bias = Some(RelativeBias::new(shape.heads, REACH, summand));
        let case = Case { bias, ..Case::new(&mut random, shape, 90, 60) };
        let width = shape.heads * shape.head_dim;
        let wanted = [0, 3, 4, 40, 41, 59];
        let queries: Vec<f32> = wanted.iter().flat_map(|row| case.queries[row * width..][..width].to_vec()).collect();
        for isa in isas() {
            let (keys, values, len) = pack(isa, &shape, &case.keys, &case.values, 0..90);
            let spans = vec![PackedSpan { keys: &keys, values: &values, len }];
            let mut out = vec![f32::NAN; queries.len()];
            attention(
                isa,
                &shape,
                case.bias.as_ref().map(ScoreBias::Distance),
                &queries,
                &[AttentionSegment { spans, rows: case.seen(), wanted: Some(&wanted) }],
                &mut out,
            );
            let all = case.attend(isa, &[]);
            let expected: Vec<f32> = wanted.iter().flat_map(|row| all[row * width..][..width].to_vec()).collect();
            assert_eq!(bits(&out), bits(&expected), "{arithmetic:?} on {}", isa.name());
        }
    }
}

#[test]
fn joined_spans_equal_those_packed_at_once() {
    let mut random = Random(11);
    for (arithmetic, _) in ATTENTIONS {
        let shape =
            AttentionShape { heads: 4, kv_heads: 2, head_dim: 20, scale: 1.0, cap: None, window: None, arithmetic };
        let case = Case::new(&mut random, shape, 45, 1);
        let pack = |rows| pack(Isa::best(), &shape, &case.keys, &case.values, rows);
        for (start, cuts) in [(0, [1, 2, 30]), (3, [4, 6, 31])] {
            let parts = [pack(start..cuts[0]), pack(cuts[0]..cuts[1]), pack(cuts[1]..cuts[2]), pack(cuts[2]..45)];
            let spans: Vec<PackedSpan<'_>> =
                parts.iter().map(|(keys, values, len)| PackedSpan { keys, values, len: *len }).collect();
            let (keys, values, _) = pack(start..45);
            let (mut k, mut v) = (vec![0; keys.len()], vec![0; values.len()]);
            join_spans(&shape, &spans, 45 - start, start, &mut k, &mut v);
            assert!(k == keys && v == values, "{arithmetic:?} from {start}");
            // Later positions are dropped, wherever the cut is.
            for end in [cuts[0], cuts[1], cuts[1] + 3, cuts[2] - 1, cuts[2] + 1, 44] {
                let (keys, values, _) = pack(start..end);
                let (mut k, mut v) = (vec![0; keys.len()], vec![0; values.len()]);
                join_spans(&shape, &spans, end - start, start, &mut k, &mut v);
                assert!(k == keys && v == values, "{arithmetic:?} from {start} to {end}");
            }
        }
    }
}

#[test]
fn a_query_has_the_same_bits_alone_and_among_others() {
    let mut random = Random(7);
    for (arithmetic, _) in ATTENTIONS {
        let shape =
            AttentionShape { heads: 6, kv_heads: 2, head_dim: 32, scale: 0.2, cap: None, window: Some(50), arithmetic };
        let case = Case::new(&mut random, shape, 90, 90);
        let together = case.attend(Isa::best(), &[]);
        let width = shape.heads * shape.head_dim;
        for row in [0, 15, 16, 60, 89] {
            let kv = (row + 1) * shape.kv_heads * shape.head_dim;
            let alone = Case {
                shape,
                keys: case.keys[..kv].to_vec(),
                values: case.values[..kv].to_vec(),
                queries: case.queries[row * width..][..width].to_vec(),
                positions: row + 1,
                rows: 1,
                ..case.clone()
            };
            assert_eq!(
                bits(&alone.attend(Isa::best(), &[])),
                bits(&together[row * width..][..width]),
                "{arithmetic:?}, row {row}"
            );
        }
    }
}

#[test]
fn what_is_not_finite_reaches_those_who_see_it_and_nobody_else() {
    let mut random = Random(16);
    for (arithmetic, _) in ATTENTIONS {
        let shape =
            AttentionShape { heads: 4, kv_heads: 2, head_dim: 32, scale: 0.2, cap: None, window: Some(20), arithmetic };
        let width = shape.heads * shape.head_dim;
        let finite = Case::new(&mut random, shape, 70, 70);
        let expected = finite.attend(Isa::best(), &[]);
        for (bad, in_keys) in
            [(f32::NAN, false), (f32::INFINITY, false), (f32::NAN, true), (3.4e38, true), (f32::INFINITY, true)]
        {
            // In the first key head, which two query heads share.
            let mut case = finite.clone();
            let element =
                &mut if in_keys { &mut case.keys } else { &mut case.values }[40 * shape.kv_heads * shape.head_dim + 7];
            *element = bad;
            for isa in isas() {
                let results = case.attend(isa, &[33]);
                for (row, (results, expected)) in results.chunks(width).zip(expected.chunks(width)).enumerate() {
                    let reached = if (40..60).contains(&row) { 2 * shape.head_dim } else { 0 };
                    let what =
                        format!("{arithmetic:?} row {row}, {bad} in {}", if in_keys { "keys" } else { "values" });
                    assert_eq!(bits(&results[reached..]), bits(&expected[reached..]), "{what} on {}", isa.name());
                    if reached > 0 && bad.is_nan() {
                        assert!(results[..reached].iter().any(|y| y.is_nan()), "{what}");
                    }
                }
                assert_eq!(bits(&results), bits(&case.attend(Isa::Plain, &[33])), "{arithmetic:?} on {}", isa.name());
            }
        }
    }
}
