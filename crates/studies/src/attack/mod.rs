//! Attacks on methods: the effect of texts that address their judge, and of defences.

mod figures;
mod items;
mod options;
mod report;
mod target;
#[cfg(test)]
mod tests;
mod texts;

use probity_data::Sample;
use probity_lm::{did_you_mean, nearest};
use serde_json::json;

pub(crate) use options::AttackParams;

use crate::builtin::Builtin;
use crate::defence::{Defence, signed};
use crate::defended::PARAPHRASE;
use crate::question::{first_duplicate, short_hash};
use crate::{Headline, Input, Method, MethodError, MethodReport, Outcomes, Run, Signature, row};
use figures::PromptFigures;
use items::{AttackedItem, Variants};
use target::Target;
use texts::AttackText;

/// The table of attacks.
const ATTACKS: &str = "attacks";
/// The table of results by item.
const ATTACKED: &str = "attacked";

/// Attacks; see [`Method::LONG_ABOUT`].
pub(crate) struct Attack;

impl Method for Attack {
    type Params = AttackParams;
    const NAME: &'static str = "attack";
    const ABOUT: &'static str = "Measure how attacks in texts change a judge's verdicts";
    const LONG_ABOUT: &'static str = "\
Measure how attacks in texts change a judge's verdicts.

In each sample the candidate that people like less (by gold scores or preference; without either, one drawn by --seed) \
receives an attack, and the method judges again whether it or the best other candidate is better. Attacks are \
injections, false verdicts and reasons, claims of authority, updated criteria, persuasion, look-alike letters, and \
one-token openers instead of an answer; docs/methods/attack.md lists all, with sources. Each is compared with a \
harmless text of about the same length in the same position, because any text after an answer moves a score.

turned is the share of items in which the attacked candidate is preferred with the attack, among those in which it was \
not preferred with the harmless text. shift is the change of its score, from 0 to 1: in a comparison the probability \
that it is the better one, in a rating the position on the scale.

--defence measures each defence against none: how many verdicts still turn, and what it costs in accuracy on the \
unchanged candidates. To use a defence, pass the same option to compare, judge, g-eval, prompt-scoring, checklist or \
parapluie.

Files: `attacks.jsonl` (the texts), `attacked.jsonl` (method, defence, item, attack, or `none` for the unchanged \
candidates; scores from 0 to 1 of the attacked candidate and of the other one, with the harmless text and with the \
attack; turned) and `summary.json`.";

    // The prompt of a defence that any method may use.
    const PROMPTS: &'static [Builtin] = &[PARAPHRASE];

    fn inputs(params: &AttackParams) -> Vec<Input> {
        params.texts.iter().map(|path| Input { option: "texts", path: path.clone() }).collect()
    }

    fn run(params: &AttackParams, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        if let Some(twice) = first_duplicate(&params.target) {
            return MethodError::refuse(format!("--method {twice}"), "repeated", "name each method once");
        }
        let targets = params.target.iter().map(|label| Target::read(label, params)).collect::<Result<Vec<_>, _>>()?;
        let attacks = attacks(params)?;
        let defences = defences(params, &targets)?;
        let items = items::choose(params, samples)?;
        let variants = Variants::new(&items, &attacks);
        run.table(ATTACKS, attacks.len())?;
        attacks.iter().enumerate().try_for_each(|(index, attack)| run.row(ATTACKS, index, attack))?;
        let (mut found, mut outcomes) = (Vec::new(), Outcomes::default());
        for (target, defence) in
            targets.iter().flat_map(|target| defences.iter().map(move |defence| (target, *defence)))
        {
            let verdicts = target.judge(defence, &variants.samples, run)?;
            outcomes.extend(&verdicts.outcomes);
            let name = defence.map_or("none", Defence::name);
            // The run without a defence comes first.
            let before = found.iter().find(|one: &&PromptFigures| one.method == target.label);
            let figures =
                PromptFigures::new(&target.label, name, &attacks, &items, &variants.places, &verdicts, before);
            found.push(figures);
        }
        if run.is_rehearsal() {
            return Err(MethodError::Rehearsed);
        }
        write_items(&found, &items, &attacks, run)?;
        Ok(report(params, &found, &attacks, &items, outcomes, run))
    }
}

/// The chosen attacks: all of the user's own unless some are named.
fn attacks(params: &AttackParams) -> Result<Vec<AttackText>, MethodError> {
    let mut shipped = texts::shipped(&params.noun);
    let mut own = match &params.texts {
        Some(path) => texts::read_own(path, &params.noun, &shipped)?,
        None => Vec::new(),
    };
    for wanted in &params.attack {
        let names = || shipped.iter().chain(&own).flat_map(|one| [one.name.as_str(), one.family.as_str()]);
        if !names().any(|name| name == wanted) {
            let near = did_you_mean(nearest(wanted, names()));
            let why = format!("unknown attack or family{near}");
            return MethodError::refuse(
                format!("--attack {}", wanted.escape_debug()),
                why,
                "see the list in docs/methods/attack.md",
            );
        }
    }
    let is_named = |one: &AttackText| params.attack.contains(&one.name) || params.attack.contains(&one.family);
    shipped.retain(|one| params.attack.is_empty() || is_named(one));
    if own.iter().any(is_named) {
        own.retain(is_named);
    }
    Ok(shipped.into_iter().chain(own).collect())
}

/// No defence, then the chosen ones.
fn defences<'p>(params: &'p AttackParams, targets: &[Target]) -> Result<Vec<Option<&'p Defence>>, MethodError> {
    let names: Vec<&str> = params.defence.iter().map(Defence::name).collect();
    if let Some(twice) = first_duplicate(&names) {
        return MethodError::refuse(format!("--defence {twice}"), "repeated", "name each defence once");
    }
    for defence in &params.defence {
        targets.iter().try_for_each(|target| target.check(defence))?;
    }
    Ok(std::iter::once(None).chain(params.defence.iter().map(Some)).collect())
}

fn write_items(
    found: &[PromptFigures],
    items: &[AttackedItem<'_>],
    attacks: &[AttackText],
    run: &mut Run<'_>,
) -> Result<(), MethodError> {
    run.table(ATTACKED, found.len() * items.len() * (1 + attacks.len()))?;
    // `none` for the unchanged candidates.
    let names = || std::iter::once("none").chain(attacks.iter().map(|attack| attack.name.as_str()));
    let mut index = 0;
    for one in found {
        for (item, (plain, of_item)) in items.iter().zip(one.plain.iter().zip(&one.items)) {
            for (attack, attacked) in names().zip(std::iter::once(plain).chain(of_item)) {
                let row = row! {
                    "method": one.method, "defence": one.defence, "item": item.sample.id,
                    "candidate": item.attacked.id, "attack": attack, ..attacked,
                };
                run.row(ATTACKED, index, &row)?;
                index += 1;
            }
        }
    }
    Ok(())
}

fn report(
    params: &AttackParams,
    found: &[PromptFigures],
    attacks: &[AttackText],
    items: &[AttackedItem<'_>],
    outcomes: Outcomes,
    run: &Run<'_>,
) -> MethodReport {
    let texts = attacks.iter().flat_map(|one| [one.name.as_str(), one.text.as_str()]);
    let signature = Signature::new(Attack::NAME, run.model())
        .with("methods", &params.target.join(" "))
        .with("attacks", &short_hash(texts))
        .with("defences", &signed(&params.defence))
        .with("items", &items.len());
    let mut of_prompts = report::prompts(found);
    let without_gold = items.iter().filter(|item| !item.has_gold).count();
    if without_gold > 0 {
        of_prompts.note(format!(
            "{without_gold} of {} items have neither gold for `{}` nor a preference; the attacked candidate is a \
             random one",
            items.len(),
            params.attribute
        ));
    }
    if items.len() < params.items as usize {
        of_prompts.note(format!("only {} samples have two candidates; --items is {}", items.len(), params.items));
    }
    let headline = found.iter().filter(|one| one.defence == "none");
    MethodReport {
        values: json!({ "items": items.len(), "attacks": attacks.len(), "prompts": found }),
        tables: vec![of_prompts, report::attacks(found)],
        outcomes,
        headline: headline
            .map(|one| Headline::new("verdicts turned", Some(&one.method), one.turned.figure.share))
            .collect(),
        verdict: vec![report::conclusion(found, items.len())],
        ..MethodReport::new(signature)
    }
}
