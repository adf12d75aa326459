//! The metric that agrees best with human judgements.

use probity_lm::text::fixed;
use probity_stats::{equalised, order};
use serde_json::json;

use super::{Conclusion, Trust};
use crate::thresholds::SIGNIFICANT;

/// One conclusion about several metrics: which agree best with people, with what certainty, and which is next.
///
/// Each conclusion in `found` compares one metric with the same gold; its `about` is the metric's name. `None` if
/// `found` is empty. `parts` are the same figures for secondary values of metrics, such as recall.
pub fn best_agreement(about: Option<&str>, found: Vec<Conclusion>, parts: &[(String, f64)]) -> Option<Conclusion> {
    let agreement = |one: &Conclusion| {
        let value = ["spearman", "accuracy"].iter().find_map(|figure| one.figures[*figure].as_f64());
        value.unwrap_or(f64::NEG_INFINITY)
    };
    // With too few preferences to tell, the interval must still exclude chance.
    let is_clear = |one: &Conclusion| {
        one.figures["chance"].as_f64().is_none_or(|chance| one.figures["interval"]["low"].as_f64() > Some(chance))
    };
    let agrees =
        |one: &Conclusion| one.trust != Trust::Unreliable && !one.figures["interval"].is_null() && is_clear(one);
    let name = |one: &Conclusion| one.about.clone().unwrap_or_default();
    // Values that differ by rounding alone count as equal.
    let values = equalised(&found.iter().map(agreement).collect::<Vec<_>>());
    let mut ranked: Vec<(f64, Conclusion)> = values.into_iter().zip(found).collect();
    // Ties are sorted by name, so that the sentence does not depend on the order of the files.
    ranked.sort_by(|(a_value, a), (b_value, b)| {
        let level = agrees(b).cmp(&agrees(a)).then(b_value.total_cmp(a_value));
        level.then_with(|| a.about.cmp(&b.about))
    });
    let (best_value, best) = ranked.first()?;
    let is_level = |(value, one): &&(f64, Conclusion)| value == best_value && agrees(one) == agrees(best);
    let level = ranked.iter().take_while(is_level).count();
    let (all, clear) = (ranked.len(), ranked.iter().filter(|(_, one)| agrees(one)).count());
    let names: Vec<String> = ranked[..level].iter().map(|(_, one)| name(one)).collect();
    let level_text = if level == 1 { "" } else { " (tied)" };
    let first = match clear {
        0 => format!("None of {all} metrics agrees with people beyond chance; first: {}{level_text}", names.join(", ")),
        _ => format!("Best agreement with people of {all} metrics: {}{level_text}", names.join(", ")),
    };
    let of_first = if level == 1 { String::new() } else { format!("{}: ", name(best)) };
    let next = ranked.get(level).map(|(_, next)| {
        let value = agreement(next);
        let value = if value.is_finite() { format!(" ({})", fixed(value, 3)) } else { String::new() };
        format!(". Next: {}{value}", name(next))
    });
    let others = if clear > 0 { format!("; {clear} of {all} agree beyond chance") } else { String::new() };
    let better = parts.iter().filter(|(_, value)| order(*value, *best_value).is_gt());
    let better = better.max_by(|(a_name, a), (b_name, b)| a.total_cmp(b).then_with(|| b_name.cmp(a_name)));
    let better = better
        .map(|(part, value)| format!(". A part of a metric is better: {part} ({})", fixed(*value, 3)))
        .unwrap_or_default();
    let (about, winner, says) = if all == 1 {
        let about = about.into_iter().chain(best.about.as_deref()).collect::<Vec<_>>().join(", ");
        (about, best.winner_text().map(str::to_owned), format!("{}{better}", best.agreement_text()))
    } else {
        let of_best = best.agreement_text();
        let says = format!("{first}. {of_first}{of_best}{}{others}{better}", next.unwrap_or_default());
        let winner = best.winner_text().map(|winner| format!("By {}: {winner}", name(best)));
        (about.unwrap_or_default().to_owned(), winner, says)
    };
    let (says, agreement) = winner.map_or((says.clone(), None), |winner| (winner, Some(says)));
    let about = Some(about).filter(|about| !about.is_empty());
    // The best of many excludes chance more often than a metric chosen in advance: Bonferroni correction.
    let by_selection = best.figures["p"].as_f64().filter(|p| p * all as f64 > SIGNIFICANT);
    let met = best.figures.get("head_to_head").cloned();
    let (trust, because) = match by_selection {
        Some(p) if best.trust == Trust::Reliable && all > 1 => {
            let why = format!("the best of {all} may be first by chance: p {} times {all}", fixed(p, 4));
            (Trust::Caution, why)
        }
        _ => (best.trust, best.because.clone()),
    };
    let found: Vec<Conclusion> = ranked.into_iter().map(|(_, one)| one).collect();
    let mut figures = json!({ "best_first": found });
    if let Some(met) = met {
        figures["head_to_head"] = met;
    }
    Some(Conclusion { about, says, agreement, trust, because, figures })
}
