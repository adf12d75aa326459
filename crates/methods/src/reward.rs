//! Rewards: the score of a reward model or cross-encoder for a candidate as an answer (Ouyang et al. 2022; pairs by
//! Bradley & Terry 1952).

use std::collections::BTreeMap;

use probity_data::Sample;
use probity_lm::{ClassAnswer, ClassKind, LanguageModel, ModelDescription, Prompt, did_you_mean, nearest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::builtin::{Builtin, DataSlot};
use crate::pointwise::{Pointwise, PointwiseAsk};
use crate::question::{MATERIAL, material};
use crate::template::{PromptLayout, Rendered, Template, TemplateError};
use crate::{Method, MethodError, MethodReport, Run, Signature};

pub(crate) const TEMPLATES: &[Builtin] =
    &[Builtin { name: "1", source: include_str!("prompts/reward_1.j2"), data: SHOWN }];

/// The slot for the references shown with a candidate.
const REFERENCES: &str = "references";
const SHOWN: &[DataSlot] = &[DataSlot::required("candidate"), MATERIAL[0], MATERIAL[1], DataSlot::list(REFERENCES)];

/// Options of rewards.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RewardParams {
    /// Class whose probability is the score
    ///
    /// For a model with several classes, such as entailment or POSITIVE. With one class the reward is the score, with a
    /// regression head the value.
    #[schemars(length(min = 1), extend("form" = "NAME", "signed" = "class"))]
    pub class_name: Option<String>,
    /// Prompt template: NAME or FILE; repeatable
    ///
    /// Built in: 1. The last turn of a template is the candidate's. Scores are averaged over templates.
    #[schemars(extend("form" = "NAME|FILE", "signed" = "method"))]
    #[default(vec!["1".to_owned()])]
    pub template: Vec<String>,
    /// Gold scores to compare with; repeatable
    #[schemars(inner(length(min = 1)), extend("form" = "NAME", "scores" = false))]
    pub attribute: Vec<String>,
    /// Skip comparison with gold scores and preferences
    #[schemars(extend("scores" = false))]
    pub no_gold: bool,
}

/// Rewards; see [`Method::LONG_ABOUT`].
pub(crate) struct Reward;

impl Method for Reward {
    type Params = RewardParams;
    const NAME: &'static str = "reward";
    const ABOUT: &'static str = "Score each candidate with a reward model or classifier";
    const LONG_ABOUT: &'static str = "\
Score each candidate with a reward model or classifier.

The model needs a class head (an architecture named …ForSequenceClassification). It is a decoder trained to rate \
answers, or has an encoder (BERT, DeBERTa, BART …) that reads a pair of texts. A decoder reads the instruction and the \
context of a sample as the user's turn and the candidate as the assistant's, in its own chat template; the shared \
prefix of a sample's candidates is computed once. An encoder reads the two turns as a pair.

With one class, its logit is the score. It has no bounds; the first of two texts with scores r and s is preferred with \
probability 1 / (1 + exp(s − r)) (Bradley & Terry 1952). With several classes, --class-name selects the class whose \
probability is the score, by its name in the model's config.json. The probability is relative to all classes, or \
independent of the others if problem_type is multi_label_classification. With regression the logit is the score.

The same model can judge pairs in `judge` and `reviseval`.

Files: `scores.jsonl` (item, candidate, score, the logit of each class, outcome) and `summary.json`.";

    const PROMPTS: &'static [Builtin] = TEMPLATES;

    const JUDGES_CANDIDATES: bool = true;

    fn run(params: &RewardParams, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        let class = class_of(run.model().description(), params.class_name.as_deref())?;
        let layout = layout(run.model());
        let load = |choice: &String| Template::load(choice, TEMPLATES, BTreeMap::new(), &layout);
        let templates = [params.template.iter().map(load).collect::<Result<Vec<_>, _>>()?];
        let signature = Signature::new(Self::NAME, run.model()).with("format", layout.name());
        let unit = class.unit(run.model().description());
        let read = move |answer: &ClassAnswer| class.score(answer);
        let pointwise = Pointwise {
            samples,
            attributes: &params.attribute,
            templates: &templates,
            asking: PointwiseAsk::Classes { read: &read },
            layout,
            other: None,
            names_attribute: false,
            no_gold: params.no_gold,
            unit: &unit,
            within: None,
            signed: !matches!(class, ScoredClass::Probability(..)),
        };
        pointwise.run(signature, run)
    }
}

/// The output of the class head that is the score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScoredClass {
    /// The only logit.
    Reward,
    /// The logit of this class, which is a value.
    Value(usize),
    /// The probability of this class.
    Probability(usize, ClassKind),
}

impl ScoredClass {
    fn score(self, answer: &ClassAnswer) -> f64 {
        let logits = answer.logits();
        match self {
            Self::Reward => logits[0],
            Self::Value(class) => logits[class],
            Self::Probability(class, kind) => kind.probabilities(&logits).expect("of several finite logits")[class],
        }
    }

    fn unit(self, model: &ModelDescription) -> String {
        match self {
            Self::Reward => "reward".to_owned(),
            Self::Value(class) => model.classes[class].clone(),
            Self::Probability(class, _) => format!("P({})", model.classes[class]),
        }
    }
}

/// The class to score. Refused without a class head, or with several classes and no name.
fn class_of(model: &ModelDescription, named: Option<&str>) -> Result<ScoredClass, MethodError> {
    let classes = &model.classes;
    let shown: Vec<String> = classes.iter().map(|class| class.escape_debug().to_string()).collect();
    let listed = shown.join(", ");
    if classes.is_empty() {
        let why = "the model has no class head";
        let hint = "use a reward model or a classifier (architecture …ForSequenceClassification in config.json); see \
                    `probity model inspect`";
        return MethodError::refuse(format!("--model {}", model.name), why, hint);
    }
    match named {
        None if classes.len() == 1 => Ok(ScoredClass::Reward),
        None => {
            let why = format!("the class head has {} classes: {listed}", classes.len());
            let last = classes[classes.len() - 1].escape_debug();
            let hint = format!("name the class that marks a good text: --class-name {last}");
            MethodError::refuse(format!("--model {}", model.name), why, hint)
        }
        Some(name) => match classes.iter().position(|class| class == name) {
            Some(_) if classes.len() == 1 => Ok(ScoredClass::Reward),
            Some(class) if model.class_kind == ClassKind::Regression => Ok(ScoredClass::Value(class)),
            Some(class) => Ok(ScoredClass::Probability(class, model.class_kind)),
            None => {
                let option = format!("--class-name {}", name.escape_debug());
                let meant = did_you_mean(nearest(name, shown.iter().map(String::as_str)));
                MethodError::refuse(option, "the model has no such class", format!("the classes are {listed}{meant}"))
            }
        },
    }
}

fn layout(model: &dyn LanguageModel) -> PromptLayout {
    let chat = model.description().has_chat_template;
    PromptLayout { chat, answer_prefix: String::new(), guarded: "", defences: Vec::new() }
}

/// A reward model as a judge of pairs.
pub(crate) struct RewardJudge {
    template: Template,
    layout: PromptLayout,
}

impl RewardJudge {
    /// Present for models with a class head. Refused if the head has several classes.
    pub(crate) fn for_model(model: &dyn LanguageModel) -> Result<Option<Self>, MethodError> {
        let description = model.description();
        if description.classes.is_empty() {
            return Ok(None);
        }
        if description.classes.len() > 1 {
            let why =
                format!("the class head has {} classes, but a judge needs a single reward", description.classes.len());
            let hint = "score candidates with one of the classes: probity reward --class-name NAME";
            return MethodError::refuse(format!("--model {}", description.name), why, hint);
        }
        let layout = layout(model);
        let template = Template::load(TEMPLATES[0].name, TEMPLATES, BTreeMap::new(), &layout)?;
        Ok(Some(Self { template, layout }))
    }

    pub(crate) fn template(&self) -> &Template {
        &self.template
    }

    pub(crate) fn layout(&self) -> &PromptLayout {
        &self.layout
    }

    /// A candidate as an answer to its sample.
    pub(crate) fn render(&self, sample: &Sample, text: &str, references: &[&str]) -> Result<Rendered, TemplateError> {
        let [context, instruction] = material(sample);
        let data = [context, instruction, ("candidate", text)];
        self.template.render_with(&sample.id, &data, &[(REFERENCES, references)])
    }

    pub(crate) fn prompt(&self, rendered: Rendered) -> Prompt {
        rendered.conversation(&self.layout)
    }
}

/// The probability that the first of two texts is preferred, from their rewards.
pub(crate) fn preferred(first: f64, second: f64) -> f64 {
    // Uses the smaller exponential, so that nothing overflows and both orders sum to 1.
    let gap = libm::exp(-(first - second).abs());
    if first >= second { 1.0 / (1.0 + gap) } else { gap / (1.0 + gap) }
}

#[cfg(test)]
mod tests {
    use probity_lm::{Ask, ClassKind, Prompt, Role, ScriptedModel};

    use super::preferred;
    use crate::testing::{error_text, run, sample};

    /// A model whose reward is the length of the answer.
    fn model(classes: &'static [&'static str]) -> ScriptedModel {
        ScriptedModel::from_probabilities(move |request| {
            assert_eq!(request.ask, Ask::Classes);
            let Prompt::Chat { messages, answer_prefix, .. } = &request.prompt else { panic!("a chat") };
            let (last, first) = messages.split_last().expect("turns");
            assert!(last.role == Role::Assistant && answer_prefix.is_empty());
            assert!(first.iter().all(|message| message.role == Role::User && !message.content.trim().is_empty()));
            let length = last.content.chars().count() as f64;
            (0..classes.len()).map(|class| if class == 0 { length } else { length - class as f64 }).collect()
        })
        .with_classes(classes.iter().copied())
    }

    #[test]
    fn gold_that_nothing_was_held_against_is_told() {
        let told = |more: &str| {
            let (result, _) = run(&format!("reward {more}"), &[sample("a", &[1.0, 2.0])], &model(&["LABEL_0"]));
            let notes: Vec<String> = result.expect("runs").tables.into_iter().flat_map(|one| one.notes).collect();
            notes.iter().any(|note| note.contains("gold scores for `coherence`; --attribute NAME"))
        };
        assert_eq!([told(""), told("--attribute coherence"), told("--no-gold")], [true, false, false]);
    }

    #[test]
    fn the_score_is_the_reward_or_the_probability_of_the_class_that_is_named() {
        let mut one = sample("a", &[1.0, 2.0]);
        for (candidate, text) in one.candidates.iter_mut().zip(["bad", "better"]) {
            candidate.text = text.into();
        }
        let scores = |args: &str, model: &ScriptedModel| {
            let (result, output) = run(args, std::slice::from_ref(&one), model);
            result.unwrap_or_else(|error| panic!("{}", error_text(&error)));
            output.rows("scores").iter().map(|row| row["score"].as_f64().expect("scored")).collect::<Vec<_>>()
        };
        assert_eq!(scores("reward --attribute coherence", &model(&["LABEL_0"])), [3.0, 6.0]);
        let p = 1.0 / (1.0 + f64::exp(-1.0));
        let found = scores("reward --class-name good", &model(&["good", "bad"]));
        assert!(found.iter().all(|found| (found - p).abs() < 1e-12), "{found:?}");
        // Logits are 3 and 2, and 6 and 5: independent classes, or values.
        let of_kind = |kind| scores("reward --class-name bad", &model(&["good", "bad"]).with_class_kind(kind));
        let alone = of_kind(ClassKind::MultiLabel);
        assert!((alone[0] - 1.0 / (1.0 + f64::exp(-2.0))).abs() < 1e-12 && alone[1] > alone[0], "{alone:?}");
        assert_eq!(of_kind(ClassKind::Regression), [2.0, 5.0]);
        let (_, output) = run("reward --class-name good", std::slice::from_ref(&one), &model(&["good", "bad"]));
        let row = output.rows("scores")[0];
        assert_eq!(row["answers"][0]["classes"], serde_json::json!({"LABEL_0": 3.0, "LABEL_1": 2.0}));
    }

    #[test]
    fn a_model_without_the_head_that_is_asked_is_refused_by_name() {
        let one = [sample("a", &[1.0, 2.0])];
        let refused = |args: &str, classes: &'static [&'static str]| {
            error_text(&run(args, &one, &model(classes)).0.expect_err("refused"))
        };
        assert!(refused("reward", &[]).contains("the model has no class head"));
        let several = refused("reward", &["contradiction", "neutral", "entailment"]);
        assert!(several.contains("has 3 classes: contradiction, neutral, entailment"), "{several}");
        assert!(several.contains("--class-name entailment"), "{several}");
        assert!(refused("reward --class-name Good", &["good", "bad"]).contains("the classes are good, bad"));
        let judge = "judge --attribute coherence --verdict label";
        assert!(refused(judge, &["good", "bad"]).contains("a judge needs a single reward"));
    }

    #[test]
    fn a_reward_model_judges_pairs_by_bradley_and_terry() {
        let mut one = sample("a", &[1.0, 2.0]);
        for (candidate, text) in one.candidates.iter_mut().zip(["bad", "bett"]) {
            candidate.text = text.into();
        }
        let (result, output) = run("judge --attribute coherence", std::slice::from_ref(&one), &model(&["LABEL_0"]));
        result.unwrap_or_else(|error| panic!("{}", error_text(&error)));
        let rows = output.rows("verdicts");
        let p = 1.0 / (1.0 + f64::exp(1.0));
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!(row["template"], "reward");
            let expected = if row["candidate_i"] == "0" { p } else { 1.0 - p };
            assert!((row["p"].as_f64().expect("a number") - expected).abs() < 1e-12, "{row}");
        }
    }

    #[test]
    fn both_orders_sum_to_one_however_far_rewards_lie_apart() {
        for (first, second) in [(0.0, 0.0), (3.0, -2.5), (800.0, -800.0), (1e-9, 0.0)] {
            assert!((preferred(first, second) + preferred(second, first) - 1.0).abs() < 1e-15);
        }
        assert_eq!((preferred(0.0, 0.0), preferred(800.0, -800.0)), (0.5, 1.0));
    }
}
