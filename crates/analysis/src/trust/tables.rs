//! Tables of guarantees.

use probity_lm::text::{counted, fixed, thousands};
use probity_stats::{NoSelection, Selection};

use super::{Promised, SystemMean, Trusted, TrustedPairs};
use crate::figures::{decimals, estimate, number};
use crate::table::{Cell, Table};
use crate::{cells, figures};

/// The tables with rows. `kept`: whether the run writes the pairs to label to a file that notes may name.
pub(crate) fn trust_tables(found: &[Trusted], kept: bool) -> Vec<Table> {
    let mut tables = vec![left_to_it(found, kept), reaches(found), with_help(found)];
    tables.retain(|table| !table.notes.is_empty());
    tables
}

fn heads(one: &Trusted) -> [String; 2] {
    [one.metric.clone(), one.attribute.clone().unwrap_or_else(|| "preference".to_owned())]
}

fn cells_of(one: &Trusted) -> impl Iterator<Item = Cell> {
    heads(one).map(Cell::from).into_iter()
}

fn percent(of: usize, all: usize) -> Cell {
    figures::percent((all > 0).then(|| of as f64 / all as f64))
}

/// Additional labels that may give a guarantee: `4 to 26`. Limited to the unlabelled items.
fn still_needed(pairs: &TrustedPairs) -> String {
    let Promised::Broken(_) = pairs.selection else { return "none".to_owned() };
    let left = pairs.unlabelled;
    let (least, most) = (pairs.labels_needed_at_least.unwrap_or(1), pairs.labels_still_needed);
    match most {
        _ if least > left => "more than are left".to_owned(),
        Some(most) if most <= least => thousands(most),
        Some(most) if most <= left => format!("{} to {}", thousands(least), thousands(most)),
        _ => format!("{} or more", thousands(least)),
    }
}

/// Note that the unlabelled items may not suffice; `None` if they do.
fn too_few_items(pairs: &TrustedPairs) -> Option<String> {
    let left = pairs.unlabelled;
    let most = pairs.labels_still_needed.filter(|most| *most > left)?;
    if left == 0 {
        return Some("all items are labelled: add samples".to_owned());
    }
    let are = if left == 1 { "1 item is".to_owned() } else { format!("{} items are", thousands(left)) };
    let if_so = match pairs.selection {
        Promised::Broken(NoSelection::Disagrees { .. }) => " if as many disagree as until now",
        _ => "",
    };
    Some(format!(
        "{} are needed{if_so}, one of each item, and {are} left unlabelled: add samples",
        counted(most, "more label"),
    ))
}

/// Where to find the pairs to label, and how to label them.
fn where_to_label(kept: bool) -> &'static str {
    if kept {
        "`probity label --tasks` of this run's to_label.jsonl shows them, and `probity meta --labels` reads the labels"
    } else {
        "with --out FOLDER they are written to FOLDER/to_label.jsonl, which `probity label --tasks` shows"
    }
}

fn left_to_it(found: &[Trusted], kept: bool) -> Table {
    let columns = [
        "metric", "attribute", "labels", "right", "need no human", "from a difference of", "right on these",
        "wrong at most", "labels still needed",
    ];
    let mut table = Table::new("Which pairs need no human", columns);
    for one in found.iter().filter(|one| one.pairs.labelled > 0) {
        let pairs = &one.pairs;
        let about = heads(one).join(", ");
        if let Promised::Broken(why @ NoSelection::TooFew { .. }) = &pairs.selection {
            let next = too_few_items(pairs).or_else(|| {
                let needed = counted(pairs.labels_still_needed?, "more pair");
                Some(format!("label at least {needed}, each of another item: {}", where_to_label(kept)))
            });
            table.note(format!("{about}: {why}{}", next.map(|next| format!("; {next}")).unwrap_or_default()));
            continue;
        }
        let alone = percent(pairs.labelled - pairs.disagreements, pairs.labelled);
        let selected = match &pairs.selection {
            Promised::Kept(Selection { threshold, labelled, disagreements, bound }) => [
                percent(pairs.kept, pairs.pairs),
                number(Some(*threshold)),
                percent(labelled - disagreements, *labelled),
                figures::percent(Some(*bound)),
            ],
            Promised::Broken(_) => [Cell::from("none"), Cell::Missing, Cell::Missing, Cell::Missing],
        };
        let needed = still_needed(pairs);
        table.push(cells_of(one).chain(cells![pairs.labelled, alone]).chain(selected).chain(cells![needed]));
        if let Promised::Broken(why) = &pairs.selection {
            table.note(format!("{about}: {why}"));
            table.notes.extend(too_few_items(pairs).map(|few| format!("{about}: {few}")));
        }
    }
    if table.rows.is_empty() {
        table.columns.clear();
        return table;
    }
    table.note(
        "People disagree on at most a share α of the pairs whose scores differ by so much, except with probability δ \
         over the labels drawn (Jung et al. 2024); labels: items of which one pair was drawn; right: share of these \
         on which the scores agree with people.",
    );
    if found.iter().any(|one| matches!(one.pairs.selection, Promised::Broken(_)) && one.pairs.unlabelled > 0) {
        table.note(
            "Labels still needed: on pairs of the surer half, which come first among the pairs to label. The smaller \
             number is enough if all agree, the larger if as many disagree as before.",
        );
    }
    if found.iter().any(|one| matches!(one.pairs.selection, Promised::Kept(_))) {
        table.note(
            "δ is over all labels that might have been drawn. For a judge that is too weak for α, only chance selects \
             pairs, and then people disagree with more than α in up to half of the cases (docs/promises.md).",
        );
    }
    table.note(
        "Valid only if you chose the number of labels before looking; adding labels until a promise holds misleads \
         more \
         often (docs/promises.md).",
    );
    table.note(if found.iter().any(|one| one.pairs.handed_back > 0) {
        format!("The other pairs need a human: {}.", where_to_label(kept))
    } else if found.iter().any(|one| one.pairs.unlabelled > 0) {
        "All unlabelled pairs need no human.".to_owned()
    } else {
        "All pairs are labelled. Add samples without gold to judge more.".to_owned()
    });
    table
}

fn reaches(found: &[Trusted]) -> Table {
    let columns = ["metric", "attribute", "items", "human score is about", "within"];
    let mut table = Table::new("Distance of human scores from these scores", columns);
    for one in found {
        match &one.scores {
            Some(Promised::Kept(found)) => {
                let sign = if found.slope < 0.0 { "−" } else { "+" };
                let line = format!("{} {sign} {} · score", fixed(found.intercept, 3), fixed(found.slope.abs(), 3));
                table.push(cells_of(one).chain(cells![found.items, line, format!("± {}", fixed(found.reach, 3))]));
            }
            Some(Promised::Broken(why)) => table.note(format!("{}: {why}", heads(one).join(", "))),
            None => {}
        }
    }
    if table.rows.is_empty() {
        table.columns.clear();
        return table;
    }
    table.note(
        "Split conformal prediction: the line is fitted on a fifth of the labelled items, the distance measured on the \
         others. It holds for a text of a new item.",
    );
    table
}

/// Number of systems with a shown mean, best first; summary.json has all.
const SHOWN_SYSTEMS: usize = 3;

fn with_help(found: &[Trusted]) -> Table {
    let columns = [
        "metric", "attribute", "system", "labels", "unlabelled", "labels only", "labels and scores", "width", "λ",
        "labels to decide",
    ];
    let mut table = Table::new("Means of systems from human labels and scores", columns);
    for one in found {
        for SystemMean { system, mean, labels_to_tell } in one.systems.iter().take(SHOWN_SYSTEMS).chain(&one.lead) {
            let (alone, interval) = mean.labels_alone;
            table.push(cells_of(one).chain(cells![
                system,
                mean.labels,
                mean.unlabelled,
                estimate(Some(alone), Some(interval)),
                estimate(Some(mean.value), Some(mean.interval)),
                decimals(Some(mean.width), 2),
                decimals(Some(mean.lambda), 2),
                *labels_to_tell,
            ]));
        }
    }
    if table.rows.is_empty() {
        return Table::default();
    }
    table.note(
        "Mean human score over all items, estimated from the labels and the scores of all items (PPI++, Angelopoulos \
         et \
         al. 2023). Width: relative to the interval of the labels only; at 1 the scores add nothing. Labels to decide: \
         how many would separate an undecided lead from 0; empty if all items would not.",
    );
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs without a guarantee.
    fn broken(why: NoSelection, needed: [Option<usize>; 2], unlabelled: usize) -> Trusted {
        let pairs = TrustedPairs {
            selection: Promised::Broken(why),
            pairs: 30,
            kept: 0,
            labelled: 12,
            disagreements: 2,
            level: 0,
            handed_back: unlabelled,
            unlabelled,
            labels_still_needed: needed[1],
            labels_needed_at_least: needed[0],
        };
        Trusted { metric: "compare".into(), attribute: None, pairs, scores: None, systems: Vec::new(), lead: None }
    }

    fn disagrees(needed: [Option<usize>; 2], unlabelled: usize) -> Table {
        let why = NoSelection::Disagrees { labelled: 11, disagreements: 2, bound: 0.4 };
        left_to_it(&[broken(why, needed, unlabelled)], true)
    }

    #[test]
    fn no_more_labels_are_asked_for_than_there_are_items_left() {
        for (needed, unlabelled, cell, more) in [
            ([Some(4), Some(26)], 40, "4 to 26", None),
            (
                [Some(4), Some(836)],
                18,
                "4 or more",
                Some("836 more labels are needed if as many disagree as until now"),
            ),
            ([Some(4), Some(836)], 1, "more than are left", Some("1 item is left unlabelled: add samples")),
            ([Some(4), None], 18, "4 or more", None),
            ([Some(4), Some(4)], 18, "4", None),
            ([Some(4), Some(26)], 0, "more than are left", Some("all items are labelled: add samples")),
        ] {
            let table = disagrees(needed, unlabelled);
            assert_eq!(table.rows[0].last(), Some(&Cell::from(cell)), "{needed:?} {unlabelled}");
            let notes = table.notes.join("\n");
            assert_eq!(notes.contains(": add samples"), more.is_some(), "{notes}");
            assert!(more.is_none_or(|more| notes.contains(more)), "{notes}");
        }
    }

    #[test]
    fn hints_name_a_file_to_label_only_where_one_is_written() {
        let why = NoSelection::TooFew { labels: 9, needed: 11 };
        let note = |unlabelled, kept| left_to_it(&[broken(why, [Some(2), Some(2)], unlabelled)], kept).notes.join("\n");
        let start = "compare, preference: at least 11 labelled samples are needed, you have 9; ";
        assert_eq!(
            note(18, true),
            format!(
                "{start}label at least 2 more pairs, each of another item: `probity label --tasks` of this run's \
                 to_label.jsonl shows them, and `probity meta --labels` reads the labels"
            )
        );
        let without = note(18, false);
        assert!(without.contains("with --out FOLDER they are written to FOLDER/to_label.jsonl"), "{without}");
        assert!(note(1, true).contains("2 more labels are needed, one of each item, and 1 item is left"));
        assert!(note(0, true).ends_with("all items are labelled: add samples"));
    }
}
