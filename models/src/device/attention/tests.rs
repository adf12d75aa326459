use super::stacks::SeenPairs;
use super::*;
use crate::relative::RelativeBuckets;

fn piece(rows: Range<usize>, first: usize, keys: Range<usize>) -> Piece {
    Piece { rows, first, keys: keys.clone().zip(keys).collect() }
}

fn seen(pieces: &[&Piece], shape: (usize, usize), sight: Sight) -> Vec<Vec<String>> {
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
    let of = |piece: &Piece, sight| -> Vec<Vec<f32>> {
        let seen = SeenPairs::new(&[piece], (piece.rows.len(), piece.keys.len()), sight, &Device::Cpu).expect("few");
        let places = bias.places(&seen.distances().expect("few"), &seen.is_seen().expect("few")).expect("places");
        bias.summands.index_select(&places, 1).and_then(|x| x.to_vec2()).expect("a matrix")
    };
    let expected = |head: usize, row: isize, keys: Range<isize>| -> Vec<f32> {
        keys.map(|key| table[buckets.bucket(key - row) * 2 + head]).collect()
    };
    // The second piece of a text of five: its rows are the fourth and the fifth.
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
    // The second stretch would save a hundred positions.
    assert_eq!(of(None), whole(0..200));
    // From its last row the first text sees no more than 250 positions back: not the whole stretch.
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
    let (stacks, places, results) = stacked(&pieces, 4, rows);
    assert_eq!(stacks.len(), 1);
    assert_eq!(results, 40 * 16, "filled up to the longest");
    assert!(places.iter().all(Option::is_some));
}
