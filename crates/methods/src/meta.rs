//! Agreement of scores with gold, as a method of plans.

use parking_lot::Mutex;
use probity_analysis::{MetaFindings, MetaInputs, MetaParams};
use probity_data::Sample;
use probity_options::{GivenOptions, OptionSpec, read, specs};
use serde_json::{Value, json};

use crate::{Configured, DynMethod, Input, MethodError, MethodReport, Needs, Outcomes, Run, Signature};

const NAME: &str = "meta";

/// Compares scores with gold.
#[derive(Debug, Clone, Copy)]
pub struct Meta;

impl DynMethod for Meta {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "Compare scores with gold: correlations, accuracy, tests"
    }

    fn long_about(&self) -> &'static str {
        "\
Compare scores with gold: correlations, accuracy, tests.

Scores come from run folders, from their `scores.jsonl`, or from any table. A table has the columns item and \
candidate, and either metric and score, or one column per metric. Gold comes from samples (scores and preferences of \
their candidates) or from another such table. Both are matched by item and candidate.

For each metric and gold attribute, the result has Pearson, Spearman and Kendall τ-b at three levels: the mean over \
contexts (items), between systems (candidate ids), and over all scores. It has p-values, and intervals over contexts. \
It also has the accuracy on pairs: without ties in gold, with ties, and with ties at the best ε. At ε, metric scores \
that differ by ε or less count as equal.

A figure that cannot be computed, for example from constant scores, is reported as undefined. Scores that differ by \
rounding alone (by 1e-12 of the largest) are equal in ranks, correlations and accuracy."
    }

    fn needs(&self) -> Needs {
        Needs::NOTHING
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
    /// The inputs read in the dry run, for reuse in the run: a pipe can be read only once, and the manifest hashes must
    /// match the data used.
    rehearsed: Mutex<Option<MetaInputs>>,
}

impl Configured for MetaConfiguration {
    fn options_in_force(&self) -> Value {
        json!(self.params)
    }

    fn inputs(&self) -> Vec<Input> {
        self.params.files().into_iter().map(|(option, path)| Input { option, path }).collect()
    }

    fn run(&self, _: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        let params = &self.params;
        let read_before = self.rehearsed.lock().take();
        let inputs = if let Some(inputs) = read_before { inputs } else { MetaInputs::read(params)? };
        if run.is_rehearsal() {
            *self.rehearsed.lock() = Some(inputs);
            return Err(MethodError::Rehearsed);
        }
        let found = inputs.evaluate(params, run.keeps_rows(), &mut || run.check())?;
        let MetaFindings { values, tables, headline, verdict, outcomes: counts, to_label } = found;
        run.write_to_label(&to_label)?;
        let mut outcomes = Outcomes::default();
        for (name, count) in counts {
            outcomes.add_several(name, count);
        }
        let signature = Signature::without_model(NAME).with_options(params).with("metrics", &inputs.metric_names());
        let details = params.details;
        let report =
            MethodReport { verdict, outcomes, headline, values, tables, details, ..MethodReport::new(signature) };
        Ok(report.finished(run.cost()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{MemoryOutput, Staging};

    #[test]
    fn a_rehearsal_reads_and_a_run_compares_what_it_has_read() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
        write("scores.csv", "item,candidate,m\n1,a,1\n1,b,2\n1,c,3\n");
        write("gold.csv", "item,candidate,human\n1,a,1\n1,b,3\n1,c,2\n");
        let given = json!({"scores": [folder.path().join("scores.csv")], "gold": folder.path().join("gold.csv")});
        let meta = Meta.with(given.as_object().expect("options")).unwrap_or_else(|error| panic!("{error}"));
        let options: Vec<&str> = meta.inputs().iter().map(|input| input.option).collect();
        assert_eq!(options, ["scores", "gold"]);
        let mut output = MemoryOutput::default();
        let staging = Staging { stands_in: true, ..Staging::default() };
        let rehearsed = meta.run(&[], &mut Run::without_model(&mut output).with_staging(staging));
        assert!(matches!(rehearsed, Err(MethodError::Rehearsed)));
        // Simulates a pipe, which yields its bytes once.
        fs::remove_file(folder.path().join("gold.csv")).expect("there");
        let summary = meta.run(&[], &mut Run::without_model(&mut output)).expect("compared");
        assert_eq!((summary.outcomes.get("scored"), summary.headline[0].value), (3, Some(0.5)));
        assert!(summary.signature.to_string().starts_with("meta|version:"), "{}", summary.signature.to_string());
    }
}
