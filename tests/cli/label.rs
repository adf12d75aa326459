//! `probity label`, through its page and its command line.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Ran, World, interrupt, interrupts_are_ignored, lines};
use crate::http::{Reply, Server, post};

/// The page's server.
struct Labelling(Server);

impl Labelling {
    fn start(world: &World, more: &[&str]) -> Self {
        let all = [&["label", "--data", "samples.jsonl", "--out", "labels.jsonl"], more].concat();
        Self::spawn(world.command(&all))
    }

    fn spawn(command: Command) -> Self {
        Self(Server::start(command))
    }

    fn token(&self) -> &str {
        let (page, token) = self.0.address.split_once("/#").expect("a page and a token");
        assert!(page == format!("http://127.0.0.1:{}", self.0.port) && token.len() == 32, "{}", self.0.address);
        token
    }

    /// A request of the page.
    fn send(&self, path: &str, body: Option<&Value>) -> Reply {
        let token = format!("Authorization: Bearer {}\r\n", self.token());
        match body {
            Some(body) => self.0.send(&post(path, &body.to_string(), &token)),
            None => self.0.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}\r\n")),
        }
    }

    fn status(&self) -> Value {
        let reply = self.send("/task", None);
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()
    }

    /// Answers a task and returns the status.
    fn label(&self, task: usize, answer: impl Into<Value>) -> Value {
        let body = json!({"task": task, "answer": answer.into(), "seconds": 1.5});
        let reply = self.send("/label", Some(&body));
        assert_eq!(reply.status, 200, "{body}\n{}", reply.body);
        reply.json()
    }

    /// Sends Ctrl-C, or SIGTERM if the tests run with SIGINT ignored.
    fn interrupt(self) -> Ran {
        if interrupts_are_ignored() {
            return self.0.end();
        }
        interrupt(&self.0.child);
        self.0.wait()
    }
}

/// Samples with four candidates, of which the last has no text.
fn world() -> World {
    let world = World::new();
    let candidate = |id: &str| json!({"id": id, "text": format!("text {id}").repeat(usize::from(id != "empty"))});
    let sample = |id: &str| {
        let candidates: Vec<Value> = ["alpha", "beta", "gamma", "empty"].map(candidate).into();
        json!({"id": id, "context": format!("context of {id}"), "instruction": "Sum it up.", "candidates": candidates})
    };
    world.file("samples.jsonl", lines(&["one", "two"].map(sample)));
    world
}

fn pair(item: &str, i: &str, j: &str) -> Value {
    json!({"item": item, "metric": "bleu", "attribute": "flow", "candidate_i": i, "candidate_j": j, "difference": 0.1})
}

#[test]
fn tasks_are_asked_in_their_order_each_answer_is_a_line_and_the_end_says_what_to_do_with_them() {
    let world = world();
    let mut tasks = vec![pair("two", "gamma", "alpha"), pair("one", "alpha", "beta"), pair("one", "beta", "alpha")];
    tasks.extend([
        pair("one", "alpha", "empty"),
        json!({"item": "one", "candidate": "beta"}),
        pair("two", "beta", "alpha"),
    ]);
    world.file("tasks.jsonl", lines(&tasks));
    let labelling = Labelling::start(&world, &["--tasks", "tasks.jsonl", "--annotator", "ann"]);
    let first = labelling.status();
    let task = &first["task"];
    assert_eq!((&first["total"], &first["done"], &task["number"]), (&json!(4), &json!(0), &json!(0)));
    let shown = json!({"attribute": "flow", "instruction": "Sum it up.", "context": "context of two"});
    assert!(shown.as_object().expect("fields").iter().all(|(field, value)| task[field] == *value), "{task}");
    let left = if task["texts"][0] == "text gamma" { "gamma" } else { "alpha" };
    assert_eq!(task["texts"][0], format!("text {left}"));
    labelling.label(0, "left");
    let third = labelling.label(1, "tie");
    assert_eq!((&third["task"]["texts"], &third["task"]["attribute"]), (&json!(["text beta"]), &Value::Null));
    labelling.label(2, 4);
    labelling.label(3, "skip");
    let undone = labelling.send("/undo", Some(&json!({"task": 3})));
    assert_eq!((undone.status, &undone.json()["task"]["number"]), (200, &json!(3)));
    let ran = labelling.interrupt().exits(0);
    assert_eq!(ran.stdout, "", "the address is all of it");
    for part in [
        "1 candidate without text", "4 tasks; open the address in a browser", "3 labels added, 1 of 4 tasks left",
        "probity meta --scores RUN --labels labels.jsonl",
    ] {
        assert!(ran.stderr.contains(part), "{part}\n{}", ran.stderr);
    }
    let by = |mut row: Value, more: Value| {
        row["annotator"] = json!("ann");
        row.as_object_mut().expect("fields").extend(more.as_object().expect("fields").clone());
        row.as_object_mut().expect("fields").retain(|field, _| !["metric", "difference"].contains(&field.as_str()));
        row
    };
    let expected = [
        by(pair("two", "gamma", "alpha"), json!({"preferred": left, "seconds": 1.5})),
        by(pair("one", "alpha", "beta"), json!({"preferred": "tie", "seconds": 1.5})),
        by(json!({"item": "one", "candidate": "beta"}), json!({"score": 4.0, "seconds": 1.5})),
        by(pair("two", "beta", "alpha"), json!({"skipped": true, "seconds": 1.5})),
        by(pair("two", "beta", "alpha"), json!({"withdrawn": true})),
    ];
    assert_eq!(world.rows("labels.jsonl"), expected);
}

#[test]
fn a_command_that_was_killed_while_it_wrote_is_gone_on_from() {
    let world = world();
    let labelling = Labelling::start(&world, &["--attribute", "flow"]);
    // Three pairs of texts in each sample.
    assert_eq!(labelling.status()["total"], 6);
    labelling.label(0, "left");
    labelling.label(1, "skip");
    let Labelling(mut server) = labelling;
    server.child.kill().expect("killed");
    server.child.wait().expect("ended");
    let whole = world.read("labels.jsonl");
    assert_eq!(whole.lines().count(), 2, "{whole}");
    world.file("labels.jsonl", format!("{whole}{}", &whole[..40]));
    let labelling = Labelling::start(&world, &["--attribute", "flow", "--until-done"]);
    assert_eq!(world.read("labels.jsonl"), whole, "the half line is gone");
    let status = labelling.status();
    assert_eq!((&status["done"], &status["task"]["number"], &status["last"]), (&json!(2), &json!(2), &json!(1)));
    assert_eq!(labelling.send("/label", Some(&json!({"task": 1, "answer": "tie"}))).status, 409);
    for task in 2..6 {
        let status = labelling.label(task, "right");
        assert_eq!((&status["done"], status["task"].is_null()), (&json!(task + 1), task == 5));
    }
    let ran = labelling.0.wait().exits(0);
    for part in ["was incomplete", "2 of them already done", "4 labels added, 0 of 6 tasks left, 1 skipped"] {
        assert!(ran.stderr.contains(part), "{part}\n{}", ran.stderr);
    }
    assert_eq!((world.rows("labels.jsonl").len(), world.read("labels.jsonl").starts_with(&whole)), (6, true));
    // With everything done it exits at once. Another annotator has all tasks left.
    let ran = Labelling::start(&world, &["--attribute", "flow", "--until-done"]).0.wait().exits(0);
    assert!(ran.stderr.contains("0 labels added, 0 of 6 tasks left"), "{}", ran.stderr);
    let other = Labelling::start(&world, &["--attribute", "flow", "--annotator", "bob"]);
    assert_eq!(other.status()["done"], 0);
    let elsewhere = world.command(&["label", "--data", "samples.jsonl", "--attribute", "flow", "--out", "other.jsonl"]);
    assert_eq!(Labelling::spawn(elsewhere).status()["done"], 0);
}

#[test]
fn order_and_sides_follow_from_the_seed_alone() {
    let world = world();
    let asked = |more: &[&str]| -> Vec<Value> {
        let _ = std::fs::remove_file(world.path("labels.jsonl"));
        let labelling = Labelling::start(&world, more);
        let all: Vec<Value> = (0..labelling.status()["total"].as_u64().expect("a number") as usize)
            .map(|task| {
                let status = labelling.status();
                labelling.label(task, "skip");
                json!([status["task"]["attribute"], status["task"]["context"], status["task"]["texts"]])
            })
            .collect();
        labelling.0.end().exits(0);
        all
    };
    let sorted = |mut all: Vec<Value>| {
        for task in &mut all {
            task[2].as_array_mut().expect("texts").sort_by_key(ToString::to_string);
        }
        all.sort_by_key(ToString::to_string);
        all
    };
    let first = asked(&["--seed", "1"]);
    assert_eq!((first.len(), &first), (6, &asked(&["--seed", "1"])));
    let others: Vec<Vec<Value>> = ["2", "3"].map(|seed| asked(&["--seed", seed])).into();
    assert!(others.iter().any(|other| *other != first));
    assert!(others.into_iter().all(|other| sorted(other) == sorted(first.clone())));
    let mirrored = |all: &[Value]| all.iter().filter(|task| task[2][0].as_str() > task[2][1].as_str()).count();
    let two = asked(&["--attribute", "flow", "--attribute", "pace", "--attribute", "flow"]);
    assert_eq!(two.len(), 12);
    assert!((1..12).contains(&mirrored(&two)), "{two:?}");
    // One score for each candidate with a text.
    let scores = asked(&["--scale", "0..3", "--attribute", "flow"]);
    assert_eq!(scores.iter().map(|task| task[2].as_array().map(Vec::len)).collect::<Vec<_>>(), [Some(1); 6]);
    assert_eq!(asked(&["--scale", "0..3", "--limit", "2"]), asked(&["--scale", "0..3"])[..2]);
}

#[test]
fn given_tasks_are_asked_by_the_attributes_that_are_named() {
    let world = world();
    let without = json!({"item": "one", "candidate_i": "alpha", "candidate_j": "gamma"});
    let pace = json!({"item": "two", "attribute": "pace", "candidate": "alpha"});
    world.file("tasks.jsonl", lines(&[pair("one", "alpha", "beta"), without, pace]));
    let asked = |more: &[&str]| {
        let labelling = Labelling::start(&world, &[&["--tasks", "tasks.jsonl"], more].concat());
        labelling.status()["total"].as_u64()
    };
    assert_eq!(asked(&[]), Some(3));
    assert_eq!(asked(&["--attribute", "flow"]), Some(2));
    assert_eq!(asked(&["--attribute", "flow", "--attribute", "pace"]), Some(4));
    world.file("tasks.jsonl", lines(&[pair("one", "alpha", "beta")]));
    world
        .run(&["label", "--data", "samples.jsonl", "--tasks", "tasks.jsonl", "--attribute", "pace", "--out", "l.jsonl"])
        .fails_with(&["no task in tasks.jsonl is about `pace`", "hint: the tasks are about: `flow`"]);
    for blank in ["", "  "] {
        world
            .run(&["label", "--data", "samples.jsonl", "--attribute", blank, "--out", "l.jsonl"])
            .fails_with(&["--attribute", "expected a name"]);
    }
}

#[test]
fn tasks_about_texts_as_a_whole_are_told_where_an_attribute_is_given_and_pairs_have_no_scale() {
    let world = world();
    let whole = |item: &str| json!({"item": item, "candidate_i": "alpha", "candidate_j": "beta"});
    let tasks = world.file("tasks.jsonl", lines(&["one", "two"].map(whole)));
    let all = ["label", "--data", "samples.jsonl", "--out", "labels.jsonl", "--tasks", &tasks];
    world
        .run(&[&all[..], &["--scale", "1..5"]].concat())
        .exits(2)
        .fails_with(&["--scale applies to single texts", "are pairs", "omit --scale"]);
    let told = |attribute: &[&str]| Labelling::start(&world, &[&["--tasks", &tasks], attribute].concat()).interrupt();
    let named = told(&["--attribute", "quality"]).stderr;
    assert!(
        named.contains("2 tasks are about overall preference: labels under quality") && named.contains("omit"),
        "{named}"
    );
    assert!(!told(&[]).stderr.contains("overall preference"));
}

#[test]
fn of_answers_to_a_task_that_come_at_once_one_is_kept() {
    let world = world();
    let labelling = Labelling::start(&world, &[]);
    let answers = ["left", "right", "tie", "skip"].repeat(4);
    let answer = |answer: &str| labelling.send("/label", Some(&json!({"task": 0, "answer": answer}))).status;
    let answer = &answer;
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let clients: Vec<_> = answers.iter().map(|one| scope.spawn(move || answer(one))).collect();
        clients.into_iter().map(|client| client.join().expect("answered")).collect()
    });
    let count = |status: u16| statuses.iter().filter(|found| **found == status).count();
    assert_eq!((count(200), count(409), world.rows("labels.jsonl").len()), (1, 15, 1), "{statuses:?}");
}

#[test]
fn strangers_reach_neither_tasks_nor_labels() {
    let world = world();
    let labelling = Labelling::start(&world, &[]);
    let answer = json!({"task": 0, "answer": "left"}).to_string();
    let status = |request: &str| labelling.0.send(request).status;
    assert_eq!(status(&post("/label", &answer, "")), 401);
    assert_eq!(status(&post("/label", &answer, "Authorization: Bearer 00000000000000000000000000000000\r\n")), 401);
    assert_eq!(labelling.0.get("/task").status, 401);
    let token = format!("Authorization: Bearer {}\r\n", labelling.token());
    let own = post("/label", &answer, &token);
    assert_eq!(status(&own.replace("Host: 127.0.0.1", "Host: evil.example")), 403);
    assert_eq!(status(&post("/label", &answer, &format!("{token}Origin: http://evil.example\r\n"))), 403);
    assert_eq!(status(&own.replace("application/json", "text/plain")), 415);
    assert_eq!(status(&own.replace("Content-Length: ", "Content-Length: 999")), 413);
    let page = labelling.0.get("/");
    assert!(page.status == 200 && page.head.contains("content-security-policy: default-src 'none'"), "{}", page.head);
    assert!(!page.body.contains("text alpha") && !page.body.contains(labelling.token()));
    assert_eq!(world.read("labels.jsonl"), "");
    assert_eq!(status(&own), 200);
    // It does not listen on other addresses.
    assert!(labelling.0.listens_at("127.0.0.1") && !labelling.0.listens_at("127.0.0.2"));
}

#[test]
fn a_label_that_finds_no_room_is_told_and_leaves_no_half_line() {
    let world = World::new();
    let candidates: Vec<Value> = (0..8).map(|id| json!({"id": id.to_string(), "text": id.to_string()})).collect();
    world.file("samples.jsonl", lines(&[json!({"id": "one", "context": "", "candidates": candidates})]));
    // A block of at most 1024 bytes; a label has about 80.
    let command =
        format!("ulimit -f 1; exec {} label --data samples.jsonl --out labels.jsonl", env!("CARGO_BIN_EXE_probity"));
    let mut shell = world.program("sh");
    shell.args(["-c", &command]);
    let labelling = Labelling::spawn(shell);
    let refused = (0..28).find_map(|task| {
        let reply = labelling.send("/label", Some(&json!({"task": task, "answer": "tie"})));
        (reply.status != 200).then_some((task, reply))
    });
    let (task, reply) = refused.expect("there is no room for 28");
    let error = reply.json()["error"].clone();
    let message = error["message"].as_str().expect("a message");
    assert_eq!((reply.status, &error["code"]), (500, &json!("not_kept")));
    assert!(message.contains("labels.jsonl could not be written") && message.contains("free some space"), "{message}");
    assert_eq!(labelling.status()["done"], task);
    assert_eq!((world.rows("labels.jsonl").len(), world.read("labels.jsonl").ends_with('\n')), (task, true));
    labelling.0.end().exits(0);
    let labelling = Labelling::start(&world, &[]);
    labelling.label(task, "tie");
    assert_eq!(world.rows("labels.jsonl").len(), task + 1);
}

#[test]
fn what_cannot_be_asked_or_kept_is_refused_by_file_and_line_before_anything_is_written() {
    let world = world();
    let run = |more: &[&str]| world.run(&[&["label", "--data", "samples.jsonl"], more].concat());
    let unknown = [pair("one", "alpha", "beta"), pair("three", "alpha", "beta"), pair("one", "alpha", "delta")];
    world.file("tasks.jsonl", lines(&unknown));
    run(&["--tasks", "tasks.jsonl", "--out", "l.jsonl"]).fails_with(&[
        "2 problems in tasks.jsonl",
        "line 2: field `item`: unknown sample `three`",
        "line 3: field `candidate_j`: sample `one` has no candidate `delta`",
        "hint: pass the samples of the tasks with --data",
    ]);
    run(&["--tasks", "absent.jsonl", "--out", "l.jsonl"]).fails_with(&["absent.jsonl could not be opened", "hint:"]);
    let tie = json!({"id": "one", "context": "", "candidates": [{"id": "a", "text": "x"}, {"id": "tie", "text": "y"}]});
    let tied = world.file("tie.jsonl", lines(&[tie]));
    world.run(&["label", "--data", &tied, "--out", "l.jsonl"]).fails_with(&[
        "line 1 of",
        "tie.jsonl: field `candidates[1].id`: a candidate named `tie` is ambiguous",
        "hint: use another id",
    ]);
    let alone = json!({"id": "one", "context": "", "candidates": [{"id": "a", "text": "x"}, {"id": "b", "text": " "}]});
    let alone = world.file("alone.jsonl", lines(&[alone]));
    world.run(&["label", "--data", &alone, "--out", "l.jsonl"]).fails_with(&["nothing to label", "hint: add samples"]);
    run(&["--out", "samples.jsonl"]).fails_with(&["samples.jsonl is an input and would be overwritten", "hint:"]);
    world.file("tasks.jsonl", lines(&unknown[..1]));
    run(&["--tasks", "tasks.jsonl", "--out", "tasks.jsonl"])
        .fails_with(&["tasks.jsonl is an input and would be", "hint:"]);
    run(&["--out", "-"]).fails_with(&["to standard output", "hint: name a file"]);
    run(&["--out", "nowhere/l.jsonl"]).fails_with(&["nowhere/l.jsonl could not be opened", "hint: create the folder"]);
    for (scale, why) in [("1..20", "at most ten values"), ("5..1", "not below"), ("five", "expected MIN..MAX")] {
        run(&["--out", "l.jsonl", "--scale", scale]).fails_with(&["--scale", why]);
    }
    run(&["--out", "l.jsonl", "--annotator", ""]).fails_with(&["--annotator"]);
    assert!(!world.path("l.jsonl").exists());
    let label = r#"{"item":"one","candidate":"alpha","score":7}"#;
    world.file("l.jsonl", format!("{label}\n{{\"item\": \"one\"}}\nnotes\n"));
    run(&["--out", "l.jsonl"]).fails_with(&["3 problems in l.jsonl", "line 2: either", "line 3: expected"]);
    world.file("l.jsonl", format!("{label}\n"));
    run(&["--out", "l.jsonl", "--scale", "1..5"])
        .fails_with(&["line 1 of l.jsonl has the score 7, which is outside the scale 1..5", "hint: set --scale"]);
    let labelling = Labelling::start(&world, &[]);
    run(&["--out", "labels.jsonl"]).fails_with(&["another process is writing to labels.jsonl", "hint: stop it first"]);
    let port = labelling.0.port.to_string();
    run(&["--out", "l.jsonl", "--port", &port])
        .fails_with(&["cannot listen on 127.0.0.1", "hint: choose another port"]);
    assert_eq!(world.read("l.jsonl"), format!("{label}\n"));
}
