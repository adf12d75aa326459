//! G-Eval (Liu et al. 2023): a rating as the expectation over rating labels.

use std::collections::BTreeMap;

use probity_data::Sample;
use probity_lm::LabelAnswer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::attributes::AttributeWords;
use crate::builtin::Builtin;
use crate::gold;
use crate::pointwise::{Pointwise, PointwiseAsk};
use crate::question::{LayoutOptions, RATED, SubjectOptions, criteria, short_hash, text_or_file, word_settings};
use crate::scale::RatingScale;
use crate::template::{PromptLayout, Template};
use crate::written_once::WrittenOnce;
use crate::{Method, MethodError, MethodReport, Run, Signature};

/// The prompt of the rating, then the prompt that generates steps.
const TEMPLATES: &[Builtin] = &[
    Builtin { name: "1", source: include_str!("prompts/g_eval_1.j2"), data: RATED },
    Builtin { name: "steps", source: include_str!("prompts/g_eval_steps.j2"), data: &[] },
];

/// The table of generated steps.
const STEPS: &str = "steps";

/// The value of `--steps` for generated steps.
const GENERATE: &str = "generate";

/// Options of G-Eval.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct GEvalParams {
    /// The attributes to judge.
    #[serde(flatten)]
    pub subject: SubjectOptions,
    /// Meaning of the attribute, or @FILE
    ///
    /// Required for an attribute that is not built in.
    #[schemars(extend("form" = "TEXT|@FILE"))]
    pub criteria: Option<String>,
    /// Steps for the rater, @FILE, or `generate`
    ///
    /// `generate` lets the model write the steps, once per attribute. Omitted, the built-in steps are used.
    #[schemars(extend("form" = "TEXT|@FILE|generate"))]
    pub steps: Option<String>,
    /// Prompt of --steps generate: NAME or FILE
    ///
    /// Built in: steps.
    #[schemars(extend("form" = "NAME|FILE", "signed" = "method"))]
    #[default("steps".to_owned())]
    pub steps_template: String,
    /// Longest generated steps, in tokens
    ///
    /// For --steps generate. Steps that do not end within the limit are an error.
    #[schemars(range(min = 1), extend("form" = "N", "signed_if" = ["steps=generate"]))]
    #[default(512)]
    pub steps_tokens: u32,
    /// Ratings: integers from MIN (worst) to MAX (best)
    #[schemars(extend("form" = "MIN..MAX"))]
    #[default(RatingScale { min: 1, max: 5 })]
    pub scale: RatingScale,
    /// Prompt template: NAME or FILE; repeatable
    ///
    /// Built in: 1. Scores are averaged over templates.
    #[schemars(extend("form" = "NAME|FILE", "signed" = "method"))]
    #[default(vec!["1".to_owned()])]
    pub template: Vec<String>,
    /// How prompts and answers are laid out.
    #[serde(flatten)]
    pub layout: LayoutOptions,
}

/// G-Eval; see [`Method::LONG_ABOUT`].
pub(crate) struct GEval;

impl Method for GEval {
    type Params = GEvalParams;
    const NAME: &'static str = "g-eval";
    const ABOUT: &'static str = "Rate each candidate by the model's expected rating";
    const LONG_ABOUT: &'static str = "\
Rate each candidate by the model's expected rating.

The model sees the criterion, the source and one candidate, and answers with a whole number. The score is Σ k·P(k) / Σ \
P(k) over the ratings k of --scale, where P(k) is the exact probability of that number as the answer (Liu et al. 2023, \
G-Eval, without its sampling). Where the digits of one rating begin another (1 and 10), P(k) includes the end of the \
answer; on other scales it does not.

The prompt contains steps for the rater: built-in steps, those of --steps, or, with --steps generate, steps that the \
model writes for the criterion before any rating, as in the paper. Generated steps are kept in `steps.jsonl`, and \
their hash is part of the signature. Empty or unfinished steps end the run.

The label mass Σ P(k) is the probability of any rating at all. With a low mass the model prefers another kind of \
answer; such scores are flagged `low_mass` and counted. Scores of one model compare candidates; they are not on the \
scale of human raters.

Files: `scores.jsonl` (item, candidate, score, mass, probability of each rating, outcome) and `summary.json`.";

    const PROMPTS: &'static [Builtin] = TEMPLATES;

    const JUDGES_CANDIDATES: bool = true;

    fn layout(params: &GEvalParams) -> Option<&LayoutOptions> {
        Some(&params.layout)
    }

    fn run(params: &GEvalParams, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        let layout = params.layout.layout(run.model().description(), "Score:")?;
        let words = params.subject.attribute_words()?;
        let labels = params.scale.labels()?;
        let mut settings = words.iter().map(|words| settings(params, words)).collect::<Result<Vec<_>, _>>()?;
        // Loaded with stand-in steps before any are generated: mistakes in a template are reported before the model is
        // queried.
        let mut templates = load(params, &settings, &layout)?;
        let mut asked_for_steps = Vec::new();
        if params.steps.as_deref() == Some(GENERATE) {
            gold::uses(samples, &params.subject.attribute, params.subject.no_gold)?;
            // The answer is a list, not a score.
            let layout_of_steps = layout.announcing("Steps:");
            asked_for_steps = steps_templates(params, &settings, &layout_of_steps)?;
            for (settings, steps) in
                settings.iter_mut().zip(write_steps(params, &asked_for_steps, &layout_of_steps, run)?)
            {
                settings.insert("steps", steps);
            }
            templates = load(params, &settings, &layout)?;
        }
        let hash = |name: &str| short_hash(settings.iter().map(|settings| settings[name].as_str()));
        let signature = Signature::new(Self::NAME, run.model())
            .with("criteria", &hash("criteria"))
            // Criteria and steps are part of the prompt but not of the template, so the template's hash does not cover
            // them.
            .with("steps", &hash("steps"))
            .with("termination", &format!("{:?}", labels.termination()))
            .with_layout(&layout);
        let signature = match asked_for_steps.as_slice() {
            [] => signature,
            templates => signature.with("steps-by", "model").with_templates(templates),
        };
        let min = params.scale.min;
        let read = move |answer: &LabelAnswer| Ok(expectation(answer, min));
        let pointwise = Pointwise {
            samples,
            attributes: &params.subject.attribute,
            templates: &templates,
            asking: PointwiseAsk::Labels { labels, read: &read },
            layout,
            other: None,
            names_attribute: true,
            no_gold: params.subject.no_gold,
            unit: "expected rating",
            within: Some(params.scale.ends()),
            signed: false,
        };
        pointwise.run(signature, run)
    }
}

/// The templates by attribute, then by `--template`.
fn load(
    params: &GEvalParams,
    settings: &[PromptSettings],
    layout: &PromptLayout,
) -> Result<Vec<Vec<Template>>, MethodError> {
    let load = |settings: &PromptSettings| {
        let load = |choice: &String| Ok(Template::load(choice, &TEMPLATES[..1], settings.clone(), layout)?);
        params.template.iter().map(load).collect()
    };
    settings.iter().map(load).collect()
}

/// The prompt that generates the steps of each attribute.
fn steps_templates(
    params: &GEvalParams,
    settings: &[PromptSettings],
    layout: &PromptLayout,
) -> Result<Vec<Template>, MethodError> {
    let load = |settings: &PromptSettings| {
        let mut settings = settings.clone();
        // This prompt has no steps: a template that uses them is refused by name.
        settings.remove("steps");
        Ok(Template::load(&params.steps_template, &TEMPLATES[1..], settings, layout)?)
    };
    settings.iter().map(load).collect()
}

/// The generated steps of each attribute; `None` in a dry run.
fn write_steps(
    params: &GEvalParams,
    templates: &[Template],
    layout: &PromptLayout,
    run: &mut Run<'_>,
) -> Result<Vec<String>, MethodError> {
    let prompts = templates.iter().map(|template| Ok(template.render(STEPS, &[])?.prompt(layout)));
    let written = WrittenOnce {
        table: STEPS,
        option: "--steps generate",
        limit: "--steps-tokens",
        instead: "--steps TEXT",
        attributes: &params.subject.attribute,
        prompts: prompts.collect::<Result<_, MethodError>>()?,
        tokens: params.steps_tokens,
        constraint: None,
        read: |text| Ok(text.to_owned()),
    };
    Ok(written.write(run)?.unwrap_or_else(|| vec![String::new(); templates.len()]))
}

/// The values of a prompt's settings.
type PromptSettings = BTreeMap<&'static str, String>;

fn settings(params: &GEvalParams, words: &AttributeWords) -> Result<PromptSettings, MethodError> {
    let criteria = criteria(params.criteria.as_deref(), words, params.subject.attribute.len())?;
    let steps = match &params.steps {
        Some(steps) if steps != GENERATE => text_or_file("--steps", steps)?,
        _ => default_steps(words, &params.subject.noun),
    };
    let mut settings = word_settings(words, &params.subject.noun);
    settings.insert("criteria", criteria);
    settings.insert("steps", steps);
    settings.insert("min", params.scale.min.to_string());
    settings.insert("max", params.scale.max.to_string());
    Ok(settings)
}

fn default_steps(words: &AttributeWords, noun: &str) -> String {
    format!(
        "1. Read what the {noun} was written for, where it is given, and note its main points.\n\
         2. Read the {noun} and look for what speaks for and against its {attribute}; leave all other qualities \
         aside.\n\
         3. Decide on a rating for {attribute}.",
        attribute = words.attribute
    )
}

/// Σ k·P(k) / Σ P(k).
fn expectation(answer: &LabelAnswer, min: u32) -> f64 {
    answer.labels.iter().enumerate().map(|(k, label)| (f64::from(min) + k as f64) * label.prob).sum()
}

#[cfg(test)]
mod tests {
    use probity_lm::{Ask, Finish, GenerateResult, ScoreAnswer, ScoreResult, ScriptedModel, Termination};

    use super::{LabelAnswer, RatingScale};
    use crate::testing::{error_text, generated, qualities, run, sample};

    /// A model that gives rating `quality` 90% of the mass and the lowest rating the rest.
    fn rater(total: f64) -> ScriptedModel {
        ScriptedModel::from_probabilities(move |request| {
            let Ask::Labels(labels) = &request.ask else { panic!("labels are asked for") };
            let quality = qualities(&request.prompt)[0].to_string();
            let mut p: Vec<f64> =
                labels.labels().iter().map(|l| if l.name == quality { 0.9 * total } else { 0.0 }).collect();
            p[0] += 0.1 * total;
            p
        })
    }

    #[test]
    fn the_score_is_the_expectation_over_normalised_ratings() {
        let samples = [sample("a", &[3.0, 1.0, 5.0]), sample("b", &[2.0, 4.0, 3.0])];
        let (result, output) = run("g-eval --attribute coherence", &samples, &rater(0.5));
        let summary = result.expect("runs");
        let scores: Vec<f64> = output.rows("scores").iter().map(|row| row["score"].as_f64().expect("scored")).collect();
        for (score, expected) in scores.iter().zip([2.8, 1.0, 4.6, 1.9, 3.7, 2.8]) {
            assert!((score - expected).abs() < 1e-12, "{scores:?}");
        }
        assert_eq!(summary.values["gold"][0]["figures"]["spearman"]["mean"], 1.0);
        assert_eq!(summary.values["gold"][0]["figures"]["pairwise"]["accuracy"], 1.0);
        assert!((summary.values["scores"][0]["figures"]["mass"]["mean"].as_f64().expect("some") - 0.5).abs() < 1e-12);
        assert!(output.rows("scores").iter().all(|row| row["precision"] == "exact"));
        assert_eq!(output.rows("scores")[0]["answers"][0]["probabilities"].as_object().expect("an object").len(), 5);
    }

    #[test]
    fn scales_whose_numbers_begin_one_another_include_the_end_of_the_answer() {
        let termination =
            |text: &str| text.parse::<RatingScale>().expect("valid").labels().expect("valid").termination();
        assert_eq!(termination("1..5"), Termination::Open);
        assert_eq!(termination("0..9"), Termination::Open);
        assert_eq!(termination("1..10"), Termination::EndOfTurn);
        assert_eq!(termination("2..21"), Termination::EndOfTurn);
        assert_eq!(termination("10..99"), Termination::Open);
        let (result, _) = run("g-eval --attribute coherence --scale 1..10", &[sample("a", &[10.0, 1.0])], &rater(1.0));
        assert_eq!(result.expect("runs").signature.settings["termination"], "EndOfTurn");
    }

    #[test]
    fn what_the_prompt_says_of_the_attribute_is_in_the_signature() {
        let signature = |more: &str| {
            let (result, _) = run(&format!("g-eval --attribute coherence{more}"), &[sample("a", &[1.0])], &rater(1.0));
            result.expect("runs").signature.to_string()
        };
        let lines = ["", " --criteria one", " --criteria two", " --steps one", " --steps two"].map(signature);
        assert!((1..lines.len()).all(|k| !lines[..k].contains(&lines[k])), "{lines:#?}");
        assert_eq!(signature(" --steps one"), lines[3]);
    }

    #[test]
    fn steps_are_generated_once_per_attribute_and_shown_to_the_rater() {
        let model = |steps: &'static str| {
            ScriptedModel::from_probabilities(|request| {
                assert!(
                    request.prompt.text().contains("How to proceed:\n1. Look.\n2. Rate.\n"),
                    "{}",
                    request.prompt.text()
                );
                vec![0.2; 5]
            })
            .with_generation(move |request| {
                let text = request.prompt.text();
                assert!(text.contains("Criterion: coherence.") != text.contains("Criterion: fluency."), "{text}");
                generated(steps)
            })
        };
        let args = "g-eval --no-gold --attribute coherence --attribute fluency --steps generate";
        let (result, output) = run(args, &[sample("a", &[1.0, 2.0])], &model(" 1. Look.\n2. Rate.\n"));
        let signature = result.expect("runs").signature;
        assert_eq!((output.rows("steps").len(), output.rows("scores").len()), (2, 4));
        assert_eq!(output.rows("steps")[1]["steps"], "1. Look.\n2. Rate.");
        assert_eq!((signature.settings["steps-by"].as_str(), signature.templates.len()), ("model", 2));
        let (result, _) = run("g-eval --no-gold --attribute coherence", &[], &model(""));
        assert!(result.is_err(), "no samples");
    }

    #[test]
    fn steps_that_are_no_steps_end_the_run() {
        let error = |result: GenerateResult| {
            let model = ScriptedModel::from_probabilities(|_| panic!("nothing is rated"))
                .with_generation(move |_| result.clone());
            let (result, output) =
                run("g-eval --no-gold --attribute coherence --steps generate", &[sample("a", &[1.0])], &model);
            assert_eq!(output.rows("steps").len(), 1, "finished work is kept");
            error_text(&result.expect_err("no steps"))
        };
        assert!(error(generated(" ")).contains("is empty"));
        assert!(
            error(GenerateResult { finish: Some(Finish::Length), ..generated("1. Look and") })
                .contains("after 512 tokens")
        );
        let outcome = probity_lm::Outcome::TooLong { tokens_needed: 600, limit: 256 };
        assert!(error(GenerateResult::without_text(outcome, 88)).contains("--steps-tokens"));
    }

    #[test]
    fn empty_text_and_low_mass_are_explicit() {
        let mut all = [sample("a", &[3.0, 2.0])];
        all[0].candidates[0].text = "".into();
        let (result, output) = run("g-eval --attribute coherence", &all, &rater(0.001));
        let summary = result.expect("runs");
        assert_eq!((summary.outcomes.get("empty"), summary.outcomes.get("low_mass"), summary.cost.requests), (1, 1, 1));
        assert!(
            output.rows("scores")[0]["score"].is_null() && output.rows("scores")[0]["answers"] == serde_json::json!([])
        );
    }

    #[test]
    fn low_mass_names_the_likeliest_token_in_the_row_and_in_a_note() {
        let model = ScriptedModel::from_results(|_| {
            let answer = LabelAnswer::from_logprobs((1..=5).map(|k| (k.to_string(), -20.0 - f64::from(k))));
            let answer = LabelAnswer { likeliest: Some("<think>".to_owned()), ..answer.expect("some probability") };
            let outcome = answer.outcome(0.01);
            ScoreResult { outcome, prompt_tokens: 7, answer: Some(ScoreAnswer::Labels(answer)) }
        });
        let (result, output) = run("g-eval --attribute coherence", &[sample("a", &[3.0, 2.0])], &model);
        let why = r#"the likeliest next token is "<think>", which opens a thought; try --think off"#;
        let row = output.rows("scores")[0];
        assert!(row["outcome"] == "low_mass" && row["why"] == why && row["answers"][0]["why"] == why, "{row}");
        let notes: Vec<String> = result.expect("runs").tables.into_iter().flat_map(|one| one.notes).collect();
        assert!(notes.contains(&format!("low_mass: {why} (2 of 2)")), "{notes:?}");
    }

    #[test]
    fn an_attribute_without_a_definition_asks_for_one() {
        let model = ScriptedModel::from_probabilities(|request| {
            assert!(request.prompt.text().contains("Criterion: wit, from 1 (worst) to 3 (best).\nIs-it-funny"));
            vec![0.2, 0.3, 0.4]
        });
        let error = run("g-eval --attribute wit --no-gold", &[sample("a", &[1.0])], &model).0;
        let error = error_text(&error.expect_err("no definition"));
        assert!(error.contains("--criteria") && error.contains("coherence"), "{error}");
        let args = "g-eval --attribute wit --no-gold --scale 1..3 --criteria Is-it-funny";
        let (result, output) = run(args, &[sample("a", &[1.0])], &model);
        assert!(result.expect("runs").values["gold"].as_array().expect("a list").is_empty());
        assert!((output.rows("scores")[0]["score"].as_f64().expect("scored") - (0.2 + 0.6 + 1.2) / 0.9).abs() < 1e-12);
        let missing =
            run("g-eval --attribute wit --no-gold --criteria @/nowhere/c.txt", &[sample("a", &[1.0])], &model);
        assert!(missing.0.expect_err("no file").to_string().contains("/nowhere/c.txt"));
    }
}
