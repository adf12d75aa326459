use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Response, StatusCode, header};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use probity_data::{
    Label, LabelAppender, LabelFile, LabelRow, LabelSubject, LabelTask, Preference, Sample, read_labels,
};
use probity_report::policy_hash;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::routes::router;
use super::{LabelCounts, LabelQuestion, LabelSession};
use crate::token::AccessToken;

const TOKEN: &str = "a-secret-token";

/// A server of three tasks about one sample: two pairs, the second mirrored, and a score.
struct Labelling {
    folder: TempDir,
    session: Arc<LabelSession>,
    router: Router,
    runtime: Runtime,
}

fn sample() -> Sample {
    let candidate = |id: &str| json!({"id": id, "text": format!("text of {}", id.len())});
    let candidates = ["gpt", "llama", "human-1"].map(candidate);
    serde_json::from_value(json!({"id": "s1", "context": "c\u{202e}d", "candidates": candidates})).expect("a sample")
}

fn questions() -> Vec<LabelQuestion> {
    let pair = |i: &str, j: &str| LabelSubject::Pair { i: i.into(), j: j.into() };
    let tasks = [
        (pair("gpt", "llama"), false),
        (pair("llama", "human-1"), true),
        (LabelSubject::Candidate("gpt".into()), false),
    ];
    let question = |(subject, is_mirrored)| {
        let task = LabelTask { item: "s1".into(), attribute: Some("flow".into()), subject };
        LabelQuestion::new(task, &sample(), is_mirrored).expect("the candidates are there")
    };
    tasks.map(question).into()
}

impl Labelling {
    fn start() -> Self {
        Self::in_folder(tempfile::tempdir().expect("folder"), Some("Ann"))
    }

    fn in_folder(folder: TempDir, annotator: Option<&str>) -> Self {
        let (file, held) = LabelAppender::open(&folder.path().join("labels.jsonl")).expect("opened");
        let session = LabelSession::new(questions(), 1..=5, annotator.map(str::to_owned), file, &held);
        let session = Arc::new(session);
        let router = router(session.clone(), AccessToken::new(TOKEN).expect("a token"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { folder, session, router, runtime }
    }

    /// Restarts the server with another annotator or the same one.
    fn again(self, annotator: Option<&str>) -> Self {
        let Self { folder, session, router, runtime } = self;
        drop((session, router, runtime));
        Self::in_folder(folder, annotator)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("labels.jsonl")
    }

    fn labels(&self) -> LabelFile {
        read_labels(&self.path()).expect("readable")
    }

    fn lines(&self) -> usize {
        std::fs::read_to_string(self.path()).expect("there").lines().count()
    }

    fn response(&self, request: Request<Body>) -> Response<Body> {
        let service = TowerToHyperService::new(self.router.clone());
        self.runtime.block_on(service.call(request)).expect("an answer")
    }

    fn ask(&self, request: Request<Body>) -> (StatusCode, Value) {
        let (head, body) = self.response(request).into_parts();
        let bytes = self.runtime.block_on(to_bytes(body, usize::MAX)).expect("a body");
        (head.status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    fn task(&self) -> Value {
        let (status, body) = self.ask(get("/task"));
        assert_eq!(status, StatusCode::OK, "{body}");
        body
    }

    fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        self.ask(post(path, &body.to_string()))
    }

    /// Posts a valid request; returns the next task.
    fn kept(&self, path: &str, body: &Value) -> Value {
        let (status, next) = self.post(path, body);
        assert_eq!(status, StatusCode::OK, "{body}\n{next}");
        next
    }

    /// Posts an invalid request; returns status and body.
    fn refused(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, error) = self.post(path, body);
        (status.as_u16(), error["error"]["code"].clone())
    }
}

fn builder(path: &str) -> axum::http::request::Builder {
    Request::builder().uri(path).header("Host", "127.0.0.1:4000").header("Authorization", format!("Bearer {TOKEN}"))
}

fn get(path: &str) -> Request<Body> {
    builder(path).body(Body::empty()).expect("a request")
}

fn post(path: &str, body: &str) -> Request<Body> {
    let request = builder(path).method("POST").header("Content-Type", "application/json");
    request.body(Body::from(body.to_owned())).expect("a request")
}

/// The request with another value of a header.
fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().insert(name, value.parse().expect("a value"));
    request
}

#[test]
fn the_page_needs_no_token_and_allows_its_own_style_and_script_alone() {
    let labelling = Labelling::start();
    let request = Request::builder().uri("/").header("Host", "localhost:4000").body(Body::empty()).expect("a request");
    let (head, body) = labelling.response(request).into_parts();
    let body = labelling.runtime.block_on(to_bytes(body, usize::MAX)).expect("a body");
    let page = std::str::from_utf8(&body).expect("UTF-8");
    let policy = head.headers[header::CONTENT_SECURITY_POLICY].to_str().expect("ASCII");
    for (name, element) in [("style-src", "style"), ("script-src", "script")] {
        let (start, end) = (format!("<{element}>"), format!("</{element}>"));
        assert_eq!(page.matches(&format!("<{element}")).count(), 1, "{element}");
        let text = page.split_once(&start).and_then(|(_, rest)| rest.split_once(&end)).expect("one of it").0;
        assert!(policy.contains(&format!("{name} '{}'", policy_hash(text))), "{policy}");
    }
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    for outside in ["http://", "https://", "src=", "url(", "@import", "style="] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(!page.contains("innerHTML") && !page.contains("eval("));
    for (name, value) in [("cache-control", "no-store"), ("x-content-type-options", "nosniff")] {
        assert_eq!(head.headers[name], value);
    }
}

#[test]
fn strangers_are_refused_and_nothing_of_theirs_is_kept() {
    let labelling = Labelling::start();
    let label = || post("/label", &json!({"task": 0, "answer": "left"}).to_string());
    let large = |bytes: usize| post("/label", &format!("{{\"task\": 0, \"answer\": \"left\"{}}}", " ".repeat(bytes)));
    let cases = [
        (with(label(), "authorization", "Bearer another-token"), 401),
        (with(get("/task"), "authorization", "Bearer another-token"), 401),
        (with(label(), "host", "evil.example:4000"), 403),
        (with(get("/task"), "host", "192.168.0.1:4000"), 403),
        (with(label(), "origin", "http://evil.example"), 403),
        (with(label(), "origin", "http://127.0.0.1:4001"), 403),
        (with(label(), "origin", "null"), 403),
        (with(label(), "content-type", "text/plain"), 415),
        (with(label(), "content-encoding", "gzip"), 415),
        (large(5000), 413),
        (get("/label"), 404),
        (get("/labels.jsonl"), 404),
        (post("/task", "{}"), 404),
    ];
    for (request, expected) in cases {
        let told = format!("{request:?}");
        assert_eq!(labelling.ask(request).0.as_u16(), expected, "{told}");
    }
    assert_eq!(labelling.lines(), 0);
    // The rejections above have no other cause.
    assert_eq!(labelling.ask(with(label(), "origin", "http://127.0.0.1:4000")).0, StatusCode::OK);
    assert_eq!(labelling.ask(large(3000)).0, StatusCode::CONFLICT);
    assert_eq!(labelling.lines(), 1);
}

#[test]
fn nobody_sees_whose_texts_they_are_and_what_is_left_is_the_candidate_that_stood_there() {
    let labelling = Labelling::start();
    let first = labelling.task();
    assert_eq!(first["task"]["texts"], json!(["text of 3", "text of 5"]));
    assert_eq!((&first["task"]["context"], &first["task"]["attribute"]), (&json!("c\\u{202e}d"), &json!("flow")));
    let second = labelling.kept("/label", &json!({"task": 0, "answer": "left", "seconds": 2.5}));
    assert_eq!((&second["task"]["number"], &second["task"]["texts"]), (&json!(1), &json!(["text of 7", "text of 5"])));
    let third = labelling.kept("/label", &json!({"task": 1, "answer": "left"}));
    assert_eq!(third["task"]["scale"][4], json!({"value": 5, "key": 5}));
    let end = labelling.kept("/label", &json!({"task": 2, "answer": 4}));
    assert_eq!(end, json!({"total": 3, "done": 3, "last": 2, "task": null}));
    for status in [first, second, third] {
        let told = status.to_string();
        assert!(["gpt", "llama", "human", "s1", "Ann"].iter().all(|secret| !told.contains(secret)), "{told}");
    }
    let held = labelling.labels();
    let preferred = |id: &str| Label::Preferred(Preference::Candidate(id.into()));
    let labels: Vec<&Label> = held.rows.iter().map(|(_, row)| &row.label).collect();
    assert_eq!(labels, [&preferred("gpt"), &preferred("human-1"), &Label::Score(4.0)]);
    let LabelRow { task, annotator, seconds, .. } = &held.rows[0].1;
    assert_eq!((task.item.as_str(), annotator.as_deref(), *seconds), ("s1", Some("Ann"), Some(2.5)));
}

#[test]
fn an_answer_that_comes_twice_or_late_labels_no_other_task() {
    let labelling = Labelling::start();
    let answer = json!({"task": 0, "answer": "tie"});
    assert_eq!(labelling.kept("/label", &answer)["task"]["number"], 1);
    assert_eq!(labelling.refused("/label", &answer), (409, json!("already_labelled")));
    assert_eq!(labelling.refused("/label", &json!({"task": 0, "answer": "left"})), (409, json!("already_labelled")));
    assert_eq!((labelling.lines(), &labelling.task()["task"]["number"]), (1, &json!(1)));
    // Wrong kind of answer, unknown task, invalid value.
    for wrong in [
        json!({"task": 1, "answer": 3}),
        json!({"task": 2, "answer": "left"}),
        json!({"task": 2, "answer": "tie"}),
        json!({"task": 2, "answer": 6}),
        json!({"task": 2, "answer": 0}),
        json!({"task": 3, "answer": "tie"}),
        json!({"task": -1, "answer": "tie"}),
        json!({"task": 1, "answer": "best"}),
        json!({"task": 1, "answer": "tie", "seconds": -1}),
        json!({"task": 1, "answer": "tie", "more": 1}),
        json!({"task": 1}),
        json!([]),
    ] {
        assert_eq!(labelling.refused("/label", &wrong).0, 400, "{wrong}");
    }
    assert_eq!(labelling.lines(), 1);
}

#[test]
fn the_last_answer_is_taken_back_once_and_its_task_asked_again() {
    let labelling = Labelling::start();
    assert_eq!(labelling.task()["last"], Value::Null);
    assert_eq!(labelling.refused("/undo", &json!({"task": 0})), (409, json!("not_the_last")));
    labelling.kept("/label", &json!({"task": 0, "answer": "left"}));
    labelling.kept("/label", &json!({"task": 1, "answer": "skip"}));
    assert_eq!(labelling.refused("/undo", &json!({"task": 0})), (409, json!("not_the_last")));
    let status = labelling.kept("/undo", &json!({"task": 1}));
    assert_eq!((&status["task"]["number"], &status["last"], &status["done"]), (&json!(1), &json!(0), &json!(1)));
    assert_eq!(labelling.refused("/undo", &json!({"task": 1})), (409, json!("not_the_last")));
    labelling.kept("/undo", &json!({"task": 0}));
    assert_eq!((labelling.labels().rows.len(), labelling.lines()), (0, 4));
    let next = labelling.kept("/label", &json!({"task": 0, "answer": "right"}));
    assert_eq!((&next["task"]["number"], labelling.labels().rows.len()), (&json!(1), 1));
}

#[test]
fn a_session_goes_on_where_the_same_annotator_left_off_and_may_take_back_what_was_said_then() {
    let labelling = Labelling::start();
    labelling.kept("/label", &json!({"task": 1, "answer": "skip"}));
    labelling.kept("/label", &json!({"task": 0, "answer": "left"}));
    let counts = LabelCounts { total: 3, labelled: 1, skipped: 1, given: 1 };
    assert_eq!((labelling.session.counts(), counts.left()), (counts, 1));
    let labelling = labelling.again(Some("Bob"));
    assert_eq!((&labelling.task()["done"], labelling.session.counts().left()), (&json!(0), 3));
    let labelling = labelling.again(Some("Ann"));
    let status = labelling.task();
    assert_eq!((&status["done"], &status["task"]["number"], &status["last"]), (&json!(2), &json!(2), &json!(0)));
    labelling.kept("/label", &json!({"task": 2, "answer": 1}));
    assert_eq!(labelling.session.counts(), LabelCounts { total: 3, labelled: 2, skipped: 1, given: 1 });
    labelling.kept("/undo", &json!({"task": 2}));
    labelling.kept("/undo", &json!({"task": 0}));
    assert_eq!(labelling.session.counts(), LabelCounts { total: 3, labelled: 0, skipped: 1, given: 0 });
    labelling.kept("/label", &json!({"task": 0, "answer": "tie"}));
    assert_eq!(labelling.session.counts(), LabelCounts { total: 3, labelled: 1, skipped: 1, given: 1 });
}

#[cfg(unix)]
#[test]
fn a_label_that_the_file_does_not_take_is_told_and_its_task_stays_open() {
    let labelling = Labelling::start();
    std::fs::remove_file(labelling.path()).expect("removed");
    let (status, error) = labelling.post("/label", &json!({"task": 0, "answer": "left"}));
    assert_eq!((status.as_u16(), &error["error"]["code"]), (500, &json!("not_kept")));
    let told = error["error"]["message"].as_str().expect("a message");
    assert!(told.contains("was moved or replaced") && told.contains("restart the command"), "{told}");
    assert_eq!((&labelling.task()["done"], &labelling.task()["task"]["number"]), (&json!(0), &json!(0)));
}
