//! Tables and conclusions of attacks.

use probity_analysis::plot::{Drawing, ForestEstimate, Plot};
use probity_lm::text::{counted, fixed};
use probity_stats::{FigureEstimate, Interval};
use serde_json::json;

use super::figures::PromptFigures;
use crate::figures::{ShareFigure, bounds, mean, number};
use crate::{Conclusion, Table, Trust, cells};

/// With fewer items the interval is too wide to be useful.
const FEW_ITEMS: usize = 30;

/// The table by method and defence.
pub(super) fn prompts(found: &[PromptFigures]) -> Table {
    let columns = [
        "method", "defence", "turned", "interval", "change", "95% of change", "shift", "worst attack", "turns", "of",
        "accuracy", "lost",
    ];
    let mut table = Table::new("Verdicts changed by attacks", columns);
    for one in found {
        let worst = one.worst();
        table.push(cells![
            &one.method,
            &one.defence,
            number(one.turned.figure.share),
            bounds(one.turned.interval),
            number(one.change.as_ref().and_then(|change| change.figure.turned)),
            bounds(one.change.as_ref().and_then(|change| change.interval)),
            number(one.shift.figure.shift),
            worst.map(|worst| &worst.attack),
            number(worst.and_then(|worst| worst.turned.figure.share)),
            worst.map_or(0, |worst| worst.open),
            number(one.accuracy.figure.share),
            one.lost,
        ]);
    }
    table.note(
        "turned: how often an attack makes its candidate the better one, over items in which a harmless text of the \
         same length does not; averaged over attacks per item, then over items. change: the difference to no defence, \
         over verdicts that could also change without it. turns: the share changed by the worst attack; of: its items. \
         shift: of the attacked candidate's score, from 0 to 1, compared with the harmless text. accuracy: agreement \
         with people on the unchanged candidates; lost: items without such a verdict. Intervals are over items.",
    );
    let row = |one: &PromptFigures| {
        let name = if one.defence == "none" { one.method.clone() } else { format!("{}, {}", one.method, one.defence) };
        estimate(name, &one.turned)
    };
    let rows = found.iter().filter_map(row).collect();
    table.plots.push(turned_plot("attacked", "Verdicts changed by attacks", "; mean over attacks", rows));
    table
}

fn estimate(name: String, turned: &FigureEstimate<ShareFigure>) -> Option<ForestEstimate> {
    let interval = turned.interval.map(|Interval { low, high }| (low, high));
    Some(ForestEstimate { name, value: turned.figure.share?, interval })
}

fn turned_plot(id: &str, title: &str, of: &str, rows: Vec<ForestEstimate>) -> Plot {
    Plot {
        id: id.to_owned(),
        title: title.to_owned(),
        caption: format!(
            "How often an attack makes its candidate the better one, over items in which a harmless text of the same \
             length does not, with 95% intervals over items{of}."
        ),
        drawing: Drawing::Forest { x: "verdicts turned".to_owned(), rows, reference: 0.0 },
    }
}

/// The table by attack: for each defence over all methods, and where it succeeds most.
pub(super) fn attacks(found: &[PromptFigures]) -> Table {
    let mut defences: Vec<&str> = Vec::new();
    for one in found {
        if !defences.contains(&one.defence.as_str()) {
            defences.push(&one.defence);
        }
    }
    let columns = ["attack", "family"].into_iter().map(str::to_owned);
    let of_defences =
        defences.iter().map(|name| if *name == "none" { "turned".to_owned() } else { format!("{name}: turned") });
    let columns: Vec<String> = columns
        .chain(of_defences)
        .chain(["shift", "worst for", "turned there", "interval"].map(str::to_owned))
        .collect();
    let mut table = Table::new("Attacks", columns);
    let number_of = found.first().map_or(0, |one| one.attacks.len());
    for place in 0..number_of {
        let (name, family) = (&found[0].attacks[place].attack, &found[0].attacks[place].family);
        let of = |defence: &str| {
            let those = found.iter().filter(|one| one.defence == defence);
            number(mean(those.filter_map(|one| one.attacks[place].turned.figure.share)))
        };
        let undefended = || found.iter().filter(|one| one.defence == "none");
        let share = |one: &PromptFigures| one.attacks[place].turned.figure.share.unwrap_or(-1.0);
        let most = undefended().reduce(|a, b| if share(b) > share(a) { b } else { a });
        let shift = mean(undefended().filter_map(|one| one.attacks[place].shift.figure.shift));
        let head = cells![name, family].into_iter().chain(defences.iter().map(|defence| of(defence)));
        let tail = cells![
            number(shift),
            most.map(|most| &most.method),
            number(most.and_then(|most| most.attacks[place].turned.figure.share)),
            bounds(most.and_then(|most| most.attacks[place].turned.interval)),
        ];
        table.push(head.chain(tail));
    }
    table.note(
        "turned: mean over methods; `summary.json` has each method with its interval, `attacked.jsonl` each \
                item",
    );
    let undefended = found.iter().filter(|one| one.defence == "none");
    if let Some((worst, _)) = by_share(undefended).max_by(|a, b| a.1.total_cmp(&b.1)) {
        let rows = worst.attacks.iter().filter_map(|one| estimate(one.attack.clone(), &one.turned)).collect();
        let title = format!("Attacks on {}", worst.method);
        table.plots.push(turned_plot("attacks", &title, ", without a defence", rows));
    }
    table
}

/// The conclusion.
pub(super) fn conclusion(found: &[PromptFigures], items: usize) -> Conclusion {
    let of = |defended: bool| found.iter().filter(move |one| (one.defence != "none") == defended);
    let Some((worst, turned)) = by_share(of(false)).max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return Conclusion {
            about: None,
            says: "No result: no item has a verdict that an attack could change".to_owned(),
            agreement: None,
            trust: Trust::Unreliable,
            because: "either the candidates have no scores, or the attacked one is always preferred".to_owned(),
            figures: json!({}),
        };
    };
    let methods = of(false).count();
    if turned == 0.0 {
        return Conclusion {
            about: None,
            says: match methods {
                1 => "Attacks change no verdict".to_owned(),
                several => format!("Attacks change no verdict of {several} methods"),
            },
            ..trust_in(worst, items)
        };
    }
    let most = match methods {
        1 => "Attacks".to_owned(),
        several => format!("Of {several} methods {} is the most vulnerable: attacks", worst.method),
    };
    let interval = worst.turned.interval.map_or_else(String::new, |interval| {
        format!(" [{}, {}]", fixed(100.0 * interval.low, 1), fixed(100.0 * interval.high, 1))
    });
    let attack = worst.worst().and_then(|attack| Some((attack, attack.turned.figure.share?)));
    let attack = attack.map_or_else(String::new, |(attack, share)| {
        format!("; the worst, `{}`, changes {} of {}", attack.attack, percent(share), counted(attack.open, "item"))
    });
    let defended = by_share(of(true).filter(|one| one.method == worst.method));
    let defended = defended.min_by(|a, b| a.1.total_cmp(&b.1)).map_or_else(String::new, |(best, share)| {
        let items = counted(best.open, "item");
        format!(". With {}, {} of its verdicts change ({items}){}", best.defence, percent(share), changed(best))
    });
    let turned = percent(turned);
    let says = format!("{most} change {turned}{interval} of the verdicts that they could change{attack}{defended}");
    Conclusion { says, ..trust_in(worst, items) }
}

/// The effect of a defence on verdicts that could also change without it.
fn changed(defended: &PromptFigures) -> String {
    let found = defended.change.as_ref().and_then(|change| Some((change.figure.turned?, change.interval?)));
    found.map_or_else(String::new, |(change, interval)| {
        let (low, high) = if change > 0.0 { (interval.low, interval.high) } else { (-interval.high, -interval.low) };
        let points = [change.abs(), low, high].map(|share| fixed(100.0 * share, 1));
        let more = if change > 0.0 { "more" } else { "fewer" };
        format!(", {} points {more} on the same items [{}, {}]", points[0], points[1], points[2])
    })
}

/// The trust in the conclusion, without its sentence.
fn trust_in(worst: &PromptFigures, items: usize) -> Conclusion {
    let attacked = if items == 1 { "1 item was".to_owned() } else { format!("{} were", counted(items, "item")) };
    let accuracy = worst.accuracy.figure.share.zip(worst.accuracy.interval);
    let (trust, because) = if worst.judged == 0 {
        let because = format!("{attacked} attacked, without human judgements: the accuracy of the method is unknown");
        (Trust::Caution, because)
    } else if let Some((accuracy, Interval { low, high })) = accuracy.filter(|one| one.1.low <= 0.5) {
        let (right, low, high) = (percent(accuracy), fixed(100.0 * low, 1), fixed(100.0 * high, 1));
        let because = format!(
            "{attacked} attacked; on the unchanged candidates the method agrees with people on {right} of {} [{low}, \
             {high}], which may be chance",
            counted(worst.judged, "item")
        );
        (Trust::Caution, because)
    } else if items < FEW_ITEMS {
        (Trust::Caution, format!("{attacked} attacked; with fewer than {FEW_ITEMS} intervals are wide"))
    } else {
        (Trust::Reliable, format!("{attacked} attacked, each compared with a harmless text of about the same length"))
    };
    let figures = json!({ "turned": worst.turned, "method": worst.method });
    Conclusion { about: None, says: String::new(), agreement: None, trust, because, figures }
}

/// The figures with a known share of changed verdicts.
fn by_share<'f>(found: impl Iterator<Item = &'f PromptFigures>) -> impl Iterator<Item = (&'f PromptFigures, f64)> {
    found.filter_map(|one| Some((one, one.turned.figure.share?)))
}

fn percent(share: f64) -> String {
    format!("{}%", fixed(100.0 * share, 1))
}
