//! References by revision (Zhang et al. 2024, `RevisEval`, sections 3.1 and I.2, appendices L and M).

mod options;
mod reviser;
mod rows;
mod similarity;
#[cfg(test)]
mod tests;

use probity_data::{Sample, SharedText};
use probity_lm::text::counted;
use serde_json::json;

pub(crate) use options::RevisionFocus;
pub(crate) use options::{ReviseParams, ReviserOptions, RevisionKind};
pub(crate) use reviser::{Reviser, Revision, RevisionJob, RevisionSettings};
pub(crate) use rows::{RevisionTally, revisions_table};

use crate::Builtin;
use crate::attributes::attribute_words;
use crate::judge::Mode;
use crate::question::LayoutOptions;
use crate::{Headline, Method, MethodError, MethodReport, Outcomes, Run, Signature, StageSpec, chats};

/// The table of all generated references.
pub(crate) const REVISIONS: &str = "revisions";

/// The table of samples with their references.
const REVISED: &str = "revised";

/// Revision; see [`Method::LONG_ABOUT`].
pub(crate) struct Revise;

impl Method for Revise {
    type Params = ReviseParams;
    const NAME: &'static str = "revise";
    const ABOUT: &'static str = "Generate references with a model, such as revisions";
    const LONG_ABOUT: &'static str = "\
Generate references with a model, such as revisions.

A reference helps a judge, and makes metrics applicable, if it is both good and close to the judged texts. The model \
therefore revises these texts (Zhang et al. 2024, RevisEval). Kind `adapted`: in a pair a fair coin selects the text \
to revise, and the other is shown as guidance; the coin is seeded and tossed for each sample by its id. Candidates \
that are judged separately are revised separately. Kind `aspects` makes such a revision for each aspect. Kinds to \
compare with: `direct`, the model's own answer to the task; `both`, one revision of both texts; `each`, two revisions, \
each of one text without the other; `diversified`, sampled paraphrases of the references in the data.

Texts are generated greedily (paraphrases are sampled). Only outer white space is removed. A text that reaches the \
token limit is `truncated`, and is no reference without --use-truncated; one without text is `empty`. Inspect some of \
them: weak models answer, explain or repeat instead of revising. `unchanged` counts exact copies of the revised text.

The similarity of a reference and a candidate is from 0 to 1: Levenshtein distance of characters and of words over the \
longer length, and ROUGE-L.

Files: `revisions.jsonl` (item, kind, aspect, primary and guidance candidate, text, outcome, finish, tokens, \
similarity), `revised.jsonl` and `summary.json`. `revised.jsonl` has the samples with the generated references in \
place of their own: data for any command that takes references, such as `probity metrics`. If each candidate has its \
own references, it has its own sample there, named ITEM#CANDIDATE. A sample without a usable reference is omitted and \
counted. --export-sets adds `set_reviser.jsonl` with the prompts and the usable references as chats.

Templates: adapted, alone (adapted and aspects for single candidates, and each), both, direct, diversified. Your own \
file is a Jinja template with the slots instruction, context, response, guidance (adapted, aspects and both in pairs), \
reference (diversified), noun, comparative, criteria.";

    const PROMPTS: &'static [Builtin] = reviser::TEMPLATES;

    const STAGES: &'static [StageSpec] = &[StageSpec { name: REVISIONS, roles: &["model"] }];

    fn layout(params: &ReviseParams) -> Option<&LayoutOptions> {
        Some(&params.layout)
    }

    fn run(params: &ReviseParams, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        let options = &params.reviser;
        options.check(&[params.kind], "--kind")?;
        ReviserOptions::check_mode(&[params.kind], params.mode, "--kind")?;
        if params.kind == RevisionKind::Diversified && samples.iter().all(|sample| sample.references.is_empty()) {
            let hint = "choose another kind";
            return MethodError::refuse("--kind diversified", "no sample has references to paraphrase", hint);
        }
        let layout = params.layout.layout(run.model().description(), "Answer:")?;
        let ReviseParams { mode, max_tokens, seed, .. } = *params;
        let how = RevisionSettings { options, mode, noun: &params.noun, max_tokens, layout, seed };
        let reviser = Reviser::new(how, &[params.kind], &[focus(params)?], samples)?;
        let signature = reviser.sign(Signature::new(Self::NAME, run.model()));
        let made = run.stage(&reviser.stage(run.model(), params))?.parts;
        let left_out = write_revised(&reviser, &made, run)?;
        if options.export_sets {
            let usable = made.iter().filter(|revision| revision.is_usable(options.use_truncated));
            let chats = usable.map(|revision| (reviser.prompt(&revision.job), revision.made.text.clone()));
            chats::write("set_reviser", chats, run)?;
        }
        Ok(report(&reviser, &made, left_out, signature))
    }
}

fn focus(params: &ReviseParams) -> Result<RevisionFocus, MethodError> {
    let criteria = params.criteria.as_deref();
    match &params.attribute {
        Some(attribute) => RevisionFocus::attribute(&attribute_words(attribute, None), criteria, 1),
        None => RevisionFocus::whole(criteria),
    }
}

/// Writes the samples with their references; returns the number omitted because they have none.
fn write_revised(reviser: &Reviser<'_>, made: &[Revision], run: &mut Run<'_>) -> Result<usize, MethodError> {
    let mut samples = Vec::new();
    let mut left_out = 0;
    for (item, sample) in reviser.samples.iter().enumerate() {
        let of_item = || made.iter().filter(move |revision| revision.job.item == item);
        let by_candidate =
            reviser.how.mode == Mode::Pointwise && of_item().any(|revision| revision.job.primary.is_some());
        let parts = if by_candidate { (0..sample.candidates.len()).map(Some).collect() } else { vec![None] };
        for part in parts {
            let usable = of_item().filter(|revision| part.is_none() || revision.job.primary == part);
            let usable = usable.filter(|revision| revision.is_usable(reviser.how.options.use_truncated));
            let references: Vec<SharedText> = usable.map(|revision| revision.made.text.as_str().into()).collect();
            if references.is_empty() {
                left_out += 1;
            } else {
                samples.push(with_references(sample, part, references));
            }
        }
    }
    run.table(REVISED, samples.len())?;
    samples.iter().enumerate().try_for_each(|(index, sample)| run.row(REVISED, index, sample))?;
    Ok(left_out)
}

/// The sample, or its part with a single candidate.
fn with_references(sample: &Sample, part: Option<usize>, references: Vec<SharedText>) -> Sample {
    match part {
        None => Sample { references, ..sample.clone() },
        Some(candidate) => Sample {
            id: format!("{}#{}", sample.id, sample.candidates[candidate].id),
            candidates: vec![sample.candidates[candidate].clone()],
            references,
            preference: None,
            ..sample.clone()
        },
    }
}

fn report(reviser: &Reviser<'_>, made: &[Revision], left_out: usize, signature: Signature) -> MethodReport {
    let mut outcomes = Outcomes::default();
    let use_truncated = reviser.how.options.use_truncated;
    for revision in made {
        outcomes.add_named(revision.outcome(use_truncated));
    }
    let pairs = reviser.how.mode == Mode::Pairwise;
    let not_a_pair = reviser.samples.iter().filter(|sample| pairs && sample.candidates.len() != 2).count();
    (0..not_a_pair).for_each(|_| outcomes.add_named("not_a_pair"));
    let tallies: Vec<RevisionTally> = RevisionTally::all(reviser, made);
    let mut table = revisions_table(&tallies);
    if left_out > 0 {
        let left_out = counted(left_out, "sample");
        table.note(format!("samples without a usable reference, omitted from revised.jsonl: {left_out}"));
    }
    let headline =
        tallies.iter().map(|tally| Headline::new("words kept", tally.aspect.as_deref(), tally.words_kept())).collect();
    let values = json!({ "references": tallies, "left_out": left_out });
    let verdict = vec![rows::conclusion(&tallies, use_truncated)];
    MethodReport { values, tables: vec![table], outcomes, headline, verdict, ..MethodReport::new(signature) }
}
