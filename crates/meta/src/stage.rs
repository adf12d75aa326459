//! Scores against gold as a stage of plans.

use std::path::PathBuf;

use parking_lot::Mutex;
use probity_data::{Sample, is_score_table, read_labels};
use probity_methods::{Configured, DynMethod, Input, MethodError, MethodReport, Needs, Run, RunSummary, Signature};
use probity_options::{GivenOptions, OptionSpec, read, specs};
use probity_stats::Resampling;
use probity_store::SAMPLES;
use serde_json::{Value, json};

use crate::align::AlignedScores;
use crate::error::MetaError;
use crate::evaluate::Evaluation;
use crate::gold::GoldScores;
use crate::options::MetaParams;
use crate::scores::{AllScores, MetricPair, file_of};
use crate::tables::sections;

const NAME: &str = "meta";

/// Scores held against gold.
#[derive(Debug, Clone, Copy)]
pub struct Meta;

impl DynMethod for Meta {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "Hold scores against gold: correlations, accuracy of pairs, tests between metrics"
    }

    fn long_about(&self) -> &'static str {
        "\
Hold scores against gold: correlations, accuracy of pairs, tests between metrics

Scores come from run folders, from scores.jsonl of `probity metrics` or of a method, or from any table with the \
columns item, candidate and either metric and score or one column for each metric. Gold comes from samples (their \
candidates' scores and preferences) or from another such table. Both are matched by item and candidate.

For each metric and gold attribute: Pearson, Spearman and Kendall τ-b as the mean over contexts, between systems \
(candidate ids) and over all scores, with p-values and intervals over contexts; accuracy of pairs, also with ties and \
the ε at which metric scores are best taken for equal. What cannot be computed, constant scores for example, is \
undefined and said so. Scores that rounding alone tells apart (by 1e-12 of the largest) are equal: in ranks, \
correlations and accuracy alike."
    }

    fn needs(&self) -> Needs {
        Needs { model: false, samples: false }
    }

    fn options(&self) -> Vec<OptionSpec> {
        specs::<MetaParams>()
    }

    fn with(&self, given: &GivenOptions) -> Result<Box<dyn Configured>, MethodError> {
        Ok(Box::new(MetaConfiguration { params: read(given)?, rehearsed: Mutex::default() }))
    }
}

struct MetaConfiguration {
    params: MetaParams,
    /// What a rehearsal has read. A run takes it: what comes through a pipe is gone, and what was hashed for the
    /// manifest in between is what was read.
    rehearsed: Mutex<Option<MetaInputs>>,
}

/// What is compared with what.
struct MetaInputs {
    metrics: AllScores,
    gold: GoldScores,
    pairs: Vec<MetricPair>,
}

impl MetaInputs {
    fn read(params: &MetaParams) -> Result<Self, MetaError> {
        let metrics = AllScores::read(&params.scores)?.chosen(&params.metric)?;
        let gold = match gold_path(params) {
            Some(path) if is_score_table(&path) => GoldScores::of_table(&path)?,
            Some(path) => GoldScores::of_samples(params.read.samples(&path).map_err(MetaError::Gold)?, &path),
            None if params.labels.is_empty() => return Err(MetaError::NoGold),
            None => GoldScores::default(),
        };
        let labels = params.labels.iter().map(|path| read_labels(path)).collect::<Result<Vec<_>, _>>();
        let scored = metrics.list.iter().flat_map(|metric| &metric.rows);
        let scored = scored.filter_map(|row| Some((row.item.as_str(), row.candidate.as_deref()?))).collect();
        let gold = gold.with_labels(&labels.map_err(MetaError::Labels)?, &scored)?.chosen(&params.attribute)?;
        let pairs = params.compare.iter().map(|text| metrics.pair(text)).collect::<Result<_, _>>()?;
        Ok(Self { metrics, gold, pairs })
    }

    fn aligned(&self) -> Result<Vec<AlignedScores<'_>>, MetaError> {
        self.metrics.list.iter().map(|metric| AlignedScores::new(metric, &self.gold)).collect()
    }
}

/// What was given, or the samples of the first run that kept any.
fn gold_path(params: &MetaParams) -> Option<PathBuf> {
    let kept = || params.scores.iter().map(|path| path.join(SAMPLES)).find(|path| path.is_file());
    params.gold.clone().or_else(kept)
}

impl Configured for MetaConfiguration {
    fn options_in_force(&self) -> Value {
        json!(self.params)
    }

    fn inputs(&self) -> Vec<Input> {
        let scores = self.params.scores.iter().map(|path| Input { option: "scores", path: file_of(path) });
        let labels = self.params.labels.iter().map(|path| Input { option: "labels", path: path.clone() });
        scores.chain(gold_path(&self.params).map(|path| Input { option: "gold", path })).chain(labels).collect()
    }

    fn run(&self, _: &[Sample], run: &mut Run<'_>) -> Result<RunSummary, MethodError> {
        let read_before = self.rehearsed.lock().take();
        let material = read_before.map_or_else(|| MetaInputs::read(&self.params), Ok)?;
        let aligned = material.aligned()?;
        if run.is_rehearsal() {
            drop(aligned);
            *self.rehearsed.lock() = Some(material);
            return Err(MethodError::Rehearsed);
        }
        let resampling = self.params.resampling();
        let mut evaluation = Evaluation::of(&aligned, &material.gold, &resampling, &mut || run.check())?;
        if self.params.average {
            evaluation.average();
        }
        evaluation.compare(&material.pairs, &aligned, &material.gold, &resampling)?;
        evaluation.trust(&aligned, &material.gold, self.params.promise()).write(run)?;
        let names = material.metrics.names().join(",");
        let report = MethodReport {
            values: json!(evaluation),
            sections: sections(&evaluation, &resampling, self.params.details, run.keeps_rows()),
            signature: Signature::without_model(NAME)
                .with("metrics", &names)
                .with("rounds", &resampling.rounds)
                .with("confidence", &resampling.confidence)
                .with("seed", &resampling.seed)
                .with("alpha", &self.params.alpha)
                .with("delta", &self.params.delta),
            outcomes: evaluation.outcomes(),
            headline: evaluation.headline(),
            verdict: evaluation.conclusions(),
        };
        let summary = RunSummary::new(NAME, report, run.cost());
        // What changes figures most stands first, as it always has.
        let Resampling { rounds, confidence, seed } = resampling;
        let signature_line = format!(
            "{NAME}|version:{}|metrics:{names}|rounds:{rounds}|confidence:{confidence}|seed:{seed}|alpha:{}|delta:{}",
            summary.signature.version, self.params.alpha, self.params.delta
        );
        Ok(RunSummary { signature_line, ..summary })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use probity_methods::{MemoryOutput, Staging};

    use super::*;

    fn configured(folder: &std::path::Path, more: &Value) -> Box<dyn Configured> {
        let mut given = json!({"scores": [folder.join("scores.csv")], "gold": folder.join("gold.csv")});
        given.as_object_mut().expect("one").extend(more.as_object().cloned().unwrap_or_default());
        Meta.with(given.as_object().expect("one")).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_rehearsal_reads_and_a_run_compares_what_it_has_read() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
        write("scores.csv", "item,candidate,m\n1,a,1\n1,b,2\n1,c,3\n");
        write("gold.csv", "item,candidate,human\n1,a,1\n1,b,3\n1,c,2\n");
        let meta = configured(folder.path(), &json!({}));
        let options: Vec<&str> = meta.inputs().iter().map(|input| input.option).collect();
        assert_eq!(options, ["scores", "gold"]);
        let mut output = MemoryOutput::default();
        let staging = Staging { stands_in: true, ..Staging::default() };
        let rehearsed = meta.run(&[], &mut Run::without_model(&mut output).with_staging(staging));
        assert!(matches!(rehearsed, Err(MethodError::Rehearsed)));
        // As of a pipe, which gives its bytes once.
        fs::remove_file(folder.path().join("gold.csv")).expect("there");
        let summary = meta.run(&[], &mut Run::without_model(&mut output)).expect("compared");
        assert_eq!((summary.outcomes.get("scored"), summary.headline[0].value), (3, Some(0.5)));
        assert!(summary.signature_line.starts_with("meta|version:"), "{}", summary.signature_line);
    }

    /// The summary of scores `ter`, `rouge-1` and `rouge-1.recall`, all of which order `a` before `b` as people do, and
    /// `c` is in the first item alone.
    fn judged(more: &Value) -> RunSummary {
        let folder = tempfile::tempdir().expect("temporary folder");
        let rows: Vec<String> = (0..12).map(|k| format!("{k},a,10,0.9,0.9\n{k},b,60,0.{},0.1\n", k % 2 * 9)).collect();
        let scores = format!("item,candidate,ter,rouge-1,rouge-1.recall\n{}0,c,99,0.0,0.0\n", rows.concat());
        let gold: Vec<String> = (0..12).map(|k| format!("{k},a,2\n{k},b,1\n")).collect();
        fs::write(folder.path().join("scores.csv"), scores).expect("written");
        fs::write(folder.path().join("gold.csv"), format!("item,candidate,human\n{}0,c,0\n", gold.concat()))
            .expect("written");
        let mut output = MemoryOutput::default();
        configured(folder.path(), more).run(&[], &mut Run::without_model(&mut output)).expect("compared")
    }

    #[test]
    fn the_verdict_names_what_agrees_best_and_lower_is_better_where_it_is() {
        let summary = judged(&json!({}));
        let [found] = &summary.verdict[..] else { panic!("{:?}", summary.verdict) };
        assert_eq!(found.about.as_deref(), Some("human"));
        assert!(
            found.says.starts_with("Of 2 metrics ter agrees best with people. Agrees with gold: Spearman 1.000"),
            "its part stands back behind rouge-1: {}",
            found.says
        );
        assert!(found.says.contains("Next is rouge-1 with 0.4"), "{}", found.says);
        let metrics = summary.values["metrics"].as_array().expect("a list");
        assert_eq!(metrics[0]["pairwise"]["accuracy"], json!(1.0), "fewer edits, better text");
        assert_eq!(summary.values["lower_is_better"], json!(["ter"]));
        let part = judged(&json!({"metric": ["rouge-1.recall"]}));
        assert_eq!(part.verdict[0].about.as_deref(), Some("human, rouge-1.recall"));
    }

    /// The summary of a table of scores against one of gold.
    fn compared(scores: &str, gold: &str) -> RunSummary {
        let folder = tempfile::tempdir().expect("temporary folder");
        fs::write(folder.path().join("scores.csv"), scores).expect("written");
        fs::write(folder.path().join("gold.csv"), gold).expect("written");
        let mut output = MemoryOutput::default();
        configured(folder.path(), &json!({})).run(&[], &mut Run::without_model(&mut output)).expect("compared")
    }

    #[test]
    fn a_metric_in_capitals_is_turned_and_told_also_without_a_table_per_context() {
        let summary = compared("item,TER\n1,90\n2,50\n3,10\n", "item,human\n1,1\n2,2\n3,3\n");
        assert!(summary.headline[0].value.is_some_and(|rho| rho > 0.99), "fewer edits, better text");
        assert_eq!(summary.sections[1].title, "Correlation over all scores");
        let told = |note: &String| note.starts_with("Lower is better: TER.");
        assert!(summary.sections[0].notes.iter().any(told), "{:?}", summary.sections[0].notes);
    }

    #[test]
    fn the_footnote_names_the_kinds_of_intervals_that_are_there() {
        let note = |summary: &RunSummary| {
            let notes = &summary.sections.last().expect("tables").notes;
            notes.iter().find(|note| note.starts_with("In brackets")).cloned()
        };
        let three = "item,candidate,m\n1,a,1\n1,b,2\n1,c,3\n";
        assert_eq!(note(&compared(three, "item,candidate,human\n1,a,1\n1,b,3\n1,c,2\n")), None, "one context");
        let pairs = |column: &str| {
            let rows: Vec<String> = (0..4).map(|item| format!("{item},a,1\n{item},b,2\n")).collect();
            format!("item,candidate,{column}\n{}", rows.concat())
        };
        let expected = "In brackets: 95 % intervals over whole contexts, of means of coefficients that are ±1 or 0 in \
                        each context (or, but for a few, at one end) by Clopper and Pearson.";
        assert_eq!(note(&compared(&pairs("m"), &pairs("human"))).as_deref(), Some(expected));
        let both = note(&judged(&json!({}))).expect("intervals");
        assert!(both.contains("jackknife with Student's t; of means of coefficients"), "{both}");
    }

    #[test]
    fn systems_that_are_left_out_are_counted_for_readers() {
        let summary = judged(&json!({}));
        let counts = summary.sections.iter().find(|section| section.title == "What was compared").expect("there");
        assert_eq!(counts.columns.last().map(String::as_str), Some("systems left out"));
        assert!(counts.rows.iter().all(|row| row.last().map(String::as_str) == Some("1")), "{:?}", counts.rows);
    }

    #[test]
    fn what_is_wrong_names_its_option() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
        write("scores.csv", "item,candidate,m\n1,a,1\n1,b,2\n");
        let run = |more: &Value| {
            let mut output = MemoryOutput::default();
            match configured(folder.path(), more).run(&[], &mut Run::without_model(&mut output)) {
                Err(MethodError::Other { option, .. }) => option,
                ended => panic!("{ended:?}"),
            }
        };
        assert_eq!(run(&json!({})), Some("gold"));
        write("gold.csv", "item,candidate,human\n1,a,1\n1,b,3\n");
        assert_eq!(run(&json!({"metric": ["n"]})), Some("metric"));
        assert_eq!(run(&json!({"attribute": ["n"]})), Some("attribute"));
        assert_eq!(run(&json!({"compare": ["m"]})), Some("compare"));
        write("gold.csv", "item,candidate,human\n2,a,1\n");
        assert_eq!(run(&json!({})), Some("scores"));
        // Two scores of what gold takes for one candidate.
        write("gold.csv", "item,human\n1,3\n");
        assert_eq!(run(&json!({})), Some("scores"));
        write("gold.csv", "item,candidate,metric,attribute,score\n1,a,m,q,1\n1,a,n,q,2\n");
        assert_eq!(run(&json!({})), Some("gold"));
    }
}
