//! A judge's scores against the candidate that people preferred.

use std::cmp::Ordering;

use crate::equal::order;

/// Whether the preferred candidate has the best of a sample's scores: 1, ½ where rounding alone parts it from the best
/// of the others, else 0. `None` without another, or without a score of all candidates: one that has none might be the
/// best.
///
/// # Panics
/// Where `preferred` is not a place in `scores`.
#[must_use]
pub fn preference_point(scores: &[Option<f64>], preferred: usize) -> Option<f64> {
    let own = scores[preferred]?;
    let others: Option<Vec<f64>> =
        scores.iter().enumerate().filter(|(at, _)| *at != preferred).map(|(_, score)| *score).collect();
    Some(match order(own, others?.into_iter().reduce(f64::max)?) {
        Ordering::Greater => 1.0,
        Ordering::Equal => 0.5,
        Ordering::Less => 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_has_the_best_score_shares_it_or_has_not() {
        let point = |scores: &[f64]| preference_point(&scores.iter().copied().map(Some).collect::<Vec<_>>(), 1);
        assert_eq!(point(&[0.1, 0.9, 0.5]), Some(1.0));
        assert_eq!(point(&[0.1 + 0.2, 0.3, 0.1]), Some(0.5));
        assert_eq!(point(&[0.1, 0.3, 0.5]), Some(0.0));
    }

    #[test]
    fn without_a_rival_or_a_score_of_each_nothing_is_said() {
        assert_eq!(preference_point(&[Some(1.0)], 0), None);
        assert_eq!(preference_point(&[Some(1.0), None, Some(0.5)], 0), None);
        assert_eq!(preference_point(&[None, Some(0.5)], 0), None);
    }
}
