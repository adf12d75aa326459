//! Usable and unusable labels, and what the first lines report about them.

use super::*;
use crate::{gold, testing};
use probity_data::Preference;

/// Human judgement of a sample and the judge's scores.
#[derive(Clone, Default)]
struct Row {
    scores: Vec<Option<f64>>,
    gold: Option<Vec<f64>>,
    preference: Option<Preference>,
}

impl Row {
    fn new(scores: &[f64]) -> Self {
        Self { scores: scores.iter().copied().map(Some).collect(), ..Self::default() }
    }

    fn unscored(self) -> Self {
        Self { scores: vec![None; self.scores.len()], ..self }
    }

    fn gold(self, gold: &[f64]) -> Self {
        Self { gold: Some(gold.to_vec()), ..self }
    }

    fn prefers(self, id: &str) -> Self {
        let preference = if id == "tie" { Preference::Tie } else { Preference::Candidate(id.to_owned()) };
        Self { preference: Some(preference), ..self }
    }
}

fn samples(ids: &[&str], rows: &[Row]) -> Vec<Sample> {
    let of_row = |(k, row): (usize, &Row)| {
        let mut sample = testing::sample(&format!("s{k}"), &vec![0.0; ids.len()]);
        for (place, candidate) in sample.candidates.iter_mut().enumerate() {
            ids[place].clone_into(&mut candidate.id);
            candidate.scores.clear();
            if let Some(gold) = &row.gold {
                candidate.scores.insert("coherence".to_owned(), gold[place]);
            }
        }
        Sample { preference: row.preference.clone(), ..sample }
    };
    rows.iter().enumerate().map(of_row).collect()
}

fn conclusion(ids: &[&str], rows: &[Row]) -> Conclusion {
    let samples = samples(ids, rows);
    let scores: Vec<Vec<Option<f64>>> = rows.iter().map(|row| row.scores.clone()).collect();
    let figures = rows.iter().any(|row| row.gold.is_some()).then(|| gold::against(&samples, "coherence", &scores));
    let case =
        ConclusionCase { samples: &samples, scores: &scores, gold: figures.as_ref(), ..ConclusionCase::default() };
    ConclusionCase { attribute: Some("coherence"), preferences: true, ..case }.conclusion()
}

fn agreement(found: &Conclusion) -> &str {
    found.agreement.as_deref().unwrap_or_else(|| panic!("{found:?}"))
}

const TWO: [&str; 2] = ["gpt", "local"];
const GPT: [f64; 2] = [4.0, 3.0];

fn rows(number: usize, row: &Row) -> Vec<Row> {
    vec![row.clone(); number]
}

#[test]
fn preferences_count_beside_samples_with_gold_scores() {
    let mut all = rows(10, &Row::new(&GPT).gold(&[4.0, 2.0]));
    all.extend(rows(10, &Row::new(&GPT).prefers("local")));
    let found = conclusion(&TWO, &all);
    assert!(found.says.contains("by the labels of all samples, gpt wins 50.0%"), "{}", found.says);
    assert!(
        agreement(&found)
            .ends_with(". The judge is right on 0 of your 10 preferences: 0.0% [0.0, 30.8]; chance is 50%"),
        "{found:?}"
    );
    assert_eq!((found.trust, found.because.as_str()), (Trust::Unreliable, "it disagrees with the preferences"));
    assert_eq!(found.figures["head_to_head"]["corrected"]["labels"], json!(20));
}

#[test]
fn a_preference_counts_where_gold_scores_contradict_it_and_in_how_many_samples_is_said() {
    let found = conclusion(&TWO, &rows(20, &Row::new(&GPT).gold(&[4.0, 2.0]).prefers("local")));
    assert!(
        found.says.starts_with("local beats gpt: by the labels of all samples, local wins 100.0%"),
        "{}",
        found.says
    );
    let note = "; scores and preference contradict in 20 samples, the preference counts there";
    assert!(agreement(&found).ends_with(note), "{found:?}");
    assert_eq!((found.trust, &found.figures["labels_contradict"]), (Trust::Unreliable, &json!(20)));
    // Preferences that repeat the gold scores add nothing.
    let same = conclusion(&TWO, &rows(20, &Row::new(&GPT).gold(&[4.0, 2.0]).prefers("gpt")));
    assert!(!agreement(&same).contains("preference"), "{same:?}");
}

#[test]
fn labels_of_samples_without_a_score_are_counted_and_said() {
    let scored = |k: usize| Row::new(if k < 12 { &GPT } else { &[3.0, 4.0] });
    let unscored: Vec<Row> = rows(15, &Row::new(&GPT).unscored().prefers("local"));
    let all: Vec<Row> = unscored.iter().cloned().chain((0..15).map(scored)).collect();
    let found = conclusion(&TWO, &all);
    assert!(found.says.contains("gpt beats local in 12 of 15 samples"), "{}", found.says);
    let says = "No label shows whether the judge is right: 15 of your 15 labels are of samples that lack a score";
    assert_eq!((agreement(&found), found.trust), (says, Trust::Caution));
    assert!(!found.because.contains("no gold"), "{}", found.because);
    // If only some labelled samples have scores, the text counts them and the labels.
    let labelled: Vec<Row> = (0..3).map(|k| scored(k).prefers("gpt")).collect();
    let some: Vec<Row> =
        unscored[..12].iter().cloned().chain(labelled).chain((0..120).map(|k| scored(k % 15))).collect();
    let found = conclusion(&TWO, &some);
    assert!(agreement(&found).starts_with("The judge is right on 3 of your 3 labels with scores: 100.0%"), "{found:?}");
    assert!(agreement(&found).ends_with("; 12 of your 15 labels are of samples that lack a score"), "{found:?}");
    let right: Vec<Row> = unscored[..12].iter().cloned().chain((0..100).map(|_| scored(0).prefers("gpt"))).collect();
    let found = conclusion(&TWO, &right);
    assert_eq!(found.trust, Trust::Caution, "12 of 112 are many");
    assert!(found.because.contains("12 of your 112 labels are of samples that lack a score"), "{}", found.because);
}

#[test]
fn labels_that_are_all_ties_are_labels_that_say_nothing_of_the_judge() {
    let tied = Row::new(&GPT);
    for label in [tied.clone().prefers("tie"), tied.clone().gold(&[3.0, 3.0])] {
        let all: Vec<Row> = rows(12, &label).into_iter().chain(rows(18, &tied)).collect();
        let found = conclusion(&TWO, &all);
        let start = "gpt beats local in 30 of 30 samples (100.0% [88.4, 100.0], sign test p < 0.001); corrected with \
                     12 labels \
                     (12 ties, each half a win), gpt wins 50.0%";
        assert!(found.says.starts_with(start), "{}", found.says);
        let says = "No label shows whether the judge is right: 12 of your 12 labels are ties";
        assert_eq!((agreement(&found), found.trust), (says, Trust::Caution));
        assert_eq!(found.because, "ties alone say nothing of the judge");
    }
}

#[test]
fn candidates_level_by_score_are_told_with_what_the_labels_find_best() {
    let found = conclusion(&["p", "q", "r", "s"], &rows(20, &Row::new(&[0.5; 4]).prefers("p")));
    let says = "All 4 candidates tie, by untrusted scores; the labels find p best in 20 of 20 samples";
    assert_eq!((found.says.as_str(), found.trust), (says, Trust::Unreliable));
    let golds = rows(20, &Row::new(&[0.5; 3]).gold(&[1.0, 3.0, 2.0]));
    assert!(conclusion(&["x", "y", "z"], &golds).says.ends_with("; the labels find y best in 20 of 20 samples"));
    assert_eq!(conclusion(&["x", "y", "z"], &rows(20, &Row::new(&[0.5; 3]))).says, "All 3 candidates tie");
}

#[test]
fn few_labels_cannot_tell_and_take_no_winner_away() {
    for (right, wrong) in [(1, 0), (2, 0), (3, 0), (4, 1), (5, 0), (0, 5)] {
        let labelled = rows(right, &Row::new(&GPT).prefers("gpt")).into_iter();
        let labelled = labelled.chain(rows(wrong, &Row::new(&GPT).prefers("local")));
        let found = conclusion(&TWO, &labelled.chain(rows(25, &Row::new(&GPT))).collect::<Vec<_>>());
        assert!(found.says.starts_with("gpt beats local in "), "{right} {wrong}: {}", found.says);
        let why = format!("{} labels are too few to tell whether the judge is right", right + wrong);
        let why = if right + wrong == 1 { why.replace("1 labels are too few", "1 label is too few") } else { why };
        assert_eq!((found.trust, found.because), (Trust::Caution, why));
    }
    let six = rows(6, &Row::new(&GPT).prefers("gpt")).into_iter().chain(rows(24, &Row::new(&GPT)));
    let found = conclusion(&TWO, &six.collect::<Vec<_>>());
    assert_eq!(found.because, "compared with preferences on only 6 samples");
    // Without usable labels, the text is the same as without labels.
    let close = (0..30).map(|k| Row::new(if k % 2 == 0 { &GPT } else { &[3.0, 4.0] }));
    let mut close: Vec<Row> = close.collect();
    close[0] = close[0].clone().prefers("gpt");
    let found = conclusion(&TWO, &close);
    assert_eq!(found.because, "1 label is too few to tell whether the judge is right; they tie");
}

#[test]
fn the_second_of_several_level_ones_is_the_one_met_in_most_samples() {
    let gone = |row: [Option<f64>; 3]| Row { scores: row.to_vec(), ..Row::default() };
    let mut all = rows(3, &gone([Some(1.0), Some(0.0), None]));
    all.extend(rows(30, &gone([Some(1.0), None, Some(0.0)])));
    let found = conclusion(&["best", "alpha", "omega"], &all);
    assert!(
        found.says.contains("best has the highest mean score and beats omega in 30 of 30 samples"),
        "{}",
        found.says
    );
    let even = conclusion(&["best", "alpha", "omega"], &rows(10, &Row::new(&[1.0, 0.0, 0.0])));
    assert!(even.says.contains("best has the highest mean score and beats alpha in 10 of 10 samples"), "{}", even.says);
}

#[test]
fn the_best_of_several_metrics_has_its_head_to_head_beside_the_list() {
    let named =
        Conclusion { about: Some("chrf".to_owned()), ..conclusion(&TWO, &rows(20, &Row::new(&GPT).prefers("gpt"))) };
    let found = best_agreement(None, vec![named], &[]).expect("one");
    assert_eq!(found.figures["head_to_head"], found.figures["best_first"][0]["figures"]["head_to_head"]);
    assert_eq!(found.figures["head_to_head"]["winner"], json!("gpt"));
}

#[test]
fn of_several_metrics_none_agrees_beyond_chance_by_too_few_labels() {
    let named = |name: &str, scores: &[f64]| {
        let about = Some(name.to_owned());
        Conclusion { about, ..conclusion(&TWO, &rows(4, &Row::new(scores).prefers("gpt"))) }
    };
    let found = best_agreement(None, vec![named("chrf", &GPT), named("ter", &[3.0, 4.0])], &[]).expect("two");
    let start = "None of 2 metrics agrees with people beyond chance; first: chrf. ";
    assert!(agreement(&found).starts_with(start), "{found:?}");
    assert_eq!(found.trust, Trust::Caution);
}
