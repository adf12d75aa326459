//! The registry of all methods: judging methods, then studies, one line each.

use probity_methods::{DynMethod, entry};

const STUDIES: &[&dyn DynMethod] = &[
    entry::<crate::revise::Revise>(),
    entry::<crate::reviseval::RevisEval>(),
    entry::<crate::metacritique::MetaCritique>(),
    entry::<crate::refeval::RefEval>(),
    entry::<crate::revision::RevisionStudy>(),
    entry::<crate::learned::Learn>(),
    entry::<crate::learned::Learned>(),
    entry::<crate::attack::Attack>(),
];

/// All methods in display order.
pub fn methods() -> impl Iterator<Item = &'static dyn DynMethod> + Clone {
    probity_methods::methods().iter().chain(STUDIES).copied()
}

/// The method with this name.
pub fn method(name: &str) -> Option<&'static dyn DynMethod> {
    methods().find(|method| method.name() == name)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::{Arc, Mutex};

    use probity_lm::{Ask, LanguageModel, ScoreRequest, ScriptedModel};
    use probity_methods::Meta;
    use probity_methods::signing::{conditions, signed_name, signed_options};
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::roster::{self, GoldenCase, MethodRow, judging};
    use crate::template::{PromptLayout, Template, variables};
    use crate::testing::{configured, generated, run, sample};
    use crate::{Builtin, Metrics};

    #[test]
    fn names_are_unique_and_fit_for_a_command_line() {
        let names: BTreeSet<&str> = methods().map(DynMethod::name).collect();
        assert_eq!(names.len(), methods().count());
        assert!(names.iter().all(|n| n.chars().all(|c| c.is_ascii_lowercase() || c == '-')));
    }

    #[test]
    fn every_method_and_each_of_its_options_is_documented() {
        for method in methods() {
            assert!(
                !method.about().is_empty() && !method.about().ends_with('.') && !method.about().contains('\n'),
                "{}",
                method.name()
            );
            assert!(method.long_about().starts_with(method.about()), "{}", method.name());
            for option in method.options() {
                assert!(!option.help.is_empty(), "{} --{}", method.name(), option.name());
            }
        }
    }

    #[test]
    fn every_method_has_a_row_in_the_roster_of_tests() {
        let [registered, rows] = [methods().map(DynMethod::name).collect(), roster::names().collect::<BTreeSet<_>>()];
        let missing: Vec<_> = registered.difference(&rows).collect();
        assert!(missing.is_empty(), "no row for {missing:?}\n{}", roster::WHAT_TO_ADD);
        let unknown: Vec<_> = rows.difference(&registered).collect();
        assert!(unknown.is_empty(), "tests/methods.json has rows of methods that do not exist: {unknown:?}");
    }

    /// One golden case per method: two candidates, label probabilities by position, values computed by hand.
    #[test]
    fn golden_cases() {
        let falling = || {
            ScriptedModel::from_probabilities(|request| {
                (1..=choices(request)).map(|k| 0.5_f64.powi(k as i32)).collect()
            })
            .with_generation(|request| {
                let revise = request.prompt.text().contains("[Start of New");
                generated(if revise {
                    " the quality of text\n"
                } else if request.max_tokens < 9 {
                    "7"
                } else {
                    "Rather good. [[7]]"
                })
            })
        };
        for (name, method) in judging() {
            let GoldenCase { arguments, scores: expected, why } = &method.golden;
            let args = arguments_of(name, arguments.as_ref().unwrap_or(&method.arguments));
            let (result, output) = run(&args, &[sample("a", &[2.0, 1.0])], &suited(method, falling()));
            result.unwrap_or_else(|error| panic!("{args}: {error}"));
            let scores: Vec<f64> = match output.rows("revisions").as_slice() {
                [] => output.rows("scores").iter().map(|row| row["score"].as_f64().expect("scored")).collect(),
                [row, ..] => [0, 1].map(|to| row["similarity"][to]["word"].as_f64().expect("similar")).to_vec(),
            };
            let is_near = scores.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12);
            assert!(scores.len() >= 2 && is_near, "{args}: {scores:?}; by hand {expected:?}: {why}");
        }
    }

    /// The number of answers that a request offers.
    fn choices(request: &ScoreRequest) -> usize {
        if let Ask::Labels(labels) = &request.ask { labels.labels().len() } else { 1 }
    }

    /// The model, with a class if the method reads one.
    fn suited(method: &MethodRow, model: ScriptedModel) -> ScriptedModel {
        if method.reads_classes() { model.with_classes(["LABEL_0"]) } else { model }
    }

    fn arguments_of(name: &str, options: &str) -> String {
        format!("{name} {options}").trim_end().to_owned()
    }

    /// Answers in request order; the scripted model answers in reverse.
    struct InOrder(ScriptedModel);

    impl LanguageModel for InOrder {
        fn description(&self) -> &probity_lm::ModelDescription {
            self.0.description()
        }

        fn score(
            &self,
            requests: &mut probity_lm::Requests<'_, probity_lm::ScoreRequest>,
            sink: &mut probity_lm::Sink<'_, probity_lm::ScoreResult>,
        ) -> Result<probity_lm::Usage, probity_lm::LmError> {
            let mut usage = probity_lm::Usage::default();
            for (index, request) in requests.enumerate() {
                usage += self.0.score(&mut std::iter::once(request), &mut |_, result| sink(index, result))?;
            }
            Ok(usage)
        }

        fn generate(
            &self,
            requests: &mut probity_lm::Requests<'_, probity_lm::GenerateRequest>,
            sink: &mut probity_lm::Sink<'_, probity_lm::GenerateResult>,
        ) -> Result<probity_lm::Usage, probity_lm::LmError> {
            self.0.generate(requests, sink)
        }
    }

    /// The small runs of all judging methods, in all their modes.
    fn runs() -> impl Iterator<Item = (String, &'static MethodRow)> {
        judging().flat_map(|(name, row)| {
            let options = [&row.arguments].into_iter().chain(&row.more);
            options.map(move |options| (arguments_of(name, options), row))
        })
    }

    #[test]
    fn questions_of_a_run_have_names_of_their_own() {
        let samples = [sample("a", &[3.0, 1.0, 2.0]), sample("b", &[1.0, 2.0])];
        for (args, method) in runs() {
            let asked = Arc::new(Mutex::new(Vec::new()));
            let (scored, written) = (asked.clone(), asked.clone());
            let model = ScriptedModel::from_probabilities(move |request| {
                scored.lock().expect("no panic").push(request.id.clone());
                vec![0.1; choices(request)]
            })
            .with_generation(move |request| {
                written.lock().expect("no panic").push(request.id.clone());
                generated("3 [[A]]")
            });
            run(&args, &samples, &suited(method, model)).0.expect("runs");
            let asked = asked.lock().expect("no panic");
            assert_eq!(asked.iter().collect::<BTreeSet<_>>().len(), asked.len(), "{args}: {asked:?}");
        }
    }

    /// A model whose answers depend only on the prompt.
    fn noisy() -> ScriptedModel {
        ScriptedModel::from_probabilities(|request| {
            let text = request.prompt.text();
            let noise = text.bytes().fold(7_u32, |h, b| h.wrapping_mul(31).wrapping_add(u32::from(b)));
            (0..choices(request)).map(|k| f64::from(noise.rotate_left(5 * k as u32) % 97 + 1) / 1000.0).collect()
        })
        .with_generation(|request| generated(["3 [[A]]", "no", "[[B]], not 10"][request.prompt.text().len() % 3]))
    }

    #[test]
    fn a_judging_method_declares_the_scores_of_its_table() {
        let samples = [sample("a", &[3.0, 1.0, 2.0]), sample("b", &[1.0, 2.0])];
        let judges =
            |args: &str| method(args.split(' ').next().unwrap_or("")).is_some_and(DynMethod::judges_candidates);
        for (args, row) in runs().filter(|(args, _)| judges(args)) {
            let (summary, output) = run(&args, &samples, &suited(row, noisy()));
            let fields =
                |row: &&Value| json!([row["attribute"], row["item"], row["candidate"], row["score"]]).to_string();
            let mut written: Vec<String> = output.rows("scores").iter().map(fields).collect();
            let mut declared = Vec::new();
            for of in summary.expect("runs").scores.attributes {
                for (sample, scores) in samples.iter().zip(of.scores) {
                    let scored = sample.candidates.iter().zip(scores);
                    declared.extend(
                        scored.map(|(candidate, score)| {
                            json!([of.attribute, sample.id, candidate.id, score]).to_string()
                        }),
                    );
                }
            }
            written.sort_unstable();
            declared.sort_unstable();
            assert_eq!(declared, written, "{args}");
            assert!(!written.is_empty(), "{args}");
        }
    }

    #[test]
    fn results_do_not_depend_on_the_order_of_answers() {
        let samples = [sample("a", &[3.0, 1.0, 2.0]), sample("b", &[1.0, 2.0])];
        for (args, method) in runs() {
            let (backward, rows) = run(&args, &samples, &suited(method, noisy()));
            let (forward, same_rows) = run(&args, &samples, &InOrder(suited(method, noisy())));
            let values = |summary: crate::MethodReport| serde_json::to_value(summary).expect("plain values");
            assert_eq!(values(backward.expect("runs")), values(forward.expect("runs")), "{args}");
            for table in ["comparisons", "scores", "verdicts", "pairs", "revisions", "revised"] {
                assert_eq!(rows.rows(table), same_rows.rows(table), "{args}");
            }
        }
    }

    #[test]
    fn the_arguments_in_force_hold_the_defaults() {
        let params = configured("compare --attribute fluency").expect("valid").options_in_force();
        for (name, value) in
            [("pairs", "full"), ("rank", "auto"), ("debias", "per-prompt"), ("decide", "prob"), ("label_words", "A,B")]
        {
            assert_eq!(params[name], value, "{params:#}");
        }
    }

    #[test]
    fn the_sample_data_can_be_judged() {
        let text = include_str!("../../../samples/demo.jsonl");
        let samples: Vec<probity_data::Sample> =
            text.lines().map(|line| serde_json::from_str(line).expect("our format")).collect();
        assert!(samples.len() == 5 && samples.iter().all(|s| s.candidates.len() == 4));
        let (result, output) =
            run("compare --attribute quality", &samples, &ScriptedModel::from_probabilities(|_| vec![0.5, 0.4]));
        assert_eq!(
            (result.expect("runs").values["quoted_lines"].clone(), output.rows("comparisons").len()),
            (Value::from(0), 60)
        );
    }

    #[test]
    fn every_prompt_is_documented_and_loads_and_a_file_can_take_its_place() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let layout =
            PromptLayout { chat: true, answer_prefix: String::new(), guarded: "Answer:", defences: Vec::new() };
        for method in methods() {
            for (number, prompt) in method.prompts().iter().enumerate() {
                let place = format!("{}/{}", method.name(), prompt.name);
                assert!(prompt.source.starts_with("{#") && prompt.about().len() > 40, "{place}");
                let words = prompt.about().replace(['.', ',', ':', ';', '(', ')'], " ");
                let told =
                    |slot: &str| words.split_whitespace().any(|word| word == slot) || words.contains("Slots as in");
                assert!(
                    prompt.settings().iter().all(|slot| told(slot)),
                    "{place} does not tell of its settings {:?}",
                    prompt.settings()
                );
                let used = variables(prompt.source).expect("valid");
                let mut shown = prompt.data.iter().filter(|slot| used.contains(slot.name));
                assert!(shown.all(|slot| told(slot.name)), "{place} does not tell of its data");
                assert_eq!(prompt.sha256().len(), 64);
                assert!(
                    method.prompts()[..number]
                        .iter()
                        .all(|other| other.name != prompt.name && other.source != prompt.source),
                    "{place}"
                );
                let settings: BTreeMap<&'static str, String> = prompt
                    .settings()
                    .into_iter()
                    .map(|name| (&*Box::leak(name.clone().into_boxed_str()), name))
                    .collect();
                let shipped = Template::load(prompt.name, &[*prompt], settings.clone(), &layout).expect("loads");
                let path = folder.path().join("own.j2");
                std::fs::write(&path, prompt.source.replace("{#", "{# of my own;")).expect("written");
                let path = path.display().to_string();
                let own = Template::load(&path, &[*prompt], settings, &layout)
                    .unwrap_or_else(|error| panic!("{place}: {error}"));
                assert!(shipped.sha256() == prompt.sha256() && own.sha256() != prompt.sha256(), "{place}");
            }
        }
    }

    #[test]
    fn every_file_of_the_prompts_folder_ships() {
        let shipped: Vec<&str> = methods().flat_map(DynMethod::prompts).map(Builtin::source).collect();
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let folders = ["src/prompts", "../methods/src/prompts"].map(|folder| crates.join(folder));
        for file in folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("the folder")) {
            let path = file.expect("an entry").path();
            let text = std::fs::read_to_string(&path).expect("a text");
            assert!(shipped.contains(&text.as_str()), "{} is no method's", path.display());
        }
    }

    #[test]
    fn every_option_of_every_method_is_signed_unless_its_field_says_otherwise() {
        let others: [&dyn DynMethod; 2] = [&Metrics, &Meta];
        let all = || methods().chain(others);
        let known: Vec<String> = all().flat_map(DynMethod::options).map(|option| option.field).collect();
        for method in all() {
            let specs = method.options();
            let defaults: Map<_, _> = specs.iter().map(|spec| (spec.field.clone(), spec.default.clone())).collect();
            for spec in &specs {
                let mut before = defaults.clone();
                before.extend(spec.needs().map(|field| (field.to_owned(), "changed".into())));
                for (field, value, is_equal) in conditions(spec) {
                    assert!(known.iter().any(|known| known == field), "no method has the option `{field}`");
                    if let Some(there) = before.get_mut(field) {
                        *there = if is_equal { value } else { "changed" }.into();
                    }
                }
                let mut after = before.clone();
                after.insert(spec.field.clone(), "changed".into());
                let [before, after] = [before, after].map(|in_force| signed_options(&specs, &in_force.into()));
                let of = format!("{} --{}", method.name(), spec.name());
                assert_eq!(before != after, signed_name(spec).is_some(), "{of}: {before:?}");
                let [scores, signed] = ["scores", "signed"].map(|key| spec.extension(key));
                assert!(scores.is_none_or(|scores| *scores == false && signed.is_none()), "{of}: {scores:?}");
                assert!(signed.is_none_or(|name| name.as_str().is_some_and(|name| !name.is_empty())), "{of}");
            }
        }
    }
}
