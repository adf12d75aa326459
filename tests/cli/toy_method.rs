//! A method with three stages and two models, defined only in this test. Its run is killed in each stage, resumed,
//! stopped, planned, rehearsed, shown and reported.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use probity_data::Sample;
use probity_lm::{Ask, GenerateRequest, LabelSet, LanguageModel, Outcome, Prompt, ScoreRequest, SinkError};
use probity_methods::{
    KeepPart, Method, MethodError, MethodReport, MethodStage, Outcomes, RoleModel, RowError, Run, Signature, StageSpec,
    Table, cells, entry, row,
};
use probity_options::GivenOptions;
use probity_session::{
    Context, DryRun, Events, Interrupt, Notice, Plan, PlannedRun, RunOutcome, SessionError, message,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::harness::{World, golden, lines, tiny};

/// Limits: tokens of claims, and claims of a candidate.
const TOKENS: usize = 12;
const MOST_CLAIMS: usize = 4;

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct ToyParams {
    /// The model that checks claims.
    checker: String,
}

/// The model's text about a candidate is split into claims, another model checks each, and the first summarises the
/// confirmed ones.
struct Toy;

impl Method for Toy {
    type Params = ToyParams;
    const NAME: &'static str = "toy";
    const ABOUT: &'static str = "Claims, checked and summed up";
    const LONG_ABOUT: &'static str = Self::ABOUT;

    fn models(params: &ToyParams) -> Vec<RoleModel> {
        vec![RoleModel::language("checker", &params.checker)]
    }

    const STAGES: &'static [StageSpec] = &[
        StageSpec { name: "claims", roles: &["model"] },
        StageSpec { name: "checks", roles: &["checker"] },
        StageSpec { name: "summaries", roles: &["model"] },
    ];

    fn run(_: &ToyParams, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        let signature = Signature::new(Self::NAME, run.model()).with_other_models(run.other_models());
        let claims = run.stage(&Claims { samples, depends: signature.to_string() })?;
        let claimed: Vec<(usize, &str)> = claims
            .parts
            .iter()
            .enumerate()
            .flat_map(|(of, claims)| claims.iter().map(move |claim| (of, claim.as_str())))
            .collect();
        let checker = run.other_models()[0];
        let checks =
            run.stage(&Checks { checker, claims: &claimed, inputs: [signature.to_string(), claims.key.clone()] })?;
        let holds = |of: usize| {
            let of_text = claimed.iter().zip(&checks.parts).filter(move |((text, _), _)| *text == of);
            of_text.filter(|(_, check)| check.yes.is_some_and(|yes| yes > 0.5)).map(|((_, claim), _)| *claim)
        };
        let held: Vec<String> = (0..claims.parts.len()).map(|of| holds(of).collect::<Vec<_>>().join(" ")).collect();
        let summaries = run.stage(&Summaries { held: &held, inputs: [signature.to_string(), checks.key] })?;
        let mut outcomes = Outcomes::default();
        checks.parts.iter().for_each(|check| outcomes.add(&check.outcome));
        let mut table = Table::new("Claims", ["claims", "texts"]);
        table.push(cells![claimed.len(), summaries.parts.len()]);
        let values = json!({ "claims": claimed.len() });
        Ok(MethodReport { values, tables: vec![table], outcomes, ..MethodReport::new(signature) })
    }
}

/// A part for each candidate, a row for each claim.
struct Claims<'a> {
    samples: &'a [Sample],
    depends: String,
}

impl Claims<'_> {
    /// The candidates with their names.
    fn candidates(&self) -> Vec<(String, &str)> {
        let all = self.samples.iter().flat_map(|sample| sample.candidates.iter().map(move |c| (sample, c)));
        all.map(|(sample, candidate)| (format!("{}/{}", sample.id, candidate.id), &*candidate.text)).collect()
    }
}

impl MethodStage for Claims<'_> {
    type Part = Vec<String>;
    const ONE_ROW: bool = false;

    fn name(&self) -> &'static str {
        "claims"
    }

    fn parts(&self) -> usize {
        self.candidates().len()
    }

    fn inputs(&self) -> Vec<String> {
        vec![self.depends.clone()]
    }

    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, Vec<String>>) -> Result<(), MethodError> {
        let candidates = self.candidates();
        let request = |(name, text): &(String, &str)| {
            GenerateRequest::greedy(format!("{name}/claims"), Prompt::Text((*text).to_owned()), TOKENS)
        };
        run.generate(candidates.iter().map(request), |number, result, output| {
            let claims = result.text.split_whitespace().take(MOST_CLAIMS).map(str::to_owned).collect();
            keep(number, claims, output)
        })
    }

    fn identity(&self, number: usize) -> Value {
        json!({ "text": number })
    }

    fn rows(&self, number: usize, claims: &Vec<String>) -> Vec<Value> {
        claims.iter().map(|claim| json!({ "text": number, "claim": claim })).collect()
    }

    fn read(&self, _: usize, rows: &[Value]) -> Result<Vec<String>, RowError> {
        rows.iter().map(|row| Ok(row["claim"].as_str().ok_or("`claim` is missing")?.to_owned())).collect()
    }

    fn stand_in(&self, _: usize) -> Vec<String> {
        vec!["the the the".to_owned(); MOST_CLAIMS]
    }
}

/// Whether a claim holds.
#[derive(Serialize, Deserialize)]
struct Check {
    yes: Option<f64>,
    #[serde(flatten)]
    outcome: Outcome,
}

struct Checks<'a> {
    checker: &'a dyn LanguageModel,
    claims: &'a [(usize, &'a str)],
    inputs: [String; 2],
}

impl MethodStage for Checks<'_> {
    type Part = Check;

    fn name(&self) -> &'static str {
        "checks"
    }

    fn earlier_fields(&self) -> &'static [&'static str] {
        &["claim"]
    }

    fn parts(&self) -> usize {
        self.claims.len()
    }

    fn inputs(&self) -> Vec<String> {
        self.inputs.to_vec()
    }

    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, Check>) -> Result<(), MethodError> {
        let labels = LabelSet::from_words(["yes", "no"])?;
        let request = |(number, (_, claim)): (usize, &(usize, &str))| ScoreRequest {
            id: format!("checks/{number}"),
            prompt: Prompt::Text(format!("{claim}?")),
            ask: Ask::Labels(labels.clone()),
        };
        run.score_by(self.checker, self.claims.iter().enumerate().map(request), |number, result, output| {
            let yes = result.labels().map(|labels| labels.labels[0].prob);
            keep(number, Check { yes, outcome: result.outcome }, output)
        })
    }

    fn identity(&self, number: usize) -> Value {
        json!({ "text": self.claims[number].0, "claim": self.claims[number].1 })
    }

    fn rows(&self, number: usize, check: &Check) -> Vec<Value> {
        vec![row! { ..self.identity(number), "yes": check.yes, "outcome": check.outcome.name() }]
    }

    fn read(&self, _: usize, rows: &[Value]) -> Result<Check, RowError> {
        Ok(Check::deserialize(&rows[0])?)
    }

    fn stand_in(&self, _: usize) -> Check {
        Check { yes: Some(1.0), outcome: Outcome::Scored }
    }
}

struct Summaries<'a> {
    held: &'a [String],
    inputs: [String; 2],
}

impl MethodStage for Summaries<'_> {
    type Part = String;

    fn name(&self) -> &'static str {
        "summaries"
    }

    fn parts(&self) -> usize {
        self.held.len()
    }

    fn inputs(&self) -> Vec<String> {
        self.inputs.to_vec()
    }

    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, String>) -> Result<(), MethodError> {
        let request = |(number, held): (usize, &String)| {
            GenerateRequest::greedy(format!("summaries/{number}"), Prompt::Text(format!("so {held}")), TOKENS)
        };
        run.generate(self.held.iter().enumerate().map(request), |number, result, output| {
            keep(number, result.text, output)
        })
    }

    fn identity(&self, number: usize) -> Value {
        json!({ "text": number })
    }

    fn rows(&self, number: usize, summary: &String) -> Vec<Value> {
        vec![json!({ "text": number, "summary": summary })]
    }

    fn read(&self, _: usize, rows: &[Value]) -> Result<String, RowError> {
        Ok(rows[0]["summary"].as_str().ok_or("`summary` is missing")?.to_owned())
    }

    fn stand_in(&self, _: usize) -> String {
        String::new()
    }
}

/// Records events.
#[derive(Default)]
struct Notes {
    progress: Mutex<Vec<String>>,
    dry_run: Mutex<Option<DryRun>>,
    /// After the first answer of this stage, prints a line and waits to be killed.
    ends_in: Option<String>,
}

impl Events for Notes {
    fn notice(&self, notice: Notice<'_>) {
        let Notice::Progress { what, done, .. } = notice else { return };
        let mut progress = self.progress.lock().expect("whole");
        if progress.last().is_none_or(|last| last != what) {
            progress.push(what.to_owned());
        }
        if self.ends_in.as_deref() == Some(what) && done > 0 {
            println!("reached {what}");
            loop {
                std::thread::park();
            }
        }
    }

    fn report(&self, report: probity_session::SessionReport<'_>) -> Result<(), SinkError> {
        if let probity_session::SessionReport::DryRun(dry_run) = report {
            *self.dry_run.lock().expect("whole") = Some(dry_run.clone());
        }
        Ok(())
    }
}

fn data(world: &World) -> String {
    let sample = |k: usize| {
        let candidate = |c: usize| json!({"id": c.to_string(), "text": format!("the cat {c} sat on mat {k}")});
        json!({"id": format!("s{k}"), "context": "", "candidates": [candidate(0), candidate(1)]})
    };
    world.file("toy.jsonl", lines(&(0..6).map(sample).collect::<Vec<_>>()))
}

/// Runs the method with additional options.
fn toy(data: &str, out: &Path, more: &Value, notes: &Arc<Notes>) -> Result<RunOutcome, Box<SessionError>> {
    let mut given = GivenOptions::new();
    given.insert("model".into(), json!(tiny()));
    given.insert("checker".into(), json!(golden("llama-head-dim")));
    given.insert("data".into(), json!(data));
    given.insert("out".into(), json!(out));
    given.extend(more.as_object().expect("options").clone());
    let plan = Plan::single_stage(PlannedRun::new(entry::<Toy>(), &given, None)?, vec!["toy".to_owned()]);
    let ready = plan.check()?;
    let mut ends = plan.run(ready, &Context::new(notes.clone(), Interrupt::default()))?;
    Ok(ends.remove(0).ended)
}

fn manifest(world: &World, run: &str) -> Value {
    serde_json::from_str(&world.read(&format!("{run}/manifest.json"))).expect("JSON")
}

/// The process that the test below kills.
#[test]
#[ignore = "is started by a_run_that_is_killed_in_any_stage_goes_on_to_the_same_bytes"]
fn child() {
    let variable = |name: &str| std::env::var(name).expect("given by the test that starts this one");
    let notes = Arc::new(Notes { ends_in: Some(variable("TOY_ENDS_IN")), ..Notes::default() });
    let ended = toy(&variable("TOY_DATA"), Path::new(&variable("TOY_OUT")), &json!({"resume": true}), &notes);
    panic!("it was to be killed, and ended: {ended:?}");
}

const TABLES: [&str; 4] = ["claims.jsonl", "checks.jsonl", "summaries.jsonl", "summary.json"];

#[test]
fn a_run_that_is_killed_in_any_stage_goes_on_to_the_same_bytes() {
    let world = World::new();
    let data = data(&world);
    let whole = Arc::new(Notes::default());
    toy(&data, &world.path("whole"), &json!({}), &whole).expect("runs");
    assert_eq!(*whole.progress.lock().expect("whole"), ["claims", "checks", "summaries"]);
    let rows = world.rows("whole/claims.jsonl");
    assert!(rows.len() > 12 && rows.len() < 12 * MOST_CLAIMS, "{} claims", rows.len());
    for (done, stage) in ["claims", "checks", "summaries"].into_iter().enumerate() {
        let mut child = Command::new(std::env::current_exe().expect("this"))
            .args(["toy_method::child", "--exact", "--ignored", "--nocapture"])
            .envs([
                ("TOY_ENDS_IN", stage),
                ("TOY_DATA", &data),
                ("TOY_OUT", &world.path("killed").display().to_string()),
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let mut said = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        assert!(said.any(|line| line.contains("reached")), "the child came to its end before {stage}");
        child.kill().expect("at work");
        child.wait().expect("dead");
        assert_eq!(manifest(&world, "killed")["status"], "running", "{stage}");
        for table in &TABLES[..done] {
            assert!(
                world.read(&format!("whole/{table}")) == world.read(&format!("killed/{table}")),
                "{table}, {stage}"
            );
        }
        let checked = world.run(&["check", "killed"]).exits(0).stdout;
        assert!(done == 0 || checked.contains(&format!("running, {done} file")), "{checked}");
    }
    std::fs::remove_file(world.path("killed/claims.jsonl")).expect("there");
    let checked = world.run(&["check", "killed"]).exits(1).stdout;
    assert!(checked.contains("claims.jsonl: it is missing"), "{checked}");
    toy(&data, &world.path("killed"), &json!({"resume": true}), &Arc::default()).expect("goes on");
    for table in TABLES {
        assert!(world.read(&format!("whole/{table}")) == world.read(&format!("killed/{table}")), "{table} differs");
    }
    let keys = |run: &str| -> Vec<Value> {
        let manifest = manifest(&world, run);
        let stages = manifest["stages"].as_array().expect("a list");
        stages.iter().map(|stage| json!([stage["name"], stage["key"], stage["parts"], stage["rows"]])).collect()
    };
    assert_eq!(keys("whole"), keys("killed"));
    assert_eq!(keys("whole")[0][3], rows.len());
    let stages = &manifest(&world, "whole")["stages"];
    assert!(stages[0]["cost"]["requests"] == 12 && stages[1]["cost"]["requests"] == rows.len(), "{stages:#}");
}

#[test]
fn a_run_ends_after_a_stage_and_takes_a_stage_from_a_file() {
    let world = World::new();
    let data = data(&world);
    toy(&data, &world.path("whole"), &json!({}), &Arc::default()).expect("runs");
    let ended = toy(&data, &world.path("run"), &json!({"until": "checks"}), &Arc::default()).expect("ends");
    assert!(matches!(ended, RunOutcome::Until("checks")), "{ended:?}");
    let stopped = manifest(&world, "run");
    assert_eq!((&stopped["status"], &stopped["after"]), (&json!("stopped"), &json!("checks")));
    assert!(!world.path("run/summary.json").exists() && !world.path("run/summaries.jsonl").exists());
    world.run(&["show", "run", "s0"]).exits(0);
    let notes = Arc::new(Notes::default());
    toy(&data, &world.path("run"), &json!({"resume": true}), &notes).expect("goes on");
    for table in TABLES {
        assert!(world.read(&format!("whole/{table}")) == world.read(&format!("run/{table}")), "{table} differs");
    }

    // The checks come from a file and all fail: only claims and summaries are queried.
    let mut checks = world.rows("whole/checks.jsonl");
    for check in &mut checks {
        check["yes"] = json!(0.0);
    }
    let given = world.file("checks.jsonl", lines(&checks));
    let from = json!({"from": [format!("checks={given}")]});
    toy(&data, &world.path("given"), &from, &Arc::default()).expect("runs");
    let told = manifest(&world, "given");
    assert_eq!((&told["stages"][1]["from"], &told["stages"][1]["cost"]["requests"]), (&json!(given), &json!(0)));
    assert!(told["arguments_in_force"]["from"]["checks"]["sha256"].is_string(), "{told:#}");
    assert_ne!(told["stages"][2]["key"], stopped["stages"][1]["key"]);
    assert_ne!(told["stages"][2]["key"], manifest(&world, "whole")["stages"][2]["key"], "made from other checks");
    assert_eq!(world.rows("given/checks.jsonl"), checks);

    // Claims of another run's texts, an extra row, an invalid row, and an unknown stage.
    checks[1]["claim"] = json!("another");
    for (name, text, part) in [
        ("checks", lines(&checks), "checks-wrong.jsonl:2: `claim` is \"another\""),
        ("checks", lines(&[&checks[..1], &checks[..1]].concat()), "checks-wrong.jsonl:2: "),
        ("checks", "{\"yes\": \"perhaps\", \"outcome\": \"scored\"}".into(), "checks-wrong.jsonl:1: invalid type"),
        ("checks", "{broken".into(), "line 1"),
        ("checked", lines(&checks), "its stages are claims, checks, summaries"),
    ] {
        let file = world.file("checks-wrong.jsonl", text);
        // If the claims are known, rows are compared with them before any query.
        let claims = world.path("whole/claims.jsonl").display().to_string();
        let from = json!({"from": [format!("claims={claims}"), format!("{name}={file}")]});
        let error = message(&*toy(&data, &world.path("wrong"), &from, &Arc::default()).expect_err("refused"));
        assert!(error.contains(part), "{part}\n{error}");
        assert!(!world.path("wrong").exists());
    }
}

#[test]
fn every_stage_is_planned_from_what_may_come_at_most() {
    let world = World::new();
    let data = data(&world);
    let notes = Arc::new(Notes::default());
    let ended = toy(&data, &world.path("none"), &json!({"dry_run": true}), &notes).expect("planned");
    assert!(matches!(ended, RunOutcome::Planned) && !world.path("none").exists());
    let dry_run = notes.dry_run.lock().expect("whole").take().expect("told");
    let told: Vec<(Option<&str>, u64)> = dry_run.parts.iter().map(|part| (part.stage, part.plan.questions)).collect();
    assert_eq!(told, [(Some("claims"), 12), (Some("checks"), 12 * MOST_CLAIMS as u64), (Some("summaries"), 12)]);
    assert_ne!(dry_run.parts[0].model, dry_run.parts[1].model);
    toy(&data, &world.path("run"), &json!({}), &Arc::default()).expect("runs");
    let stages = &manifest(&world, "run")["stages"];
    for (part, stage) in dry_run.parts.iter().zip(stages.as_array().expect("a list")) {
        let cost = &stage["cost"]["tokens_unshared"];
        assert!(cost.as_u64().is_some_and(|tokens| tokens <= part.plan.usage.tokens_unshared), "{stage:#}");
    }
}

#[test]
fn what_a_later_stage_cannot_ask_is_found_before_anything_is_asked() {
    let world = World::new();
    let data = data(&world);
    // An encoder gives no answers: the second stage's model is checked before the first stage's queries.
    let encoder = json!({"checker": golden("bert")});
    let error = toy(&data, &world.path("run"), &encoder, &Arc::default()).expect_err("refused").to_string();
    assert!(error.contains("bert"), "{error}");
    assert!(!world.path("run").exists());
}

#[test]
fn a_method_that_nobody_knows_is_shown_and_reported() {
    let world = World::new();
    let data = data(&world);
    toy(&data, &world.path("run"), &json!({}), &Arc::default()).expect("runs");
    let shown = world.run(&["show", "run", "s0"]).exits(0);
    assert!(shown.stdout.contains("the cat 0 sat on mat 0"), "{}", shown.stdout);
    world.run(&["report", "run", "--html", "report.html"]).exits(0);
    let page = world.read("report.html");
    assert!(page.contains("toy") && page.contains("Claims"), "{page}");
}
