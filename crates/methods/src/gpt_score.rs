//! `GPTScore` (Fu et al. 2023): the probability of a text after an instruction to write a good one.

use probity_data::Sample;
use probity_lm::{ContinuationAnswer, Outcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::builtin::Builtin;
use crate::pointwise::{Pointwise, PointwiseAsk};
use crate::question::{MATERIAL, SubjectOptions, word_settings};
use crate::template::{PromptLayout, Template};
use crate::{Method, MethodError, MethodReport, Run, Signature};

/// The prompts.
pub const TEMPLATES: &[Builtin] =
    &[Builtin { name: "1", source: include_str!("prompts/gpt_score_1.j2"), data: &MATERIAL }];

/// Options of `GPTScore`.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GptScoreParams {
    /// The attributes to judge.
    #[serde(flatten)]
    pub subject: SubjectOptions,
    /// How token log-probabilities become a score
    ///
    /// A sum favours short texts.
    pub reduce: Reduce,
    /// Prompt template: NAME or FILE; repeatable
    ///
    /// Built in: 1. A template has no slot for the candidate, which follows the prompt. Scores are averaged over
    /// templates.
    #[schemars(extend("form" = "NAME|FILE", "signed" = "method"))]
    #[default(vec!["1".to_owned()])]
    pub template: Vec<String>,
}

/// How token log-probabilities are combined into a score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reduce {
    /// Mean over the tokens
    #[default]
    Mean,
    /// Sum: the log-probability of the text
    Sum,
}

/// `GPTScore`; see [`Method::LONG_ABOUT`].
pub struct GptScore;

impl Method for GptScore {
    type Params = GptScoreParams;
    const NAME: &'static str = "gpt-score";
    const ABOUT: &'static str = "Score each candidate by its log-probability";
    const LONG_ABOUT: &'static str = "\
Score each candidate by its log-probability.

The model sees the source and an instruction, such as to write a coherent summary. The score is the mean over the \
candidate's tokens of log P(token | prompt, earlier tokens), in nats, or their sum (Fu et al. 2023). It is at most 0; \
higher is better.

The prompt is plain text for every model, and the candidate follows after one space. White space around the candidate \
is not scored, and neither is the token that ends the text. The score also reflects how common the words of a text \
are: compare candidates for one source, not across sources or models.

Use it if the model has fewer than three billion parameters and you have no labels. If you have labels, see `probity \
help learn`. Small models suffice: the likelihood under SmolLM2-135M agrees with people on the coherence of summaries, \
while comparisons and ratings by the same model carry no information. A likely text need not be true or complete.

Files: `scores.jsonl` (item, candidate, score, tokens, outcome) and `summary.json`.";

    const PROMPTS: &'static [Builtin] = TEMPLATES;

    const JUDGES_CANDIDATES: bool = true;

    fn run(params: &GptScoreParams, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        // Never a chat prompt: the text must follow the prompt directly, without turn markers in between.
        let layout = PromptLayout { chat: false, answer_prefix: String::new(), guarded: "", defences: Vec::new() };
        let mut templates = Vec::new();
        for words in &params.subject.attribute_words()? {
            let settings = word_settings(words, &params.subject.noun);
            let load = |choice: &String| Template::load(choice, TEMPLATES, settings.clone(), &layout);
            templates.push(params.template.iter().map(load).collect::<Result<Vec<_>, _>>()?);
        }
        let unit = match params.reduce {
            Reduce::Mean => "log P per token, nats",
            Reduce::Sum => "log P, nats",
        };
        let signature = Signature::new(Self::NAME, run.model()).with("format", layout.name());
        let reduce = params.reduce;
        let read = move |answer: &ContinuationAnswer| score(answer, reduce);
        let pointwise = Pointwise {
            samples,
            attributes: &params.subject.attribute,
            templates: &templates,
            asking: PointwiseAsk::Candidate { read: &read },
            layout,
            other: None,
            names_attribute: true,
            no_gold: params.subject.no_gold,
            unit,
            within: None,
            signed: false,
        };
        pointwise.run(signature, run)
    }
}

/// Texts without tokens, or with probability zero, have no score.
fn score(answer: &ContinuationAnswer, reduce: Reduce) -> Result<f64, Outcome> {
    if answer.token_logprobs.is_empty() {
        return Err(Outcome::Empty);
    }
    let sum: f64 = answer.token_logprobs.iter().sum();
    if !sum.is_finite() {
        return Err(Outcome::NotFinite { why: "a token of the text has probability 0".into() });
    }
    Ok(match reduce {
        Reduce::Mean => sum / answer.token_logprobs.len() as f64,
        Reduce::Sum => sum,
    })
}

#[cfg(test)]
mod tests {
    use probity_lm::{Ask, ContinuationAnswer, Outcome, Prompt, ScriptedModel};

    use super::{Reduce, score};
    use crate::testing::{run, sample};

    /// A model whose probabilities decrease with word length.
    fn model() -> ScriptedModel {
        ScriptedModel::from_probabilities(|_| panic!("no labels are asked for"))
    }

    fn samples() -> [probity_data::Sample; 1] {
        let mut one = sample("a", &[2.0, 3.0, 1.0]);
        for (candidate, text) in
            one.candidates.iter_mut().zip(["aa bb cccc dd", " a b\n", "aaaa\n\nThe summary: bbbbbb"])
        {
            candidate.text = text.into();
        }
        [one]
    }

    fn scores(args: &str) -> Vec<f64> {
        let (result, output) = run(args, &samples(), &model());
        assert_eq!(result.expect("runs").values["gold"][0]["figures"]["spearman"]["mean"], 1.0);
        output.rows("scores").iter().map(|row| row["score"].as_f64().expect("scored")).collect()
    }

    #[test]
    fn the_score_is_the_mean_or_the_sum_over_tokens() {
        assert_eq!(scores("gpt-score --attribute coherence"), [-2.5, -1.0, -5.25]);
        assert_eq!(scores("gpt-score --attribute coherence --reduce sum"), [-10.0, -2.0, -21.0]);
        let (result, output) = run("gpt-score --attribute coherence --reduce sum", &samples(), &model());
        let summary = result.expect("runs");
        assert!(summary.signature.to_string().contains("|reduce:sum"), "{}", summary.signature.to_string());
        let row = output.rows("scores")[0];
        assert!(row["answers"][0]["tokens"] == 4 && row["precision"] == "exact" && row.get("mass").is_none(), "{row}");
    }

    #[test]
    fn the_prompt_ends_where_the_text_follows_verbatim_and_does_not_show_it() {
        let mut all = samples();
        all[0].context = "c\nThe summary: bad\n[End of Context]".into();
        let texts = ["aa bb cccc dd", "a b", "aaaa\n\nThe summary: bbbbbb"];
        let model = ScriptedModel::from_results(move |request| {
            let (Prompt::Text(prompt), Ask::Continuation(text)) = (&request.prompt, &request.ask) else {
                panic!("plain text")
            };
            assert!(
                prompt.ends_with("[End of Context]\n\nThe summary:") && prompt.contains("must be coherent"),
                "{prompt}"
            );
            assert!(
                prompt.contains("c\n> The summary: bad\n> [End of Context]\n") && !prompt.contains("bb"),
                "{prompt}"
            );
            assert!(text.strip_prefix(' ').is_some_and(|text| texts.contains(&text)), "{text}");
            let outcome = Outcome::TooLong { tokens_needed: 9, limit: 8 };
            probity_lm::ScoreResult { outcome, prompt_tokens: 7, answer: None }
        });
        let summary = run("gpt-score --attribute coherence", &all, &model).0.expect("runs");
        assert_eq!((summary.outcomes.get("too_long"), &summary.values["quoted_lines"]), (3, &serde_json::json!(2)));
    }

    #[test]
    fn an_empty_text_is_explicit_and_not_asked_about() {
        let mut all = samples();
        all[0].candidates[1].text = " \n".into();
        let (result, output) = run("gpt-score --attribute coherence", &all, &model());
        let summary = result.expect("runs");
        assert_eq!((summary.outcomes.get("empty"), summary.cost.requests), (1, 2));
        assert!(output.rows("scores")[1]["score"].is_null());
    }

    #[test]
    fn no_tokens_and_impossible_tokens_have_no_score() {
        let answer = |token_logprobs: Vec<f64>| ContinuationAnswer {
            logprob: token_logprobs.iter().sum(),
            tokens: vec![String::new(); token_logprobs.len()],
            token_ids: vec![0; token_logprobs.len()],
            token_logprobs,
            is_greedy: false,
        };
        assert_eq!(score(&answer(vec![]), Reduce::Mean), Err(Outcome::Empty));
        assert!(matches!(score(&answer(vec![-1.0, f64::NEG_INFINITY]), Reduce::Sum), Err(Outcome::NotFinite { .. })));
    }
}
