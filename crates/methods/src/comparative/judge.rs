//! Queries the model about comparisons and writes each verdict as it arrives.

use probity_data::Sample;
use probity_lm::{
    Ask, GenerateRequest, GenerateResult, LabelSet, Outcome, Precision, Prompt, Sampling, SamplingLimits, ScoreRequest,
    ScoreResult, SinkError,
};
use serde::Serialize;
use serde_json::Value;

use super::budget::BudgetFigures;
use super::options::{ComparativeParams, Decide};
use crate::answer::{Answer, likeliest};
use crate::answer_text::answer_of;
use crate::figures::TokenCounts;
use crate::pairs::{rng_for, seed_for};
use crate::question::material;
use crate::run::write_row;
use crate::template::{PromptLayout, Rendered, Template, TemplateError};
use crate::{MethodError, Run, RunOutput, row};

/// The table of all comparisons.
pub(super) const COMPARISONS: &str = "comparisons";

/// Receives the index of a comparison, its verdict, and the output for its row.
type KeepComparison<'k> = dyn FnMut(usize, ComparisonVerdict, &mut dyn RunOutput) -> Result<(), SinkError> + Send + 'k;

/// One question: is candidate `i`, shown first, better than candidate `j`?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ComparisonQuestion {
    /// Position of the sample.
    pub(super) item: usize,
    /// Position of the attribute.
    pub(super) attribute: usize,
    /// Position of the template.
    pub(super) template: usize,
    /// Position of the first candidate shown.
    pub(super) i: usize,
    /// Position of the second candidate shown.
    pub(super) j: usize,
}

/// The answer to a [`ComparisonQuestion`].
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ComparisonVerdict {
    /// The better candidate. For sampled answers the probabilities are shares, without a mass.
    pub(super) answer: Answer<usize>,
    /// Log-probabilities of the two labels.
    logprobs: Option<[f64; 2]>,
    /// How sampled answers were read.
    pub(super) samples: Option<SampledTally>,
}

/// How sampled answers were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct SampledTally {
    pub(super) first: usize,
    pub(super) second: usize,
    pub(super) unparsed: usize,
}

impl ComparisonVerdict {
    fn none(outcome: Outcome) -> Self {
        Self { answer: Answer::none(outcome), logprobs: None, samples: None }
    }

    fn from_score(result: &ScoreResult) -> Self {
        let logprobs = result.labels().map(|l| [l.labels[0].logprob, l.labels[1].logprob]);
        Self { answer: Answer::likeliest(result), logprobs, samples: None }
    }

    /// P(first is better), if there is an answer.
    pub(super) fn p(&self) -> Option<f64> {
        self.answer.probabilities.as_ref().map(|p| p[0])
    }
}

/// The sampled answers to one comparison. They arrive in any order; the result is independent of it.
#[derive(Default)]
struct Sampled {
    done: usize,
    tally: SampledTally,
    /// The outcome of the first failed sample, with its index.
    failed: Option<(usize, Outcome)>,
    /// The outcome of the first sample whose tokens decode to no text, with its index.
    without_text: Option<(usize, Outcome)>,
    /// From the first sample; all have the same prompt.
    prompt_tokens: Option<usize>,
}

impl Sampled {
    /// Counts one generated answer. An answer that ends at once names no label; any other missing text keeps the
    /// model's outcome.
    fn add(&mut self, sample: usize, result: &GenerateResult, label_words: &[String]) {
        self.done += 1;
        if sample == 0 {
            self.prompt_tokens = Some(result.prompt_tokens);
        }
        if !result.outcome.has_say() {
            // Not counted as unparsed: the failure concerns the prompt, not the answer.
            return keep_first(&mut self.failed, sample, &result.outcome);
        }
        match answer_of(result).ok().and_then(|text| last_label(&text, label_words)) {
            Some(0) => self.tally.first += 1,
            Some(_) => self.tally.second += 1,
            None => self.tally.unparsed += 1,
        }
        if let Outcome::Unparsed { .. } = result.outcome {
            keep_first(&mut self.without_text, sample, &result.outcome);
        }
    }

    /// Paper eq. 5 over the parsed samples.
    fn verdict(self) -> ComparisonVerdict {
        let Self { tally, failed, without_text, prompt_tokens, .. } = self;
        let parsed = tally.first + tally.second;
        let p = (parsed > 0).then(|| tally.first as f64 / parsed as f64);
        let outcome = match failed.or(without_text.filter(|_| parsed == 0)) {
            Some((_, outcome)) => outcome,
            None if parsed == 0 => Outcome::Unparsed {
                why: format!("none of {} sampled answers is complete and names a label", tally.unparsed),
            },
            None if tally.first == tally.second => Outcome::Tie,
            None => Outcome::Scored,
        };
        let probabilities = p.filter(|_| outcome.has_answer()).map(|p| vec![p, 1.0 - p]);
        let value = probabilities.as_deref().and_then(likeliest);
        let counts = TokenCounts { prompt_tokens, tokens: None };
        let answer = Answer { value, probabilities, counts, ..Answer::none(outcome) };
        ComparisonVerdict { answer, logprobs: None, samples: Some(tally) }
    }
}

/// Keeps the outcome of the sample with the lowest index.
fn keep_first(kept: &mut Option<(usize, Outcome)>, sample: usize, outcome: &Outcome) {
    if kept.as_ref().is_none_or(|(first, _)| sample < *first) {
        *kept = Some((sample, outcome.clone()));
    }
}

/// The inputs for rendering comparisons as prompts.
pub(super) struct ComparisonJudge<'a> {
    pub(super) params: &'a ComparativeParams,
    pub(super) samples: &'a [Sample],
    pub(super) labels: LabelSet,
    pub(super) layout: PromptLayout,
    /// `templates[attribute][template]`.
    pub(super) templates: Vec<Vec<Template>>,
    /// The model's numeric precision, for each row.
    pub(super) precision: Precision,
}

/// The verdicts, in the order of the comparisons.
#[derive(Default)]
pub(super) struct JudgedComparisons {
    pub(super) comparisons: Vec<ComparisonQuestion>,
    pub(super) verdicts: Vec<ComparisonVerdict>,
    /// Present with a budget.
    pub(super) budget: Option<BudgetFigures>,
}

impl ComparisonJudge<'_> {
    /// The comparisons of all samples, attributes and templates. Each attribute and template has the same pairs of a
    /// sample.
    pub(super) fn comparisons(&self) -> Vec<ComparisonQuestion> {
        let (attributes, templates) = (self.templates.len(), self.params.template.len());
        let mut all = Vec::new();
        for (item, sample) in self.samples.iter().enumerate() {
            let pairs = self
                .params
                .pairs
                // Seeded by the sample's id, not its position: added samples do not change the pairs of others.
                .select(sample.candidates.len(), &mut rng_for(self.params.seed, &["pairs", &sample.id]));
            for (attribute, template) in (0..attributes).flat_map(|a| (0..templates).map(move |t| (a, t))) {
                all.extend(pairs.iter().map(|&(i, j)| ComparisonQuestion { item, attribute, template, i, j }));
            }
        }
        all
    }

    /// Judges all comparisons, or as many as the budget allows.
    pub(super) fn judge(&self, run: &mut Run<'_>) -> Result<JudgedComparisons, MethodError> {
        if let Some(budget) = self.params.budget {
            return self.judge_within(budget, run);
        }
        let comparisons = self.comparisons();
        let verdicts = self.ask(&comparisons, 0, run)?;
        Ok(JudgedComparisons { comparisons, verdicts, budget: None })
    }

    /// Judges these comparisons, which follow `before` earlier ones. Each row is written as soon as its answer arrives.
    pub(super) fn ask(
        &self,
        comparisons: &[ComparisonQuestion],
        before: usize,
        run: &mut Run<'_>,
    ) -> Result<Vec<ComparisonVerdict>, MethodError> {
        let mut asked: Vec<usize> = Vec::new();
        let mut verdicts: Vec<Option<ComparisonVerdict>> = vec![None; comparisons.len()];
        for (index, comparison) in comparisons.iter().enumerate() {
            if self.has_empty_candidate(comparison) {
                verdicts[index] = Some(ComparisonVerdict::none(Outcome::Empty));
            } else {
                // Prompts are rendered when the model takes them; this checks first that all of them render.
                run.quotes(self.render(comparison)?.quoted);
                asked.push(index);
            }
        }
        run.table(COMPARISONS, before + comparisons.len())?;
        for (index, verdict) in verdicts.iter().enumerate() {
            if let Some(verdict) = verdict {
                run.row(COMPARISONS, before + index, &self.row(&comparisons[index], verdict))?;
            }
        }
        let mut keep = |index: usize, verdict: ComparisonVerdict, output: &mut dyn RunOutput| {
            write_row(output, COMPARISONS, before + index, &self.row(&comparisons[index], &verdict))?;
            verdicts[index] = Some(verdict);
            Ok(())
        };
        match self.params.decide {
            Decide::Prob => self.ask_labels(&asked, comparisons, run, &mut keep)?,
            Decide::Samples(k) => self.ask_samples(&asked, k, comparisons, run, &mut keep)?,
        }
        Ok(verdicts.into_iter().map(|v| v.expect("each comparison is answered")).collect())
    }

    fn has_empty_candidate(&self, comparison: &ComparisonQuestion) -> bool {
        let candidates = &self.samples[comparison.item].candidates;
        [comparison.i, comparison.j].iter().any(|index| candidates[*index].text.trim().is_empty())
    }

    pub(super) fn render(&self, comparison: &ComparisonQuestion) -> Result<Rendered, TemplateError> {
        let sample = &self.samples[comparison.item];
        let [context, instruction] = material(sample);
        let (first, second) = (&sample.candidates[comparison.i].text, &sample.candidates[comparison.j].text);
        let data = [context, instruction, ("candidate_a", first), ("candidate_b", second)];
        self.templates[comparison.attribute][comparison.template].render(&sample.id, &data)
    }

    fn prompt(&self, comparison: &ComparisonQuestion) -> Prompt {
        self.render(comparison).expect("it could be rendered before").prompt(&self.layout)
    }

    fn ask_labels(
        &self,
        asked: &[usize],
        comparisons: &[ComparisonQuestion],
        run: &mut Run<'_>,
        keep: &mut KeepComparison<'_>,
    ) -> Result<(), MethodError> {
        let requests = asked.iter().map(|index| {
            let comparison = &comparisons[*index];
            ScoreRequest {
                id: self.request_id(comparison),
                prompt: self.prompt(comparison),
                ask: Ask::Labels(self.labels.clone()),
            }
        });
        run.score(requests, |request, result, output| {
            keep(asked[request], ComparisonVerdict::from_score(&result), output)
        })
    }

    fn ask_samples(
        &self,
        asked: &[usize],
        k: usize,
        comparisons: &[ComparisonQuestion],
        run: &mut Run<'_>,
        keep: &mut KeepComparison<'_>,
    ) -> Result<(), MethodError> {
        let requests =
            // The samples of one prompt are adjacent, so that its prefix is computed once.
            (0..asked.len() * k).map(|request| self.sample_request(&comparisons[asked[request / k]], request % k));
        let mut open: Vec<Sampled> = asked.iter().map(|_| Sampled::default()).collect();
        run.generate(requests, |request, result, output| {
            let sampled = &mut open[request / k];
            sampled.add(request % k, &result, &self.params.label_words.0);
            if sampled.done < k {
                return Ok(());
            }
            keep(asked[request / k], std::mem::take(sampled).verdict(), output)
        })
    }

    fn sample_request(&self, comparison: &ComparisonQuestion, sample: usize) -> GenerateRequest {
        let id = self.request_id(comparison);
        let seed = seed_for(self.params.seed, &["sample", &id, &sample.to_string()]);
        let sampling =
            Sampling::Random { temperature: self.params.temperature, limits: SamplingLimits::default(), seed };
        GenerateRequest {
            sampling,
            stop: self.layout.line_end(),
            ..GenerateRequest::greedy(format!("{id}#{sample}"), self.prompt(comparison), self.params.max_tokens)
        }
    }

    fn request_id(&self, comparison: &ComparisonQuestion) -> String {
        let ComparisonQuestion { item, attribute, template, i, j } = *comparison;
        let sample = &self.samples[item];
        let (first, second) = (&sample.candidates[i].id, &sample.candidates[j].id);
        format!(
            "{}/{}/{}/{first}/{second}",
            sample.id, self.params.subject.attribute[attribute], self.params.template[template]
        )
    }

    fn row(&self, comparison: &ComparisonQuestion, verdict: &ComparisonVerdict) -> Value {
        let ComparisonQuestion { item, attribute, template, i, j } = *comparison;
        let sample = &self.samples[item];
        // JSON has no −∞: an impossible label has no log-probability, and p shows which label it is.
        let [logprob_i, logprob_j] = [0, 1].map(|k| verdict.logprobs.map(|l| l[k]).filter(|l| l.is_finite()));
        row! {
            "item": sample.id, "attribute": self.params.subject.attribute[attribute],
            "template": self.params.template[template], "i": i, "j": j, "candidate_i": sample.candidates[i].id,
            "candidate_j": sample.candidates[j].id, "p": verdict.p(), "logprob_i": logprob_i,
            "logprob_j": logprob_j, "mass": verdict.answer.mass, ..&verdict.answer.outcome,
            "prompt_tokens": verdict.answer.counts.prompt_tokens, "precision": self.precision,
            "samples"?: verdict.samples,
        }
    }
}

/// The index of the label named last in `text`, as a separate word with the same case. The longer one wins if two end
/// at the same position.
pub(super) fn last_label(text: &str, labels: &[String]) -> Option<usize> {
    let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let named = |label: &String| {
        let at = text.rmatch_indices(label.as_str());
        at.map(|(start, found)| (start, start + found.len()))
            .find(|&(start, end)| !is_word(text[..start].chars().next_back()) && !is_word(text[end..].chars().next()))
    };
    let ends = labels.iter().enumerate();
    let ends = ends.filter_map(|(index, label)| named(label).map(|(start, end)| (end, end - start, index)));
    ends.max().map(|(_, _, index)| index)
}

#[cfg(test)]
mod tests {
    use probity_lm::Finish;

    use super::*;

    #[test]
    fn what_is_kept_of_sampled_answers_does_not_depend_on_their_order() {
        let labels = ["A".to_owned(), "B".to_owned()];
        let failed =
            |why: &str, tokens| GenerateResult::without_text(Outcome::NotFinite { why: why.to_owned() }, tokens);
        let read = GenerateResult { text: "A".to_owned(), ..GenerateResult::without_text(Outcome::Scored, 12) };
        let results = [(0, read), (1, failed("the second", 13)), (2, failed("the third", 14))];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut sampled = Sampled::default();
            for (sample, result) in order.map(|at| &results[at]) {
                sampled.add(*sample, result, &labels);
            }
            let verdict = sampled.verdict();
            assert_eq!(verdict.answer.outcome, Outcome::NotFinite { why: "the second".to_owned() }, "{order:?}");
            assert_eq!(
                (verdict.answer.counts.prompt_tokens, verdict.samples.map(|tally| tally.first)),
                (Some(12), Some(1))
            );
        }
    }

    #[test]
    fn tokens_without_a_text_keep_the_reason_of_the_model() {
        let labels = ["A".to_owned(), "B".to_owned()];
        let outcome = Outcome::Unparsed { why: "the tokens cannot be decoded".to_owned() };
        let text =
            |text: &str| GenerateResult { text: text.to_owned(), ..GenerateResult::without_text(Outcome::Scored, 12) };
        let verdict = |first: GenerateResult| {
            let mut sampled = Sampled::default();
            sampled.add(0, &first, &labels);
            sampled.add(1, &GenerateResult::without_text(outcome.clone(), 12), &labels);
            sampled.verdict()
        };
        let none = verdict(text("neither"));
        assert_eq!((none.answer.outcome, none.samples.map(|tally| tally.unparsed)), (outcome.clone(), Some(2)));
        assert_eq!(verdict(text("A")).answer.outcome, Outcome::Scored, "one of both was read");
    }

    #[test]
    fn a_sample_that_is_cut_off_and_a_thought_name_no_label() {
        let labels = ["A".to_owned(), "B".to_owned()];
        for (text, finish, tally) in [
            ("<think>A? No. B", Finish::Length, [0, 0, 1]),
            ("A because the", Finish::Length, [0, 0, 1]),
            ("<think>A</think> B", Finish::EndOfTurn, [0, 1, 0]),
            ("A", Finish::Stop, [1, 0, 0]),
        ] {
            let mut sampled = Sampled::default();
            sampled.add(0, &GenerateResult { finish: Some(finish), ..crate::testing::generated(text) }, &labels);
            let SampledTally { first, second, unparsed, .. } = sampled.tally;
            assert_eq!([first, second, unparsed], tally, "{text}");
        }
    }

    #[test]
    fn the_last_label_that_stands_alone_counts() {
        let letters = ["A".to_owned(), "B".to_owned()];
        for (text, label) in [
            ("A", Some(0)),
            (" B.", Some(1)),
            ("A better one is B", Some(1)),
            ("Between A and B: **A**", Some(0)),
            ("Apples and Bananas", None),
            ("a", None),
            ("", None),
            ("ÄA", None),
        ] {
            assert_eq!(last_label(text, &letters), label, "{text}");
        }
        let words = ["Summary A".to_owned(), "Summary B".to_owned()];
        assert_eq!(last_label("Summary B beats Summary A", &words), Some(0));
        assert_eq!(last_label("A", &words), None);
    }
}
