use super::stacks::SeenPairs;
use super::*;
use crate::device::memory::BatchSize;
use crate::relative::RelativeBuckets;

fn piece(rows: Range<usize>, first: usize, keys: Range<usize>) -> StackPiece {
    StackPiece { rows, first, keys: keys.clone().zip(keys).collect() }
}

fn seen(pieces: &[&StackPiece], shape: (usize, usize), sight: Sight) -> Vec<Vec<String>> {
    let mask = SeenPairs::new(pieces, shape, sight, &Device::Cpu).and_then(|seen| seen.mask()).expect("a mask");
    let mask: Vec<Vec<Vec<f32>>> = mask.squeeze(2).and_then(|x| x.squeeze(0)?.to_vec3()).expect("three dimensions");
    let row = |row: &Vec<f32>| row.iter().map(|x| if *x == 0.0 { 'x' } else { '.' }).collect();
    mask.iter().map(|piece| piece.iter().map(row).collect()).collect()
}

#[test]
fn a_row_sees_its_window_up_to_itself() {
    let of = |rows: usize, keys: usize, window| {
        seen(&[&piece(0..rows, keys - rows, 0..keys)], (rows, keys), Sight::UpToOwn { window }).remove(0)
    };
    assert_eq!(of(2, 4, None), ["xxx.", "xxxx"]);
    assert_eq!(of(3, 4, Some(2)), ["xx..", ".xx.", "..xx"]);
    assert_eq!(of(2, 2, Some(1)), ["x.", ".x"]);
}

#[test]
fn what_fills_a_piece_up_is_seen_by_nobody_and_sees_all() {
    let pieces = [piece(0..2, 1, 0..3), piece(2..3, 0, 0..1)];
    let of = |sight| seen(&pieces.each_ref(), (2, 3), sight);
    assert_eq!(of(Sight::UpToOwn { window: None }), [["xx.", "xxx"], ["x..", "x.."]]);
    assert_eq!(of(Sight::Around { window: None }), [["xxx", "xxx"], ["x..", "x.."]]);
    assert_eq!(of(Sight::Around { window: Some(1) })[0], [".x.", "..x"]);
}

#[test]
fn summands_are_those_of_the_distance_and_hide_what_is_not_seen() {
    let buckets = RelativeBuckets { buckets: 4, max_distance: 2, bidirectional: true };
    let table: Vec<f32> = (0..8).map(|x| x as f32).collect();
    let bias = DistanceBias::new(buckets, &table, 2, &Device::Cpu).expect("a table");
    let of = |piece: &StackPiece, sight| -> Vec<Vec<f32>> {
        let seen = SeenPairs::new(&[piece], (piece.rows.len(), piece.keys.len()), sight, &Device::Cpu).expect("few");
        let places = bias.places(&seen.distances().expect("few"), &seen.is_seen().expect("few")).expect("places");
        bias.summands.index_select(&places, 1).and_then(|x| x.to_vec2()).expect("a matrix")
    };
    let expected = |head: usize, row: isize, keys: Range<isize>| -> Vec<f32> {
        keys.map(|key| table[buckets.bucket(key - row) * 2 + head]).collect()
    };
    // The second piece of a text of five tokens: its rows are the fourth and the fifth.
    for (head, got) in of(&piece(3..5, 3, 0..5), Sight::Around { window: None }).into_iter().enumerate() {
        assert_eq!(got, [expected(head, 3, 0..5), expected(head, 4, 0..5)].concat());
    }
    let hidden = f32::NEG_INFINITY;
    for (head, got) in of(&piece(0..2, 2, 0..4), Sight::UpToOwn { window: Some(2) }).into_iter().enumerate() {
        let rows = [vec![hidden], expected(head, 2, 1..3), vec![hidden; 3], expected(head, 3, 2..4)];
        assert_eq!(got, rows.concat());
    }
}

#[test]
fn what_many_texts_see_whole_is_shared_and_nothing_else() {
    let text = |past: &[Range<usize>], own: Range<usize>| AttendingRows {
        rows: own.len(),
        seen: past.iter().cloned().chain([own]).collect(),
    };
    let whole = |range: Range<usize>| std::iter::once(range).collect::<Vec<_>>();
    let texts = [
        text(&[0..200, 200..300], 400..410),
        text(&[0..200, 200..300], 410..420),
        text(&whole(0..200), 420..430),
        text(&[], 430..440),
    ];
    let of = |window| worth_sharing(&texts, Sight::UpToOwn { window });
    // The second range would save only a hundred positions.
    assert_eq!(of(None), whole(0..200));
    // The last row of the first text sees at most 250 positions back, which is not the whole range.
    assert!(of(Some(250)).is_empty());
    assert_eq!(of(Some(310)), whole(0..200));
    let sources = [(); 3].map(|()| AttendingRows { rows: 2, seen: whole(0..200) });
    assert_eq!(worth_sharing(&sources, Sight::Around { window: None }), whole(0..200));
}

#[test]
fn texts_of_like_length_attend_at_once() {
    let text = |own: Range<usize>| AttendingRows { rows: own.len(), seen: vec![own] };
    let texts: Vec<AttendingRows> = (0..40).map(|at| text(at * 16..at * 16 + 9 + at % 8)).collect();
    let pieces = pieces(&texts, Sight::UpToOwn { window: None }, &[], 4);
    let rows = texts.iter().map(|text| text.rows).sum();
    let (stacks, places, results) = stacked(&pieces, (4, 16), rows);
    assert_eq!(stacks.len(), 1);
    assert_eq!(results, 40 * 16, "filled up to the longest");
    assert!(places.iter().all(Option::is_some));
}

#[test]
fn the_largest_stack_is_known_without_a_batch() {
    // Number of texts, their new tokens, and earlier positions, different for each text.
    let batches = [(1, 989, 0), (2, 481, 0), (20, 50, 0), (1, 1024, 0), (1, 8192, 0), (4, 2048, 0), (10, 100, 500)];
    for (heads, key_width) in [(9, 192), (32, 1024)] {
        for (texts, own, past) in batches {
            let len = own + past;
            let text =
                |at: usize| AttendingRows { rows: own, seen: std::iter::once(at * len..(at + 1) * len).collect() };
            let texts: Vec<AttendingRows> = (0..texts).map(text).collect();
            let pieces = pieces(&texts, Sight::UpToOwn { window: None }, &[], heads);
            let (stacks, ..) = stacked(&pieces, (heads, key_width), texts.len() * own);
            let pairs = |stack: &Vec<&StackPiece>| {
                let most = |of: fn(&StackPiece) -> usize| stack.iter().map(|piece| of(piece)).max().unwrap_or(0);
                stack.len() * most(|piece| piece.rows.len()) * most(|piece| piece.keys.len())
            };
            let exact = stacks.iter().map(pairs).max().unwrap_or(0);
            let size = BatchSize { rows: texts.len() * own, own, positions: len, head_rows: 1 };
            let shape = largest_stack(size, len, (heads, key_width));
            let known = shape.pieces * shape.rows * shape.keys;
            let name = format!("{} texts of {own} after {past}, {heads} heads: {known} of {exact}", texts.len());
            println!("{name}");
            assert!(exact <= known + known / 20 && known <= exact + exact / 3, "{name}");
        }
    }
}

/// Positions whose keys and values a layer copies for a batch: those of its rows to the pool, and gathered ones in
/// stacks.
fn copied(texts: &[AttendingRows]) -> usize {
    let (sight, heads) = (Sight::UpToOwn { window: None }, 32);
    let shared = worth_sharing(texts, sight);
    let pieces = pieces(texts, sight, &shared, heads);
    let rows = texts.iter().map(|text| text.rows).sum();
    let (stacks, ..) = stacked(&pieces, (heads, 8 * 128), rows);
    let stacked =
        stacks.iter().map(|stack| stack.len() * stack.iter().map(|piece| piece.keys.len()).max().unwrap_or(0));
    rows + stacked.sum::<usize>()
}

#[test]
fn comparisons_copy_their_own_keys_and_not_the_context() {
    // A job of 240 comparisons: 16 candidates of 60 tokens after a context of 400, and questions of 40. After the
    // context and the first candidates, each first candidate has 15 texts of 100 tokens.
    let (context, question) = (0..400, 40);
    let first = |candidate: usize| 400 + 60 * candidate..460 + 60 * candidate;
    let own = |text: usize| 1400 + 100 * text..1500 + 100 * text;
    let texts: Vec<AttendingRows> = (0..240)
        .map(|text| AttendingRows { rows: 60 + question, seen: vec![context.clone(), first(text / 15), own(text)] })
        .collect();
    // Batches of 1,024 tokens, as on `candle-cpu`, and of 8,192.
    for (at_once, expected) in [(10, 52_800), (80, 54_300)] {
        let after: usize = texts.chunks(at_once).map(copied).sum();
        // The alternative: each text's rows in a separate span, plus a copy of everything it sees.
        let before: usize = texts.iter().map(|text| text.rows + text.positions()).sum();
        println!("{at_once} texts at once: {after} positions are copied, {before} were");
        assert_eq!(before, 240 * (100 + 560));
        assert_eq!(after, expected, "in batches of {at_once}");
    }
}

#[test]
fn keys_are_copied_no_more_at_once_than_can_be_counted() {
    // One token of each of 600 texts, with 1,024 unshared positions each and 32 heads of 128.
    let text = |at: usize| AttendingRows { rows: 1, seen: std::iter::once(at * 1024..(at + 1) * 1024).collect() };
    let texts: Vec<AttendingRows> = (0..600).map(text).collect();
    let pieces = pieces(&texts, Sight::UpToOwn { window: None }, &[], 32);
    let (stacks, _, results) = stacked(&pieces, (32, 32 * 128), 600);
    assert_eq!(results, 600);
    let copied = |pieces: &Vec<&StackPiece>| pieces.iter().map(|piece| piece.keys.len() * 32 * 128).sum::<usize>();
    assert!(stacks.iter().all(|stack| copied(stack) <= 1 << 26), "{:?}", stacks.iter().map(copied).max());
    assert_eq!(stacks.len(), 600_usize.div_ceil(16));
}
