//! Synthetic run folders of any size, with hostile texts wherever data may occur.

use std::error::Error;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use probity_lm::{
    Ask, ChatOptions, ClassKind, GenerateRequest, GenerateResult, LabelAnswer, LabelSet, Message, ModelDescription,
    Outcome, Precision, Prompt, Role, ScoreAnswer, ScoreRequest, ScoreResult,
};
use probity_store::{Answers, NamedRequest};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde_json::{Value, json};

/// Properties of a synthetic run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) samples: usize,
    pub(crate) candidates: usize,
    /// Use hostile texts, ids, names and outcomes.
    pub(crate) hostile: bool,
    /// Words per context; candidates have half as many.
    pub(crate) words: usize,
    /// Keep prompts and answers.
    pub(crate) answers: bool,
}

/// Attacks: scripts, markup, ends of elements and attributes, styles, URLs, formulas, terminal escapes, LaTeX,
/// Markdown, and characters that reorder or hide text.
pub(crate) const HOSTILE: &[&str] = &[
    "<script>window.pwned=1;alert(1)</script>",
    "</script><script>window.pwned=2</script>",
    "</style><style>body{display:none}</style>",
    "\"><img src=x onerror=\"window.pwned=3\">",
    "' onmouseover='window.pwned=4' x='",
    "<svg onload=window.pwned=5></svg>",
    "--><!--<iframe src=\"javascript:window.pwned=6\"></iframe>",
    "]]><!DOCTYPE x [<!ENTITY e SYSTEM \"file:///etc/passwd\">]>&e;",
    "javascript:window.pwned=7",
    "<a href=\"javascript:window.pwned=8\">x</a><form action=\"http://127.0.0.1:9/\"><button>x</button></form>",
    "{{7*7}}${7*7}<%= 7*7%>",
    "=HYPERLINK(\"http://127.0.0.1:9/\",\"x\")",
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(1)",
    "\tx",
    "\r=1+1",
    "\u{1b}]0;title\u{7}\u{1b}[31mred\u{1b}[2J\u{9b}31m",
    "abc\u{202e}fed\u{2066}ghi\u{2069}\u{200b}\u{feff}\u{e0041}",
    "\\input{/etc/passwd}\\write18{x}$x$ %_#&^~{}",
    "| a | `b` | [x](javascript:window.pwned=9) ![i](http://127.0.0.1:9/i.png) <b>",
    "\u{0}\u{ffff}\u{fffe}\u{85}\u{2028}\u{2029}",
    "line\nbreak, \"quoted\" ; 'single'",
];

const WORDS: &[&str] = &[
    "ferry", "harbour", "council", "voted", "electric", "vessel", "spring", "residents", "reserve", "pier", "diesel",
    "crossing", "minutes", "island", "fuel", "promise", "budget", "winter", "report", "engine", "captain", "school",
    "bridge", "night", "market", "storm",
];

/// Deterministic random numbers.
struct Made(ChaCha8Rng);

impl Made {
    fn unit(&mut self) -> f64 {
        f64::from(self.0.next_u32()) / f64::from(u32::MAX)
    }

    fn text(&mut self, words: usize) -> String {
        (0..words).map(|_| WORDS[self.0.next_u32() as usize % WORDS.len()]).collect::<Vec<_>>().join(" ")
    }
}

impl Shape {
    /// Name number `k`, hostile if enabled.
    fn name(self, plain: &str, k: usize) -> String {
        if self.hostile { format!("{} {plain}{k}", HOSTILE[k % HOSTILE.len()]) } else { format!("{plain}{k}") }
    }

    fn attribute(self) -> String {
        if self.hostile { format!("{} quality", HOSTILE[1]) } else { "quality".to_owned() }
    }

    /// Writes the run to a new folder.
    pub(crate) fn write(self, folder: &Path) -> Result<(), Box<dyn Error>> {
        fs::create_dir_all(folder)?;
        let mut made = Made(ChaCha8Rng::seed_from_u64(1));
        let file = |name: &str| fs::File::create(folder.join(name)).map(BufWriter::new);
        let (mut samples, mut comparisons, mut scores) =
            (file("samples.jsonl")?, file("comparisons.jsonl")?, file("scores.jsonl")?);
        let store = self.answers.then(|| self.store(folder)).transpose()?;
        let mut position = 0;
        for number in 0..self.samples {
            let sample = self.sample(number, &mut made);
            writeln!(samples, "{sample}")?;
            let mut wins = vec![0.0; self.candidates];
            for (i, won) in wins.iter_mut().enumerate() {
                for j in (0..self.candidates).filter(|j| *j != i) {
                    let p = (0.3 + 0.5 * made.unit() + 0.01 * (j as f64 - i as f64)).clamp(0.01, 0.99);
                    *won += p;
                    writeln!(comparisons, "{}", self.comparison(&sample, (i, j), p, made.unit()))?;
                    if let Some((answers, model)) = &store {
                        self.keep(answers, model, &sample, (i, j), p, position)?;
                        position += 1;
                    }
                }
            }
            for (index, candidate) in sample["candidates"].as_array().into_iter().flatten().enumerate() {
                let score = wins[index] / (self.candidates - 1).max(1) as f64;
                let row = json!({"item": sample["id"], "attribute": self.attribute(), "candidate": candidate["id"], "index": index, "score": score, "rank": 1.0});
                writeln!(scores, "{row}")?;
            }
        }
        if let Some((answers, model)) = &store {
            self.generated(answers, model, &self.name("item", 0), position)?;
        }
        samples.flush()?;
        comparisons.flush()?;
        scores.flush()?;
        fs::write(folder.join("manifest.json"), self.manifest().to_string())?;
        fs::write(folder.join("summary.json"), self.summary().to_string())?;
        Ok(())
    }

    fn sample(self, number: usize, made: &mut Made) -> Value {
        let context =
            if self.hostile { format!("{}\n{}", HOSTILE.join("\n"), made.text(20)) } else { made.text(self.words) };
        let candidates: Vec<Value> = (0..self.candidates)
            .map(|k| {
                let text = if self.hostile { HOSTILE[(number + k) % HOSTILE.len()].repeat(2) } else { made.text(self.words / 2) };
                json!({"id": self.name("M", k), "text": text, "scores": {self.attribute(): (made.unit() * 5.0).round()}})
            })
            .collect();
        json!({"id": self.name("item", number), "context": context, "candidates": candidates, "references": [context], "preference": self.name("M", 0)})
    }

    fn outcome(self, i: usize) -> &'static str {
        match i {
            3 if self.hostile => HOSTILE[2],
            2 => "low_mass",
            _ => "scored",
        }
    }

    fn comparison(self, sample: &Value, (i, j): (usize, usize), p: f64, mass: f64) -> Value {
        let template = if self.hostile { HOSTILE[4] } else { "1" };
        json!({
            "item": sample["id"], "attribute": self.attribute(), "template": template, "i": i, "j": j,
            "candidate_i": sample["candidates"][i]["id"], "candidate_j": sample["candidates"][j]["id"],
            "p": p, "logprob_i": p.ln(), "logprob_j": (1.0 - p).ln(), "mass": mass, "outcome": self.outcome(i), "prompt_tokens": 100, "precision": "exact",
        })
    }

    fn store(self, folder: &Path) -> Result<(Answers, probity_store::ModelEntry), Box<dyn Error>> {
        let answers = Answers::open(&folder.join("answers.sqlite"))?;
        let description = ModelDescription {
            name: self.name("model", 0),
            adapter: None,
            revision: None,
            architecture: "llama".into(),
            fingerprint: "00".repeat(32),
            precision: Precision::Exact,
            device: "cpu".into(),
            platform: None,
            through: None,
            weights: "F32".into(),
            context_length: Some(4096),
            layers: Some(30),
            classes: Vec::new(),
            class_kind: ClassKind::default(),
            has_chat_template: true,
            thinking: None,
            chat: ChatOptions::default(),
        };
        let model = answers.model(&description, "")?;
        Ok((answers, model))
    }

    fn keep(
        self,
        answers: &Answers,
        model: &probity_store::ModelEntry,
        sample: &Value,
        (i, j): (usize, usize),
        p: f64,
        position: usize,
    ) -> Result<(), Box<dyn Error>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let candidate = |k: usize| text(&sample["candidates"][k]["text"]);
        let content = format!(
            "Which is better?\n\n{}\n\nA:\n{}\n\nB:\n{}\n\nAnswer A or B.",
            text(&sample["context"]),
            candidate(i),
            candidate(j)
        );
        let id = format!("{}/{}/1/{i}/{j}", text(&sample["id"]), self.attribute());
        let labels = LabelSet::from_words(["A", "B"])?;
        let request = ScoreRequest { id, prompt: Prompt::user(content), ask: Ask::Labels(labels) };
        let answer = LabelAnswer::from_logprobs([("A", (0.9 * p).ln()), ("B", (0.9 * (1.0 - p)).ln())]);
        let result =
            ScoreResult { outcome: Outcome::Scored, prompt_tokens: 100, answer: answer.map(ScoreAnswer::Labels) };
        let entry = model.entry(&request)?;
        Ok(answers.put::<ScoreRequest>(
            model,
            &entry,
            &result,
            Some(NamedRequest { position, request: &request.id }),
        )?)
    }

    /// A generated answer, so that raw output is shown too.
    fn generated(
        self,
        answers: &Answers,
        model: &probity_store::ModelEntry,
        sample: &str,
        position: usize,
    ) -> Result<(), Box<dyn Error>> {
        let text = if self.hostile { HOSTILE.join("\n") } else { "The rating is 4.".to_owned() };
        let messages = vec![Message::new(Role::System, "You judge."), Message::new(Role::User, text.clone())];
        let prompt = Prompt::chat(messages, "Rating:");
        let request = GenerateRequest::greedy(format!("{sample}/written"), prompt, 16);
        let outcome = Outcome::Unparsed { why: text.clone() };
        let result = GenerateResult { text, token_ids: vec![1, 2], ..GenerateResult::without_text(outcome, 20) };
        let entry = model.entry(&request)?;
        Ok(answers.put::<GenerateRequest>(
            model,
            &entry,
            &result,
            Some(NamedRequest { position, request: &request.id }),
        )?)
    }

    fn manifest(self) -> Value {
        let model = self.name("model", 0);
        json!({
            "probity_run": 1, "status": if self.hostile { "failed" } else { "finished" }, "why": self.hostile.then_some(HOSTILE[3]),
            "started": "2026-01-01T00:00:00Z", "finished": "2026-01-01T00:10:00Z", "command": if self.hostile { HOSTILE[5] } else { "compare" },
            "arguments_in_force": {"data": {"path": self.name("data", 7), "sha256": "11".repeat(32), "samples": self.samples}},
            "versions": {"probity": "0.1.0"},
            "model": {"name": model, "architecture": "llama", "fingerprint": "00".repeat(32), "precision": "exact", "device": "cpu", "weights": "F32"},
            "machine": {"os": "linux", "arch": "x86_64", "cpus": 2},
            "files": ["samples.jsonl", "answers.sqlite", "comparisons.jsonl", "scores.jsonl", "summary.json"],
        })
    }

    fn summary(self) -> Value {
        let comparisons = self.samples * self.candidates * (self.candidates - 1);
        json!({
            "method": "compare", "signature_line": self.name("compare|version:0.1.0", 6), "outcomes": {self.outcome(3): comparisons},
            "values": {"prompts": [{
                "attribute": self.attribute(), "template": self.name("", 4),
                "before": {"p_a": 0.63, "comparisons": comparisons}, "after": {"p_a": 0.5, "comparisons": comparisons},
            }]},
            "sections": [{"title": self.name("Position", 8), "columns": [self.name("c", 9), "mean"], "rows": [[self.name("r", 11), "0.500"], ["b", "–"]],
                "notes": [self.name("note", 0)]}],
        })
    }
}
