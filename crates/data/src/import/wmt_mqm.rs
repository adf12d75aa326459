//! `MQM` ratings of WMT translations (Freitag et al., 2021), in the form of WMT 22: a tab-separated table of errors.
//!
//! Columns are `system`, `doc`, `doc_id`, `seg_id`, `rater`, `source`, `target`, `category` and `severity`. Each row is
//! one error marked by a rater (`<v>` … `</v>`, removed from the texts), or no error. Each segment becomes a sample and
//! each system a candidate; systems named `ref…` are references as well. The score `mqm` is the mean over raters of the
//! negated sum of their errors: 5 for a major error (25 for a non-translation), 1 for a minor error, 0.1 for minor
//! punctuation.

use std::collections::BTreeMap;

use super::{Importer, Malformed};
use crate::line_error::excerpt;
use crate::{Candidate, Sample};

pub(super) const IMPORTER: Importer = Importer {
    name: "wmt-mqm",
    summary: "WMT with MQM ratings: source segments × translations, errors as a score",
    convert,
};

const COLUMNS: [&str; 9] = ["system", "doc", "doc_id", "seg_id", "rater", "source", "target", "category", "severity"];

/// One system's translation of a segment.
#[derive(Default)]
struct RatedTranslation {
    text: String,
    /// Keyed by rater.
    penalties: BTreeMap<String, f64>,
}

fn convert(bytes: &[u8]) -> Result<Vec<Sample>, Malformed> {
    let malformed = |path: String, why: &str| Malformed { path, why: why.to_owned() };
    let text = std::str::from_utf8(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    let text = text.map_err(|_| malformed(String::new(), "it is not UTF-8"))?;
    let mut lines = text.lines().enumerate();
    let head: Vec<&str> = lines.next().map(|(_, head)| head.split('\t').map(str::trim).collect()).unwrap_or_default();
    let place = |name: &str| {
        // Name of the column in later files.
        let other = if name == "seg_id" { "globalSegId" } else { name };
        head.iter().position(|column| *column == name || *column == other)
    };
    let mut places = Vec::with_capacity(COLUMNS.len());
    for name in COLUMNS {
        places.push(place(name).ok_or_else(|| malformed("line 1".into(), &format!("no column `{name}`")))?);
    }
    let mut segments: Vec<(Sample, Vec<(String, RatedTranslation)>)> = Vec::new();
    let mut positions = BTreeMap::new();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let cells: Vec<&str> = line.split('\t').collect();
        if cells.len() < head.len() {
            return Err(malformed(
                format!("line {}", number + 1),
                &format!("{} columns, not {}", cells.len(), head.len()),
            ));
        }
        let [system, doc, _, segment, rater, source, target, category, severity] =
            std::array::from_fn(|k| cells[places[k]].trim());
        let position = *positions.entry((doc.to_owned(), segment.to_owned())).or_insert(segments.len());
        if position == segments.len() {
            segments.push((segment_of(doc, segment, &unmarked(source)), Vec::new()));
        }
        let systems = &mut segments[position].1;
        let at = systems.iter().position(|(name, _)| name == system).unwrap_or(systems.len());
        if at == systems.len() {
            // Each row marks its own error in the text. All rows are equal without the marks, so the first text is
            // kept.
            systems
                .push((system.to_owned(), RatedTranslation { text: unmarked(target), ..RatedTranslation::default() }));
        }
        let penalty = penalty(category, severity).ok_or_else(|| {
            malformed(
                format!("line {}", number + 1),
                &format!("unknown severity `{}`; MQM has Major, Minor and No-error", excerpt(severity)),
            )
        })?;
        *systems[at].1.penalties.entry(rater.to_owned()).or_default() += penalty;
    }
    Ok(segments.into_iter().map(|(sample, systems)| finished(sample, systems)).collect())
}

fn segment_of(doc: &str, segment: &str, source: &str) -> Sample {
    Sample {
        id: format!("{doc}:{segment}"),
        context: source.to_owned().into(),
        instruction: Some("Translate the text.".to_owned().into()),
        texts: BTreeMap::new(),
        candidates: Vec::new(),
        references: Vec::new(),
        preference: None,
    }
}

fn finished(sample: Sample, systems: Vec<(String, RatedTranslation)>) -> Sample {
    let references = systems
        .iter()
        .filter(|(name, _)| name.starts_with("ref"))
        .map(|(_, rated)| rated.text.as_str().into())
        .collect();
    let candidate = |(id, rated): (String, RatedTranslation)| {
        let mean = rated.penalties.values().sum::<f64>() / rated.penalties.len().max(1) as f64;
        // A translation without errors has 0, not −0.
        Candidate { id, text: rated.text.into(), scores: BTreeMap::from([("mqm".to_owned(), 0.0 - mean)]) }
    };
    Sample { candidates: systems.into_iter().map(candidate).collect(), references, ..sample }
}

fn unmarked(text: &str) -> String {
    text.replace("<v>", "").replace("</v>", "")
}

/// `None` for a severity that MQM does not define.
fn penalty(category: &str, severity: &str) -> Option<f64> {
    let (category, severity) = (category.to_ascii_lowercase(), severity.to_ascii_lowercase());
    Some(match severity.as_str() {
        // Before plain major errors, which would match as well.
        "major" | "critical" if category.starts_with("non-translation") => 25.0,
        "major" | "critical" => 5.0,
        "minor" if category.starts_with("fluency/punctuation") => 0.1,
        "minor" => 1.0,
        "no-error" | "no error" | "neutral" | "" => 0.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::refusal;
    use super::*;

    #[test]
    fn errors_of_all_raters_become_a_score_by_system() {
        let head = COLUMNS.join("\t");
        let row = |system: &str, rater: &str, target: &str, category: &str, severity: &str| {
            [system, "news-1", "1", "7", rater, "源", target, category, severity].join("\t")
        };
        let rows = [
            head,
            row("online-A", "r1", "A <v>source</v>.", "Accuracy/Mistranslation", "Major"),
            row("online-A", "r1", "A source<v>.</v>", "Fluency/Punctuation", "Minor"),
            row("online-A", "r2", "A source.", "No-error", "No-error"),
            row("refA", "r1", "The \"source\".", "No-error", "No-error"),
            row("online-B", "r1", "Dog.", "Non-translation!", "Major"),
        ];
        let samples = IMPORTER.import_bytes(rows.join("\n").as_bytes(), "f.tsv").expect("importable");
        let one = &samples[0];
        assert_eq!(
            (one.id.as_str(), &*one.context, &one.references[..]),
            ("news-1:7", "源", &["The \"source\".".into()][..])
        );
        let scores: Vec<(&str, &str, f64)> =
            one.candidates.iter().map(|c| (c.id.as_str(), &*c.text, c.scores["mqm"])).collect();
        assert_eq!(
            scores,
            [("online-A", "A source.", -2.55), ("refA", "The \"source\".", 0.0), ("online-B", "Dog.", -25.0)]
        );
        assert!(refusal("wmt-mqm", "system\tdoc\n").contains("no column `doc_id`"));
    }
}
