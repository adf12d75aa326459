//! A metric's scores joined with gold, as input for the guarantees.

use probity_data::Preference;

use super::align::AlignedScores;
use super::people::{GoldScores, HumanPair};
use crate::trust::{JudgedItems, JudgedText};

/// Joins scores with gold. For preferences, gold is 1 for the preferred candidate and 0 for the others, whose mutual
/// order is unknown.
pub(crate) fn judged_items<'a>(
    one: &AlignedScores<'a>,
    gold: &'a GoldScores,
    attribute: Option<&str>,
) -> JudgedItems<'a> {
    let mut items = JudgedItems::default();
    for row in &one.metric.rows {
        let Some(score) = row.score else { continue };
        let people = gold.find(&row.item, row.candidate.as_deref()).and_then(|(item, candidate)| {
            let (item, candidate) = (&gold.items[item], &gold.items[item].candidates[candidate]);
            match (attribute, &item.preference) {
                (Some(attribute), _) => candidate.scores.get(attribute).copied(),
                (None, Some(Preference::Candidate(id))) => {
                    Some(f64::from(u8::from(candidate.id.as_deref() == Some(id.as_str()))))
                }
                (None, _) => None,
            }
        });
        let candidate = row.candidate.as_deref().unwrap_or_default();
        items.add(&row.item, JudgedText { candidate, score: one.metric.direction.upwards(score), people });
    }
    if attribute.is_none() {
        let is_tie = |item: &str| gold.item(item).is_some_and(|item| item.preference == Some(Preference::Tie));
        items.level_where(is_tie);
    }
    for pair in gold.labelled.iter().filter(|pair| pair.attribute.as_deref() == attribute) {
        match pair.verdict {
            HumanPair::First => items.prefer(&pair.item, &pair.i, &pair.j),
            HumanPair::Second => items.prefer(&pair.item, &pair.j, &pair.i),
            HumanPair::Level => items.level(&pair.item, &pair.i, &pair.j),
        }
    }
    items
}
