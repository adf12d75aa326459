//! A judge: one model with its prompts, which answers a list of questions.

use std::collections::BTreeMap;

use probity_data::Sample;
use probity_lm::text::counted;
use probity_lm::{
    Ask, GenerateRequest, GenerateResult, LabelSet, LanguageModel, Outcome, Prompt, Sampling, SamplingLimits,
    ScoreRequest, ScoreResult,
};
use serde_json::Value;

use super::brackets::MARKER;
use super::options::{JudgingOptions, Mode, VerdictMode};
use super::verdict::{JudgeVerdict, OfferedVerdicts};
use crate::attributes::AttributeWords;
use crate::builtin::{Builtin, DataSlot, MAX_LIST};
use crate::pairs::seed_for;
use crate::question::{MATERIAL, capitalised, criteria, material, short_hash, text_or_file, word_settings};
use crate::reward::RewardJudge;
use crate::stage::{KeepPart, RowError};
use crate::template::{PromptLayout, Rendered, Template};
use crate::{MethodError, Run, Signature, row};

/// The judge's prompts, by mode.
pub(crate) const TEMPLATES: &[Builtin] = &[
    Builtin { name: "pairwise", source: include_str!("../prompts/judge_pairwise.j2"), data: PAIR },
    Builtin { name: "pointwise", source: include_str!("../prompts/judge_pointwise.j2"), data: SINGLE },
];

const REFERENCES: DataSlot = DataSlot::list("references");
const PAIR: &[DataSlot] =
    &[DataSlot::required("candidate_a"), DataSlot::required("candidate_b"), MATERIAL[0], MATERIAL[1], REFERENCES];
const SINGLE: &[DataSlot] = &[DataSlot::required("candidate"), MATERIAL[0], MATERIAL[1], REFERENCES];

/// A text to judge, with its name in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownText<'a> {
    /// Its name in the data: a candidate's id.
    pub name: &'a str,
    /// The text.
    pub text: &'a str,
}

/// One question to a judge.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgeQuestion<'a> {
    /// The sample whose context and instruction are shown.
    pub sample: &'a Sample,
    /// Position among the judge's attributes.
    pub attribute: usize,
    /// In presentation order: two texts for a pair, one for a rating.
    pub shown: Vec<ShownText<'a>>,
    /// Empty for a judgement without reference.
    pub references: Vec<&'a str>,
    /// Distinguishes the question from others about the same texts; seeds of sampled answers depend on it.
    pub tag: String,
}

impl JudgeQuestion<'_> {
    /// The suffix of its request ids.
    fn tail(&self) -> String {
        if self.tag.is_empty() { String::new() } else { format!("/{}", self.tag) }
    }
}

/// One model as a judge.
pub struct ModelJudge<'m> {
    model: &'m dyn LanguageModel,
    options: JudgingOptions,
    offered: OfferedVerdicts,
    labels: LabelSet,
    layout: PromptLayout,
    /// By attribute.
    templates: Vec<Template>,
    /// Settings, besides the templates, that prompts depend on, by attribute.
    texts: Vec<[String; 2]>,
    /// Present if the model has a class head: rewards decide.
    reward: Option<RewardJudge>,
    /// The temperature of sampled answers, also for a single cycle.
    sampled: Option<f64>,
    /// Distinguishes its requests from those of another judge.
    suffix: String,
}

impl<'m> ModelJudge<'m> {
    /// Loads the prompts of each attribute for `model` and validates them and the options, without querying the model.
    pub fn new(options: &JudgingOptions, model: &'m dyn LanguageModel) -> Result<Self, MethodError> {
        options.check()?;
        let reward = RewardJudge::for_model(model)?;
        if reward.is_some() {
            options.check_rewarded()?;
        }
        let layout = layout(options, model)?;
        let offered = options.offered();
        let words = options.attribute_words()?;
        let mut judging = Self {
            model,
            options: options.clone(),
            offered,
            labels: offered.labels()?,
            layout,
            templates: Vec::with_capacity(words.len()),
            texts: Vec::with_capacity(words.len()),
            reward,
            sampled: None,
            suffix: String::new(),
        };
        for one in &words {
            judging.load(one, words.len())?;
        }
        Ok(judging)
    }

    fn load(&mut self, words: &AttributeWords, attributes: usize) -> Result<(), MethodError> {
        let options = &self.options;
        let criteria = criteria(options.criteria.as_deref(), words, attributes)?;
        let rubric = options.rubric.as_ref().map(|rubric| text_or_file("--rubric", rubric)).transpose()?;
        let rubric = rubric.unwrap_or_else(|| options.default_rubric());
        let rationale = if options.verdict == VerdictMode::Label { "" } else { "yes" }.to_owned();
        let mut settings = word_settings(words, &options.noun);
        let of_mode = if options.mode == Mode::Pairwise { &TEMPLATES[..1] } else { &TEMPLATES[1..] };
        settings.extend([("criteria", criteria.clone()), ("rubric", rubric.clone()), ("rationale", rationale)]);
        match options.mode {
            Mode::Pairwise => {
                let name = |letter: &str| format!("{} {letter}", capitalised(&options.noun));
                let ties = if options.ties { "yes" } else { "" };
                settings.extend([("name_a", name("A")), ("name_b", name("B")), ("ties", ties.to_owned())]);
            }
            Mode::Pointwise => {
                settings.extend([("min", options.scale.min.to_string()), ("max", options.scale.max.to_string())]);
            }
        }
        let template = Template::load(options.template(), of_mode, settings, &self.layout)?;
        self.templates.push(template.guarding_verdicts(&self.offered.names()));
        self.texts.push([criteria, rubric]);
        Ok(())
    }

    /// A judge that samples each answer at this temperature.
    #[must_use]
    pub fn sampling_at(self, temperature: f64) -> Self {
        Self { sampled: Some(temperature), ..self }
    }

    /// Adds a suffix to request ids, for runs in which several judges answer the same questions.
    #[must_use]
    pub fn called(self, suffix: String) -> Self {
        Self { suffix, ..self }
    }

    /// The name of its prompt.
    pub fn template(&self) -> &str {
        if self.reward.is_some() { "reward" } else { self.options.template() }
    }

    /// Adds everything that verdicts depend on besides the model.
    pub fn sign(&self, signature: Signature) -> Signature {
        let signature = signature.with_options(&self.options);
        if let Some(reward) = &self.reward {
            let signature = signature.with("verdict", "reward").with("format", reward.layout().name());
            return signature.with_templates([reward.template()]);
        }
        let [criteria, rubric] = [0, 1].map(|k| short_hash(self.texts.iter().map(|texts| texts[k].as_str())));
        let signature = signature.with("criteria", &criteria).with("rubric", &rubric);
        signature.with_layout(&self.layout).with_templates(&self.templates)
    }

    /// The signature of a stage that it answers.
    pub fn signature(&self, stage: &'static str) -> Signature {
        self.sign(Signature::new(stage, self.model))
    }

    /// Whether rewards decide instead of labels.
    pub(super) fn is_rewarded(&self) -> bool {
        self.reward.is_some()
    }

    /// Answers all questions and passes each verdict to `keep` with the index of its question. Questions with an empty
    /// text are skipped. All prompts are checked before the first query.
    pub(super) fn ask(
        &self,
        run: &mut Run<'_>,
        questions: &[JudgeQuestion<'_>],
        keep: &mut KeepPart<'_, JudgeVerdict>,
    ) -> Result<(), MethodError> {
        let mut asked = Vec::with_capacity(questions.len());
        for (index, question) in questions.iter().enumerate() {
            if question.shown.iter().any(|shown| shown.text.trim().is_empty()) {
                keep(index, JudgeVerdict::none(Outcome::Empty), run.output()).map_err(MethodError::Output)?;
            } else {
                match &self.reward {
                    Some(reward) => {
                        for shown in &question.shown {
                            run.quotes(reward.render(question.sample, shown.text, &question.references)?.quoted);
                        }
                    }
                    None => run.quotes(self.render(question)?.quoted),
                }
                asked.push(index);
            }
        }
        if let Some(reward) = &self.reward {
            return self.ask_rewards(reward, run, questions, &asked, keep);
        }
        if self.options.verdict == VerdictMode::Label {
            let requests = asked.iter().map(|index| self.label_request(&questions[*index]));
            return run.score_by(self.model, requests, |at, result, output| {
                keep(asked[at], JudgeVerdict::from_labels(&result, self.offered), output)
            });
        }
        let cycles = usize::from(self.options.cycles);
        let requests =
            (0..asked.len() * cycles).map(|at| self.text_request(&questions[asked[at / cycles]], at % cycles));
        let mut open: Vec<Vec<Option<GenerateResult>>> = vec![vec![None; cycles]; asked.len()];
        run.generate_by(self.model, requests, |at, result, output| {
            let of_question = &mut open[at / cycles];
            of_question[at % cycles] = Some(result);
            if of_question.iter().any(Option::is_none) {
                return Ok(());
            }
            let results: Vec<GenerateResult> = std::mem::take(of_question).into_iter().flatten().collect();
            let verdict = JudgeVerdict::from_texts(&results, self.offered, self.options.verdict.has_labels());
            keep(asked[at / cycles], verdict, output)
        })
    }

    /// Requests the reward of each text once, however often it is compared.
    fn ask_rewards(
        &self,
        reward: &RewardJudge,
        run: &mut Run<'_>,
        questions: &[JudgeQuestion<'_>],
        asked: &[usize],
        keep: &mut KeepPart<'_, JudgeVerdict>,
    ) -> Result<(), MethodError> {
        // The inputs that a reward depends on.
        let mut places: BTreeMap<(&str, &str, &[&str]), usize> = BTreeMap::new();
        let mut texts: Vec<(usize, usize)> = Vec::new();
        let mut pairs: Vec<[usize; 2]> = Vec::new();
        for index in asked {
            let question = &questions[*index];
            let mut place = |shown: usize| {
                let key = (&*question.sample.id, question.shown[shown].text, &*question.references);
                *places.entry(key).or_insert_with(|| {
                    texts.push((*index, shown));
                    texts.len() - 1
                })
            };
            pairs.push([place(0), place(1)]);
        }
        let request = |(index, shown): &(usize, usize)| {
            let question = &questions[*index];
            let text = question.shown[*shown];
            let rendered = reward.render(question.sample, text.text, &question.references);
            ScoreRequest {
                id: format!("{}/reward/{}{}{}", question.sample.id, text.name, question.tail(), self.suffix),
                prompt: reward.prompt(rendered.expect("it could be rendered before")),
                ask: Ask::Classes,
            }
        };
        let mut results: Vec<Option<ScoreResult>> = vec![None; texts.len()];
        let mut of_text: Vec<Vec<usize>> = vec![Vec::new(); texts.len()];
        for (place, [first, second]) in pairs.iter().enumerate() {
            of_text[*first].push(place);
            if second != first {
                of_text[*second].push(place);
            }
        }
        run.score_by(self.model, texts.iter().map(request), |at, result, output| {
            results[at] = Some(result);
            for place in std::mem::take(&mut of_text[at]) {
                // Whichever of the two arrives second completes the pair.
                if let [Some(first), Some(second)] = pairs[place].map(|text| results[text].as_ref()) {
                    keep(asked[place], JudgeVerdict::from_rewards([first, second], self.offered), output)?;
                }
            }
            Ok(())
        })
    }

    /// Whether its answers have probabilities.
    fn has_labels(&self) -> bool {
        self.reward.is_some() || self.options.verdict.has_labels()
    }

    /// The fields of a verdict in its row.
    pub(super) fn row(&self, verdict: &JudgeVerdict) -> Value {
        row! { ..verdict.row(self.offered), "precision": self.model.description().precision }
    }

    /// Reads the verdict from a row of this judge.
    pub(super) fn read(&self, row: &Value) -> Result<JudgeVerdict, RowError> {
        let verdict = JudgeVerdict::read(row, self.offered, self.has_labels())?;
        let (there, cycles) = (verdict.answers.len(), usize::from(self.options.cycles));
        if there > 0 && there != cycles {
            return Err(format!("`answers` has {}, but --cycles is {cycles}", counted(there, "answer")).into());
        }
        Ok(verdict)
    }

    fn render(&self, question: &JudgeQuestion<'_>) -> Result<Rendered, MethodError> {
        let texts: Vec<&str> = question.shown.iter().map(|shown| shown.text).collect();
        let [context, instruction] = material(question.sample);
        let mut data = vec![context, instruction];
        match (self.options.mode, texts.as_slice()) {
            (Mode::Pairwise, [first, second]) => data.extend([("candidate_a", *first), ("candidate_b", *second)]),
            (Mode::Pointwise, [text]) => data.push(("candidate", *text)),
            _ => unreachable!("a question shows what its mode asks about"),
        }
        let references = question.references.as_slice();
        if references.len() > MAX_LIST {
            let (id, count) = (&question.sample.id, references.len());
            let why = format!("sample `{id}` has {count} references; the maximum shown together is {MAX_LIST}");
            return MethodError::refuse("--reference", why, "judge with each reference separately: --references each");
        }
        Ok(self.templates[question.attribute].render_with(&question.sample.id, &data, &[("references", references)])?)
    }

    /// The prompt of a question; `ask` has checked that it renders.
    pub fn prompt(&self, question: &JudgeQuestion<'_>) -> Prompt {
        self.render(question).expect("it could be rendered before").prompt(&self.layout)
    }

    fn label_request(&self, question: &JudgeQuestion<'_>) -> ScoreRequest {
        ScoreRequest {
            id: self.id(question) + &self.suffix,
            prompt: self.prompt(question),
            ask: Ask::Labels(self.labels.clone()),
        }
    }

    fn text_request(&self, question: &JudgeQuestion<'_>, cycle: usize) -> GenerateRequest {
        let id = self.id(question);
        let options = &self.options;
        let verdict = options.verdict.has_labels().then(|| (MARKER.to_owned(), self.labels.clone()));
        let mut request = GenerateRequest::greedy(id, self.prompt(question), options.max_tokens as usize);
        request.verdict = verdict;
        if let Some(temperature) = self.sampled.or_else(|| (options.cycles > 1).then_some(options.temperature)) {
            let mut parts = vec!["cycle".to_owned(), request.id.clone(), cycle.to_string()];
            parts.extend(self.sampled.map(|temperature| temperature.to_string()));
            let seed = seed_for(options.seed, &parts.iter().map(String::as_str).collect::<Vec<_>>());
            request.sampling = Sampling::Random { temperature, limits: SamplingLimits::default(), seed };
            request.id = format!("{}#{cycle}", request.id);
        }
        request.id.push_str(&self.suffix);
        request
    }

    /// The common part of seeds and request ids.
    fn id(&self, question: &JudgeQuestion<'_>) -> String {
        let names: Vec<&str> = question.shown.iter().map(|shown| shown.name).collect();
        let attribute = &self.options.attribute[question.attribute];
        format!("{}/{attribute}/{}{}", question.sample.id, names.join("/"), question.tail())
    }
}

/// If only the verdict is requested, the answer begins with the marker, after any other prefix.
fn layout(options: &JudgingOptions, model: &dyn LanguageModel) -> Result<PromptLayout, MethodError> {
    if options.verdict != VerdictMode::Label {
        return options.layout.layout(model.description(), "Assessment:");
    }
    let layout = options.layout.layout(model.description(), "Verdict:")?;
    let answer_prefix = format!("{} {MARKER}", layout.answer_prefix).trim_start().to_owned();
    Ok(PromptLayout { answer_prefix, ..layout })
}
