//! References by generation: what is asked for each sample, and what came of it.

use std::collections::BTreeMap;

use probity_data::Sample;
use probity_lm::{GenerateRequest, GenerateResult, LanguageModel, Prompt, Sampling, SamplingLimits};
use probity_options::name;
use rand::Rng;
use serde_json::{Value, json};

use super::REVISIONS;
use super::options::{ReviserOptions, RevisionFocus, RevisionKind};
use super::rows::{RevisionIdentity, row};
use super::similarity::{Measures, Similarity};
use crate::builtin::{Builtin, DataSlot};
use crate::judge::Mode;
use crate::pairs::{rng_for, seed_for};
use crate::question::{MATERIAL, material, short_hash};
use crate::stage::{KeepPart, MethodStage, RowError};
use crate::template::{PromptLayout, Rendered, Template, TemplateError};
use crate::written::{WrittenOutcome, WrittenText};
use crate::{MethodError, Run, Signature};

/// Of paraphrases.
const TEMPERATURE: f64 = 1.0;

/// What outcomes and rows call a reference that is there, whole.
pub(super) const REVISED: &str = "revised";

/// The prompts, by what is shown: a text with another as guidance, a text by itself, both texts, none, a given
/// reference.
pub(super) const TEMPLATES: &[Builtin] = &[
    Builtin { name: "adapted", source: include_str!("../prompts/revise_adapted.j2"), data: GUIDED },
    Builtin { name: "alone", source: include_str!("../prompts/revise_alone.j2"), data: ALONE },
    Builtin { name: "both", source: include_str!("../prompts/revise_both.j2"), data: GUIDED },
    Builtin { name: "direct", source: include_str!("../prompts/revise_direct.j2"), data: &MATERIAL },
    Builtin { name: "diversified", source: include_str!("../prompts/revise_diversified.j2"), data: PARAPHRASED },
];

const GUIDED: &[DataSlot] = &[DataSlot::required("response"), DataSlot::required("guidance"), MATERIAL[0], MATERIAL[1]];
const ALONE: &[DataSlot] = &[DataSlot::required("response"), MATERIAL[0], MATERIAL[1]];
const PARAPHRASED: &[DataSlot] = &[DataSlot::required("reference"), MATERIAL[0], MATERIAL[1]];

/// References of one kind, for one attribute or aspect.
pub(crate) struct RevisionSet {
    pub(crate) kind: RevisionKind,
    pub(crate) focus: RevisionFocus,
    pub(crate) template: Template,
}

/// One reference to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RevisionJob {
    pub(crate) item: usize,
    /// The position of its [`RevisionSet`].
    pub(crate) set: usize,
    /// The candidate to be revised; of both at once, the one shown first.
    pub(crate) primary: Option<usize>,
    /// The candidate shown besides.
    pub(crate) guidance: Option<usize>,
    /// The given reference to be paraphrased, and the number of the paraphrase.
    pub(crate) paraphrase: Option<(usize, usize)>,
}

/// A reference, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Revision {
    pub(crate) job: RevisionJob,
    pub(crate) made: WrittenText,
    /// To the candidates that were shown, or to all where none was, by their position.
    pub(crate) similarity: Vec<(usize, Similarity)>,
}

impl Revision {
    /// Of a job whose prompt would have nothing to show.
    fn without_text(job: RevisionJob) -> Self {
        Self { job, made: WrittenText::nothing(), similarity: Vec::new() }
    }

    /// How it ended, as outcomes count it: a text that was cut off and serves all the same leaves nothing open.
    pub(crate) fn outcome(&self, use_truncated: bool) -> &'static str {
        match &self.made.ended {
            WrittenOutcome::Written => REVISED,
            WrittenOutcome::Truncated if use_truncated => "truncated_used",
            ended => ended.name(),
        }
    }

    /// Whether it may serve as a reference.
    pub(crate) fn is_usable(&self, use_truncated: bool) -> bool {
        let is_cut = self.made.ended == WrittenOutcome::Truncated;
        self.made.ended == WrittenOutcome::Written || (use_truncated && is_cut)
    }
}

/// What references are made for and how, besides their own options.
#[derive(Debug, Clone)]
pub(crate) struct RevisionSettings<'a> {
    pub(crate) options: &'a ReviserOptions,
    pub(crate) mode: Mode,
    /// What a candidate is called.
    pub(crate) noun: &'a str,
    pub(crate) max_tokens: u32,
    pub(crate) layout: PromptLayout,
    pub(crate) seed: u64,
}

/// Makes references.
pub(crate) struct Reviser<'a> {
    pub(crate) samples: &'a [Sample],
    pub(crate) how: RevisionSettings<'a>,
    pub(crate) sets: Vec<RevisionSet>,
}

impl<'a> Reviser<'a> {
    /// References of these kinds. Those that do not depend on `foci` are made once: answers, paraphrases, and revisions
    /// by aspect.
    pub(crate) fn new(
        how: RevisionSettings<'a>,
        kinds: &[RevisionKind],
        foci: &[RevisionFocus],
        samples: &'a [Sample],
    ) -> Result<Self, MethodError> {
        let mut sets = Vec::new();
        for &kind in kinds {
            let foci = match kind {
                RevisionKind::Direct | RevisionKind::Diversified => {
                    vec![RevisionFocus { name: None, comparative: "better".into(), criteria: "–".into() }]
                }
                RevisionKind::Aspects => how.options.aspects()?,
                RevisionKind::Adapted | RevisionKind::Both | RevisionKind::Each => foci.to_vec(),
            };
            for focus in foci {
                let template = load(&how, kind, &focus)?;
                sets.push(RevisionSet { kind, focus, template });
            }
        }
        Ok(Self { samples, how, sets })
    }

    /// What the texts of references depend on besides model, noun and seed.
    pub(crate) fn sign(&self, signature: Signature) -> Signature {
        let RevisionSettings { options, mode, max_tokens, layout, .. } = &self.how;
        let foci = self.sets.iter().flat_map(|set| [set.kind.as_str(), &set.focus.comparative, &set.focus.criteria]);
        let mut signature = signature
            .with("mode", &name(mode))
            .with("revision-criteria", &short_hash(foci))
            .with("revision-tokens", max_tokens)
            .with("use-truncated", &options.use_truncated)
            .with("good-draft", &name(&options.good_draft))
            .with_layout(layout);
        if self.sets.iter().any(|set| set.kind == RevisionKind::Diversified) {
            signature = signature.with("diversify", &options.diversify);
        }
        signature.with_templates(self.sets.iter().map(|set| &set.template))
    }

    /// All references to be made, sample by sample.
    pub(crate) fn jobs(&self) -> Vec<RevisionJob> {
        let items = 0..self.samples.len();
        items.flat_map(|item| (0..self.sets.len()).flat_map(move |set| self.jobs_of(item, set))).collect()
    }

    fn jobs_of(&self, item: usize, set: usize) -> Vec<RevisionJob> {
        let sample = &self.samples[item];
        let job = |primary, guidance| RevisionJob { item, set, primary, guidance, paraphrase: None };
        match (self.sets[set].kind, self.how.mode) {
            (RevisionKind::Diversified, _) => {
                let numbers = (0..sample.references.len())
                    .flat_map(|k| (0..usize::from(self.how.options.diversify)).map(move |n| (k, n)));
                numbers.map(|number| RevisionJob { paraphrase: Some(number), ..job(None, None) }).collect()
            }
            (_, Mode::Pairwise) if sample.candidates.len() != 2 => Vec::new(),
            (RevisionKind::Direct, _) => vec![job(None, None)],
            (RevisionKind::Adapted | RevisionKind::Aspects | RevisionKind::Both, Mode::Pairwise) => {
                let primary = usize::from(self.coin(item, set));
                vec![job(Some(primary), Some(1 - primary))]
            }
            _ => (0..sample.candidates.len()).map(|candidate| job(Some(candidate), None)).collect(),
        }
    }

    /// C of equation 2, tossed anew for each sample, kind and aspect.
    fn coin(&self, item: usize, set: usize) -> bool {
        let RevisionSet { kind, focus, .. } = &self.sets[set];
        let parts = ["primary", self.samples[item].id.as_str(), kind.as_str(), focus.name.as_deref().unwrap_or("")];
        rng_for(self.how.seed, &parts).random()
    }

    /// Makes the references of these jobs.
    fn make(
        &self,
        jobs: &[RevisionJob],
        run: &mut Run<'_>,
        keep: &mut KeepPart<'_, Revision>,
    ) -> Result<(), MethodError> {
        let (asked, empty): (Vec<usize>, Vec<usize>) =
            (0..jobs.len()).partition(|index| self.can_be_asked(&jobs[*index]));
        for index in &asked {
            // Prompts are made when the model takes them; that all of them can be is found out first.
            run.quotes(self.render(&jobs[*index])?.quoted);
        }
        let measures = Measures::new();
        run.generate(asked.iter().map(|index| self.request(&jobs[*index])), |position, result, output| {
            let index = asked[position];
            keep(index, self.revision(jobs[index], &result, &measures), output)
        })?;
        for index in empty {
            keep(index, Revision::without_text(jobs[index]), run.output()).map_err(MethodError::Output)?;
        }
        Ok(())
    }

    /// Whether there is something to show: every text that the prompt is about.
    fn can_be_asked(&self, job: &RevisionJob) -> bool {
        let shown = self.shown(job);
        let is_there = |name: &str| shown.iter().any(|(slot, text)| *slot == name && !text.trim().is_empty());
        match (job.primary, job.guidance, job.paraphrase) {
            (None, None, None) => is_there("instruction") || is_there("context"),
            (None, None, Some(_)) => is_there("reference"),
            (_, None, _) => is_there("response"),
            _ => is_there("response") && is_there("guidance"),
        }
    }

    fn shown(&self, job: &RevisionJob) -> Vec<(&'static str, &'a str)> {
        let sample = &self.samples[job.item];
        let text = |candidate: usize| &*sample.candidates[candidate].text;
        let mut shown = material(sample).to_vec();
        shown.extend(job.primary.map(|candidate| ("response", text(candidate))));
        shown.extend(job.guidance.map(|candidate| ("guidance", text(candidate))));
        shown.extend(job.paraphrase.map(|(reference, _)| ("reference", &*sample.references[reference])));
        shown
    }

    fn render(&self, job: &RevisionJob) -> Result<Rendered, TemplateError> {
        self.sets[job.set].template.render(&self.samples[job.item].id, &self.shown(job))
    }

    /// What the model is shown; the prompt can be made, as [`RevisionStage`] has found out.
    pub(crate) fn prompt(&self, job: &RevisionJob) -> Prompt {
        self.render(job).expect("it could be rendered before").prompt(&self.how.layout)
    }

    fn request(&self, job: &RevisionJob) -> GenerateRequest {
        let RevisionSet { kind, focus, .. } = &self.sets[job.set];
        let sample = &self.samples[job.item];
        let mut id = format!("{}/{kind}", sample.id);
        let candidate = job.primary.map(|candidate| sample.candidates[candidate].id.clone());
        for part in focus.name.iter().cloned().chain(candidate).chain(job.paraphrase.map(|(k, n)| format!("{k}#{n}"))) {
            id = format!("{id}/{part}");
        }
        let rendered = self.render(job).expect("it could be rendered before");
        let stop = rendered.stop().into_iter().collect();
        let request = GenerateRequest {
            stop,
            ..GenerateRequest::greedy(id, rendered.prompt(&self.how.layout), self.how.max_tokens as usize)
        };
        match job.paraphrase {
            None => request,
            Some((reference, number)) => {
                let parts = ["paraphrase", &sample.id, &reference.to_string(), &number.to_string()];
                let seed = seed_for(self.how.seed, &parts);
                GenerateRequest {
                    sampling: Sampling::Random { temperature: TEMPERATURE, limits: SamplingLimits::default(), seed },
                    ..request
                }
            }
        }
    }

    fn revision(&self, job: RevisionJob, result: &GenerateResult, measures: &Measures) -> Revision {
        let made = WrittenText::of(result);
        Revision { similarity: self.similarity(job, &made.text, measures), made, job }
    }

    /// How like a text is to the candidates that were shown, or to all where none was.
    fn similarity(&self, job: RevisionJob, text: &str, measures: &Measures) -> Vec<(usize, Similarity)> {
        let sample = &self.samples[job.item];
        let compared: Vec<usize> = match job.primary {
            _ if text.is_empty() => Vec::new(),
            Some(primary) => std::iter::once(primary).chain(job.guidance).collect(),
            None => (0..sample.candidates.len()).collect(),
        };
        let others: Vec<&str> = compared.iter().map(|candidate| &*sample.candidates[*candidate].text).collect();
        compared.iter().copied().zip(measures.of(text, &others)).collect()
    }
}

/// The stage in which references are made: one part, and one row, for each.
pub(crate) struct RevisionStage<'r, 'a> {
    reviser: &'r Reviser<'a>,
    jobs: Vec<RevisionJob>,
    measures: Measures,
    /// Settings and model.
    depends: String,
}

impl<'r, 'a> RevisionStage<'r, 'a> {
    /// All references that the reviser makes, with this model.
    pub(crate) fn new(reviser: &'r Reviser<'a>, model: &dyn LanguageModel) -> Self {
        let RevisionSettings { noun, seed, .. } = &reviser.how;
        let signature = reviser.sign(Signature::new(REVISIONS, model)).with("noun", *noun).with("seed", seed);
        Self { reviser, jobs: reviser.jobs(), measures: Measures::new(), depends: signature.to_string() }
    }
}

impl MethodStage for RevisionStage<'_, '_> {
    type Part = Revision;
    const MADE_ANEW: &'static [&'static str] = &["similarity"];

    fn name(&self) -> &'static str {
        REVISIONS
    }

    fn parts(&self) -> usize {
        self.jobs.len()
    }

    fn inputs(&self) -> Vec<String> {
        vec![self.depends.clone()]
    }

    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, Revision>) -> Result<(), MethodError> {
        self.reviser.make(&self.jobs, run, keep)
    }

    fn identity(&self, number: usize) -> Value {
        json!(RevisionIdentity::new(self.reviser, self.jobs[number]))
    }

    fn rows(&self, _: usize, revision: &Revision) -> serde_json::Result<Vec<Value>> {
        Ok(vec![serde_json::to_value(row(self.reviser, revision))?])
    }

    fn read(&self, number: usize, rows: &[Value]) -> Result<Revision, RowError> {
        let job = self.jobs[number];
        let made = WrittenText::read(&rows[0])?;
        Ok(Revision { similarity: self.reviser.similarity(job, &made.text, &self.measures), made, job })
    }

    fn stand_in(&self, number: usize) -> Revision {
        let made = WrittenText::stand_in(number, self.reviser.how.max_tokens as usize);
        Revision { made, ..Revision::without_text(self.jobs[number]) }
    }
}

fn load(how: &RevisionSettings<'_>, kind: RevisionKind, focus: &RevisionFocus) -> Result<Template, MethodError> {
    let own: Vec<_> = how.options.reviser_template.iter().filter(|own| own.kind == kind).collect();
    if let [first, _, ..] = own.as_slice() {
        let option = format!("--reviser-template {kind}={}", first.file);
        return MethodError::refuse(option, "this kind is given twice", "give one template for each kind");
    }
    let name = match kind {
        RevisionKind::Adapted | RevisionKind::Aspects if how.mode == Mode::Pairwise => "adapted",
        RevisionKind::Adapted | RevisionKind::Aspects | RevisionKind::Each => "alone",
        RevisionKind::Both => "both",
        RevisionKind::Direct => "direct",
        RevisionKind::Diversified => "diversified",
    };
    let builtin = TEMPLATES.iter().find(|builtin| builtin.name == name).expect("each kind has a template");
    let RevisionFocus { comparative, criteria, .. } = focus.clone();
    let (noun, if_good) = (how.noun.to_owned(), how.options.good_draft.sentence().to_owned());
    let settings =
        BTreeMap::from([("noun", noun), ("comparative", comparative), ("criteria", criteria), ("if_good", if_good)]);
    let choice = own.first().map_or(builtin.name, |own| own.file.as_str());
    Ok(Template::load(choice, &[*builtin], settings, &how.layout)?)
}
