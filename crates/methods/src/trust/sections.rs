//! What labels promise, as tables for people.

use probity_lm::text::{fixed, thousands};
use probity_stats::{Interval, NoSelection, Selection};

use super::{Promised, SystemMean, Trusted};
use crate::Section;

/// The tables that have rows.
pub fn trust_sections(found: &[Trusted]) -> Vec<Section> {
    let mut sections = vec![left_to_it(found), reaches(found), with_help(found)];
    sections.retain(|section| !section.notes.is_empty());
    sections
}

fn heads(one: &Trusted) -> [String; 2] {
    [one.metric.clone(), one.attribute.clone().unwrap_or_else(|| "preference".to_owned())]
}

fn percent(of: usize, all: usize) -> String {
    if all == 0 { "–".to_owned() } else { format!("{:.1} %", 100.0 * of as f64 / all as f64) }
}

fn estimate(value: f64, Interval { low, high }: Interval) -> String {
    format!("{} [{}, {}]", fixed(value, 3), fixed(low, 3), fixed(high, 3))
}

fn left_to_it(found: &[Trusted]) -> Section {
    let columns = [
        "metric", "attribute", "labels", "right alone", "left to it", "from a difference of", "right on these",
        "wrong at most", "labels still needed",
    ];
    let mut section = Section::new("Which pairs can be left to it", columns);
    for one in found.iter().filter(|one| one.pairs.labelled > 0) {
        let pairs = &one.pairs;
        if let Promised::Broken(why @ NoSelection::TooFew { .. }) = &pairs.selection {
            let next = match pairs.labels_still_needed {
                _ if pairs.unlabelled == 0 => "; all items are labelled, so more samples are needed".to_owned(),
                Some(needed) => {
                    format!("; label {needed} more, or more still: `probity label` asks about to_label.jsonl")
                }
                None => String::new(),
            };
            section.note(format!("{}: {why}{next}", heads(one).join(", ")));
            continue;
        }
        let alone = percent(pairs.labelled - pairs.disagreements, pairs.labelled);
        let selected = match &pairs.selection {
            Promised::Kept(Selection { threshold, labelled, disagreements, bound }) => [
                percent(pairs.kept, pairs.pairs),
                fixed(*threshold, 3),
                percent(labelled - disagreements, *labelled),
                format!("{:.1} %", 100.0 * bound),
            ],
            Promised::Broken(_) => ["none", "–", "–", "–"].map(str::to_owned),
        };
        let needed = match (&pairs.selection, pairs.labels_still_needed) {
            (Promised::Kept(_), _) => "none".to_owned(),
            (Promised::Broken(_), needed) => match (pairs.labels_needed_at_least, needed) {
                (None, needed) => needed.map_or_else(|| "–".to_owned(), thousands),
                (Some(least), Some(needed)) if least >= needed => thousands(needed),
                (Some(least), Some(needed)) => format!("{} to {}", thousands(least), thousands(needed)),
                (Some(least), None) => format!("{} or more", thousands(least)),
            },
        };
        section.push(heads(one).into_iter().chain([pairs.labelled.to_string(), alone]).chain(selected).chain([needed]));
        if let Promised::Broken(why) = &pairs.selection {
            section.note(format!("{}: {why}", heads(one).join(", ")));
        }
        if pairs.labels_still_needed.is_some_and(|needed| needed > pairs.unlabelled) {
            section.note(format!(
                "{}: of an item one label counts, and {} left without one; more samples are needed",
                heads(one).join(", "),
                if pairs.unlabelled == 1 { "1 is".to_owned() } else { format!("{} are", thousands(pairs.unlabelled)) },
            ));
        }
    }
    if section.rows.is_empty() {
        section.columns.clear();
        return section;
    }
    section.note(
        "Of pairs of candidates whose scores are so far apart people see no more than α otherwise, but for a probability \
         δ that the labels mislead (Jung et al. 2024); labels: items of which a pair was drawn, and right alone: on these. Labels still needed: \
         from so many, if they are of the surest pairs and all agree, to so many, if as many disagree as until now.",
    );
    if found.iter().any(|one| matches!(one.pairs.selection, Promised::Kept(_))) {
        section.note(
            "δ is over all labels that might have been drawn. Of a judge that is too weak for α chance alone has anything \
             left to it, and where it has, people disagree with more than α in up to half of the cases (docs/promises.md).",
        );
    }
    section.note(
        "δ is of one look at labels whose number was fixed beforehand: who asks for more until something is trusted is \
         misled more often (docs/promises.md).",
    );
    section.note(if found.iter().any(|one| one.pairs.handed_back > 0) {
        "All other pairs that nobody has seen are in to_label.jsonl, which `probity label` asks people about."
    } else if found.iter().any(|one| one.pairs.unlabelled > 0) {
        "All pairs that nobody has seen can be left to it."
    } else {
        "No pair is left that nobody has seen, so there is nothing to label; judge samples without gold beside these."
    });
    section
}

fn reaches(found: &[Trusted]) -> Section {
    let columns = ["metric", "attribute", "items", "people's score is about", "within"];
    let mut section = Section::new("How far people's scores lie from it", columns);
    for one in found {
        match &one.scores {
            Some(Promised::Kept(found)) => {
                let sign = if found.slope < 0.0 { "−" } else { "+" };
                let line = format!("{} {sign} {} · score", fixed(found.intercept, 3), fixed(found.slope.abs(), 3));
                let cells = [found.items.to_string(), line, format!("± {}", fixed(found.reach, 3))];
                section.push(heads(one).into_iter().chain(cells));
            }
            Some(Promised::Broken(why)) => section.note(format!("{}: {why}", heads(one).join(", "))),
            None => {}
        }
    }
    if section.rows.is_empty() {
        section.columns.clear();
        return section;
    }
    section.note(
        "By split conformal prediction: the line is of a fifth of the items with labels, the reach of the others; it is \
         of a text of a new item.",
    );
    section
}

/// Of so many systems, the best ones, the mean is shown; summary.json has all.
const SHOWN_SYSTEMS: usize = 3;

fn with_help(found: &[Trusted]) -> Section {
    let columns = [
        "metric", "attribute", "system", "labels", "without", "labels alone", "with its help", "width", "λ",
        "labels to tell",
    ];
    let mut section = Section::new("Means of systems, from labels and with its help", columns);
    for one in found {
        for SystemMean { system, mean, labels_to_tell } in one.systems.iter().take(SHOWN_SYSTEMS).chain(&one.lead) {
            let (alone, interval) = mean.labels_alone;
            let cells = [
                system.clone(),
                mean.labels.to_string(),
                mean.unlabelled.to_string(),
                estimate(alone, interval),
                estimate(mean.value, mean.interval),
                fixed(mean.width, 2),
                fixed(mean.lambda, 2),
                labels_to_tell.map_or_else(String::new, thousands),
            ];
            section.push(heads(one).into_iter().chain(cells));
        }
    }
    if section.rows.is_empty() {
        return Section::default();
    }
    section.note(
        "People's mean over all items, from those with labels and the scores of all (PPI++, Angelopoulos et al. 2023). \
         Width: of its interval against that of the labels alone; 1 says that the scores bring nothing. \
         Labels to tell: of a lead that its interval leaves open, how many would tell it from 0; nothing where all items do not.",
    );
    section
}
