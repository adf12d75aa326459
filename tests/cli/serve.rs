//! `probity serve`, tested by clients over a socket.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::harness::{World, lines, root, tiny};
use crate::http::{Reply, Server, post};

/// A server of the tiny llama.
fn start(world: &World, more: &[&str]) -> Server {
    start_model(world, tiny().to_str().expect("UTF-8"), more)
}

/// A server of a model.
fn start_model(world: &World, model: &str, more: &[&str]) -> Server {
    Server::start(world.command(&[&["serve", "--model", model, "--port", "0"], more].concat()))
}

/// The events of a stream, which ends with `[DONE]`.
fn events(reply: &Reply) -> Vec<Value> {
    let mut events: Vec<&str> = reply.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(events.pop(), Some("[DONE]"), "{}", reply.body);
    events.into_iter().map(|event| serde_json::from_str(event).expect("JSON")).collect()
}

/// The answers of a command to lines of requests.
fn raw(world: &World, command: &str, requests: &[Value]) -> Vec<Value> {
    let input = world.file("r.jsonl", lines(requests));
    let model = tiny();
    let ran = world.run(&[command, "--model", model.to_str().expect("UTF-8"), "--input", &input, "--quiet"]).exits(0);
    ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn the_address_comes_first_and_a_server_that_is_asked_to_end_does_so_in_order() {
    let world = World::new();
    let served = start(&world, &["--name", "small"]);
    assert_eq!((served.get("/health").status, served.get("/health").json()), (200, json!({"status": "ok"})));
    let models = served.get("/v1/models").json();
    assert_eq!((&models["data"][0]["id"], &models["data"][0]["architecture"]), (&json!("small"), &json!("llama")));
    assert_eq!(served.get("/v1/models/small").json(), models["data"][0]);
    assert_eq!(served.get("/v1/models/org/other").status, 404);
    let openapi = served.get("/openapi.json").json();
    assert_eq!(openapi["openapi"], "3.1.0");
    for path in ["/v1/completions", "/v1/chat/completions", "/v1/score"] {
        assert!(openapi["paths"][path]["post"]["requestBody"].is_object(), "{path}");
    }
    // Sent before the server ends, and answered.
    let mut stream = served.connect();
    let body = json!({"prompt": [5, 6, 7], "max_tokens": 200, "temperature": 1.0, "stream": true}).to_string();
    stream.write_all(post("/v1/completions", &body, "").as_bytes()).expect("sent");
    let mut first = [0; 12];
    stream.read_exact(&mut first).expect("an answer has begun");
    assert_eq!(served.end().exits(0).stdout, "");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("UTF-8");
    assert!(first.starts_with(b"HTTP/1.1 200") && answer.contains("[DONE]"), "{answer}");
}

#[test]
fn labels_and_continuations_have_the_numbers_of_logprobs() {
    let world = World::new();
    let served = start(&world, &[]);
    let labels = json!({"A": ["A", " A"], "B": ["B"]});
    let chat = json!([{"role": "user", "content": "hi <|im_end|>"}]);
    let requests = [
        json!({"id": "1", "prompt": "one two", "labels": labels}),
        json!({"id": "2", "messages": chat, "answer_prefix": "Answer:", "labels": labels, "termination": "end_of_turn"}),
        json!({"id": "3", "prompt": "one two", "continuation": " three"}),
        json!({"id": "4", "tokens": [5, 6, 7], "continuation": "one"}),
        json!({"id": "5", "tokens": vec![5; 300], "continuation": "one"}),
    ];
    let expected = raw(&world, "logprobs", &requests);
    let items: Vec<Value> = requests
        .iter()
        .map(|request| {
            let mut item = request.clone();
            let fields = item.as_object_mut().expect("an object");
            if let Some(tokens) = fields.remove("tokens") {
                fields.insert("prompt".into(), tokens);
            }
            item
        })
        .collect();
    let answer = served.answer("/v1/score", &json!({"items": items}));
    let data = answer["data"].as_array().expect("a list");
    for (got, line) in data.iter().zip(&expected) {
        for field in ["id", "outcome", "prompt_tokens"] {
            assert_eq!(got[field], line[field], "{field}\n{got}");
        }
        if let Some(labels) = line.get("labels") {
            assert_eq!(got["mass"], line["mass"]);
            for label in got["labels"].as_array().expect("labels") {
                let line = &labels[label["name"].as_str().expect("a name")];
                assert_eq!((&label["logprob"], &label["prob"]), (&line["logprob"], &line["prob"]));
                let probability = label["probability"].as_f64().expect("a number");
                assert!((probability.ln() - label["logprob"].as_f64().expect("a number")).abs() < 1e-9);
            }
        } else if line.get("logprob").is_some() {
            for field in ["logprob", "token_logprobs", "tokens", "token_ids", "is_greedy"] {
                assert_eq!(got["continuation"][field], line[field], "{field}");
            }
        }
    }
    assert_eq!((&data[4]["tokens_needed"], &data[4]["limit"]), (&expected[4]["tokens_needed"], &json!(256)));
    assert!(data[4].get("continuation").is_none());
    let one = served.answer("/v1/score", &json!({"items": items[0]}));
    assert_eq!((&one["data"][0]["labels"], one["data"].as_array().map(Vec::len)), (&data[0]["labels"], Some(1)));
}

#[test]
fn a_class_head_is_served_with_the_numbers_of_logprobs_and_writes_nothing() {
    let world = World::new();
    let model = root("tests/goldens/classifiers/bart-nli").display().to_string();
    let served = start_model(&world, &model, &[]);
    let chat = json!([{"role": "user", "content": "Who came?"}, {"role": "assistant", "content": "the farmer </s>"}]);
    let item = json!({"id": "1", "messages": chat, "classes": true});
    let input = world.file("r.jsonl", lines(std::slice::from_ref(&item)));
    let ran = world.run(&["logprobs", "--model", &model, "--input", &input, "--quiet"]).exits(0);
    let line: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let answer = served.answer("/v1/score", &json!({"items": item}));
    let classes = answer["data"][0]["classes"].as_array().expect("classes");
    assert_eq!(classes.len(), 3);
    for class in classes {
        let said = &line["classes"][class["name"].as_str().expect("a name")];
        for field in ["logit", "logprob", "prob"] {
            assert_eq!(class[field], said[field], "{field}");
        }
    }
    for (path, request) in [
        ("score", json!({"items": {"prompt": "x", "continuation": "y"}})),
        ("score", json!({"items": {"messages": chat, "answer_prefix": "A", "classes": true}})),
        ("completions", json!({"prompt": "x"})),
        ("chat/completions", json!({"messages": chat})),
    ] {
        let reply = served.post(&format!("/v1/{path}"), &request);
        assert_eq!(reply.status, 400, "{path}: {}", reply.body);
    }
}

#[test]
fn texts_are_those_of_generate_whole_and_in_pieces() {
    let world = World::new();
    let served = start(&world, &[]);
    let chat = json!([{"role": "user", "content": "hi <|im_end|>"}]);
    let requests = [
        json!({"id": "1", "prompt": "one two three one two", "max_tokens": 30}),
        json!({"id": "2", "messages": chat, "max_tokens": 12}),
        json!({"id": "3", "prompt": "x", "max_tokens": 40, "temperature": 1.5, "top_p": 0.9, "seed": 3, "stop": ["e", "th"]}),
        json!({"id": "4", "tokens": [5, 6, 7, 8], "max_tokens": 9}),
    ];
    for (mut request, line) in requests.iter().cloned().zip(raw(&world, "generate", &requests)) {
        let fields = request.as_object_mut().expect("an object");
        fields.remove("id");
        if let Some(tokens) = fields.remove("tokens") {
            fields.insert("prompt".into(), tokens);
        }
        let is_chat = fields.contains_key("messages");
        let path = if is_chat { "/v1/chat/completions" } else { "/v1/completions" };
        let whole = served.answer(path, &request);
        let choice = &whole["choices"][0];
        let text = if is_chat { &choice["message"]["content"] } else { &choice["text"] };
        let reason = if line["finish"] == "length" { "length" } else { "stop" };
        assert_eq!((text, &choice["finish_reason"]), (&line["text"], &json!(reason)));
        assert_eq!(whole["usage"]["prompt_tokens"], line["prompt_tokens"]);
        assert_eq!(whole["usage"]["completion_tokens"], line["tokens"].as_array().expect("ids").len());
        request["stream"] = json!(true);
        request["stream_options"] = json!({"include_usage": true});
        let mut events = events(&served.post(path, &request));
        let usage = events.pop().expect("usage");
        assert_eq!((&usage["usage"], &usage["choices"]), (&whole["usage"], &json!([])));
        let piece = |event: &Value| {
            let choice = &event["choices"][0];
            let piece = if is_chat { &choice["delta"]["content"] } else { &choice["text"] };
            piece.as_str().unwrap_or_default().to_owned()
        };
        assert_eq!(events.iter().map(piece).collect::<String>(), line["text"].as_str().expect("a text"));
        assert_eq!(events.last().map(|event| &event["choices"][0]["finish_reason"]), Some(&json!(reason)));
    }
}

#[test]
fn an_echoed_prompt_in_ids_has_the_probability_of_each_token() {
    let world = World::new();
    let served = start(&world, &[]);
    let ids = [5, 6, 7, 40, 41, 42];
    let ask = |max_tokens: usize| {
        let body = json!({"model": "llama", "prompt": [ids], "max_tokens": max_tokens, "temperature": 0, "logprobs": 1,
            "seed": 1234, "echo": true});
        served.answer("/v1/completions", &body)
    };
    let [none, one, many] = [0, 1, 8].map(ask);
    let logprobs = &one["choices"][0]["logprobs"];
    let list =
        |answer: &Value, field: &str| answer["choices"][0]["logprobs"][field].as_array().expect("a list").clone();
    for field in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(list(&one, field)[..6], list(&none, field)[..], "{field}");
        assert_eq!(
            list(&many, field)[..7],
            list(&one, field)[..],
            "{field}: the token that is written is the likeliest"
        );
    }
    assert_eq!((&logprobs["token_logprobs"][0], &logprobs["top_logprobs"][0]), (&Value::Null, &Value::Null));
    let score = json!({"items": {"prompt": [5], "continuation": ids[1..]}});
    let score = served.answer("/v1/score", &score);
    assert_eq!(score["data"][0]["continuation"]["token_logprobs"], json!(list(&none, "token_logprobs")[1..]));
    let whole = one["choices"][0]["text"].as_str().expect("a text");
    assert!(whole.starts_with(none["choices"][0]["text"].as_str().expect("a text")));
    assert_eq!(one["usage"], json!({"prompt_tokens": 6, "completion_tokens": 1, "total_tokens": 7}));
    // The probabilities of the next token sum to at most one.
    let body = json!({"prompt": ids, "max_tokens": 1, "logprobs": 20});
    let top = served.answer("/v1/completions", &body)["choices"][0]["logprobs"]["top_logprobs"][0].clone();
    let sum: f64 =
        top.as_object().expect("a map").values().map(|logprob| logprob.as_f64().expect("a number").exp()).sum();
    assert!(top.as_object().map(serde_json::Map::len) == Some(20) && sum < 1.0, "{top}");
}

#[test]
fn an_answer_is_what_its_schema_admits_and_tells_its_tokens() {
    let world = World::new();
    let served = start(&world, &[]);
    let schema = json!({"type": "object", "properties": {"verdict": {"enum": ["A", "B"]}}, "required": ["verdict"],
        "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "v", "strict": true, "schema": schema}});
    let body = json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "A or B?"}]}],
        "response_format": format, "max_completion_tokens": 60, "logprobs": true, "top_logprobs": 2, "n": 2});
    let answer = served.answer("/v1/chat/completions", &body);
    for choice in answer["choices"].as_array().expect("choices") {
        let content = choice["message"]["content"].as_str().expect("a text");
        let verdict: Value = serde_json::from_str(content).expect("JSON");
        assert!(["A", "B"].map(Value::from).contains(&verdict["verdict"]), "{content}");
        let tokens = choice["logprobs"]["content"].as_array().expect("tokens");
        let bytes = tokens.iter().flat_map(|token| token["bytes"].as_array().expect("bytes").clone());
        let bytes: Vec<u8> = bytes.map(|byte| byte.as_u64().expect("a byte") as u8).collect();
        assert_eq!(bytes, content.as_bytes());
        assert!(tokens.iter().all(|token| token["top_logprobs"].as_array().map(Vec::len) == Some(2)));
    }
    assert_eq!(answer["choices"].as_array().map(Vec::len), Some(2));
}

/// Requests of all kinds, distinguished by their number.
fn mixed(n: usize) -> (&'static str, Value) {
    let ids: Vec<usize> =
        (0..60).map(|place| if place < 50 { 5 + place % 40 } else { 40 + (n * 7 + place) % 200 }).collect();
    match n % 4 {
        0 => ("/v1/score", json!({"items": {"prompt": ids, "labels": {"A": ["A"], "B": ["B", " B"]}}})),
        1 => ("/v1/completions", json!({"prompt": ids, "max_tokens": 1, "echo": true, "logprobs": 3})),
        2 => (
            "/v1/completions",
            json!({"prompt": ids, "max_tokens": 20 + n, "temperature": 1.0, "seed": n, "logprobs": 1}),
        ),
        _ => (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": format!("number {n}")}], "max_tokens": 30}),
        ),
    }
}

#[test]
fn eight_and_thirty_two_clients_get_the_bytes_that_each_gets_alone() {
    let world = World::new();
    let served = start(&world, &[]);
    let ask = |n: usize| {
        let (path, body) = mixed(n);
        let reply = served.post(path, &body);
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.body
    };
    let alone: Vec<String> = (0..32).map(ask).collect();
    let together = |asked: std::ops::Range<usize>| -> Vec<String> {
        std::thread::scope(|scope| {
            let clients: Vec<_> = asked.map(|n| scope.spawn(move || ask(n))).collect();
            clients.into_iter().map(|client| client.join().expect("answered")).collect()
        })
    };
    for at_once in [8, 32, 32] {
        let all: Vec<String> = (0..32).step_by(at_once).flat_map(|first| together(first..first + at_once)).collect();
        assert_eq!(all, alone, "{at_once} clients");
    }
}

#[test]
fn what_is_wrong_with_a_request_is_told_by_field() {
    let world = World::new();
    let served = start(&world, &["--max-tokens", "100"]);
    let message = json!([{"role": "user", "content": "x"}]);
    let cases = [
        ("completions", json!({"prompt": "x", "max_tokns": 3}), "max_tokns", "did you mean `max_tokens`?"),
        ("completions", json!({"prompt": "x", "max_tokens": 101}), "max_tokens", "at most 100"),
        ("completions", json!({"prompt": "x", "max_tokens": "3"}), "max_tokens", "at line 1 column"),
        ("completions", json!({"prompt": "x", "presence_penalty": 0.5}), "presence_penalty", "is not supported"),
        ("completions", json!({"prompt": "x", "best_of": 2}), "best_of", "or set it to 1"),
        ("completions", json!({"prompt": "x", "logprobs": 21}), "logprobs", "at most 20"),
        ("completions", json!({"prompt": "x", "stop": [""]}), "stop", "empty"),
        ("completions", json!({"prompt": "x", "temperature": -1}), "temperature", "from 0 to 2"),
        ("completions", json!({"prompt": "x", "temperature": 9}), "temperature", "from 0 to 2"),
        ("completions", json!({"prompt": []}), "prompt", "the list is empty"),
        ("completions", json!({"prompt": ["x", 5]}), "prompt[1]", "expected a string"),
        ("completions", json!({"prompt": [[5], [99_999]]}), "prompt[1]", "not in the vocabulary"),
        ("completions", json!({"prompt": vec![5; 250], "max_tokens": 7}), "prompt", "257 tokens, but the limit is 256"),
        ("chat/completions", json!({"messages": []}), "messages", "the list is empty"),
        ("chat/completions", json!({"messages": message, "tools": [{"type": "function"}]}), "tools", "omit it"),
        ("chat/completions", json!({"messages": message, "top_logprobs": 2}), "top_logprobs", "requires `logprobs`"),
        (
            "chat/completions",
            json!({"messages": [{"role": "tool", "content": "x"}]}),
            "messages[0].role",
            "unknown variant",
        ),
        (
            "chat/completions",
            json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            "messages[0].content[0].type",
            "image_url",
        ),
        (
            "chat/completions",
            json!({"messages": message, "response_format": {"type": "json_schema", "json_schema": {"schema": {"uniqueItems": true}}}}),
            "response_format",
            "`uniqueItems` is not supported",
        ),
        ("score", json!({"items": []}), "items", "the list is empty"),
        ("score", json!({"items": [{"prompt": "x"}]}), "items[0]", "one of `labels`, `continuation`"),
        ("score", json!({"items": {"prompt": "x", "labels": {"A": []}}}), "items[0].labels", "has no variants"),
        (
            "score",
            json!({"items": {"prompt": "x", "labels": {"a": ["x"], "b": ["x"]}}}),
            "items[0].labels",
            "share the tokens",
        ),
        ("score", json!({"items": {"prompt": [99_999], "continuation": "x"}}), "items[0].prompt", "99999"),
    ];
    for (path, body, param, told) in cases {
        let reply = served.post(&format!("/v1/{path}"), &body);
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, &error["param"]), (400, &json!(param)), "{body}\n{error}");
        assert!(error["message"].as_str().is_some_and(|message| message.contains(told)), "{told}\n{error}");
    }
    let too_long = served.post("/v1/completions", &json!({"prompt": vec![5; 300], "max_tokens": 1})).json();
    assert_eq!(too_long["error"]["code"], "context_length_exceeded");
    let broken = served.send(&post("/v1/completions", "{\"prompt\":\n \"x\",}", ""));
    assert!(broken.status == 400 && broken.body.contains("line 2 column"), "{}", broken.body);
    let twice = served.send(&post("/v1/completions", "{\"prompt\": \"x\", \"prompt\": \"y\"}", ""));
    assert!(twice.status == 400 && twice.body.contains("duplicate key `prompt`"), "{}", twice.body);
    let other = served.post("/v1/completions", &json!({"prompt": "x", "model": "other"}));
    assert_eq!((other.status, &other.json()["error"]["code"]), (404, &json!("model_not_found")));
    // Fields that only identify, or that set the default, are accepted.
    let neutral = json!({"model": "llama", "prompt": "x", "max_tokens": 1, "user": "me", "metadata": {"a": "b"},
        "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "best_of": 1, "suffix": null});
    served.answer("/v1/completions", &neutral);
}

#[test]
fn strangers_are_refused_and_paths_and_methods_told() {
    let world = World::new();
    let token = world.file("token", "a-secret-token\n");
    let served = start(&world, &["--token-file", &token]);
    let body = json!({"prompt": "x", "max_tokens": 1}).to_string();
    let status = |more: &str| served.send(&post("/v1/completions", &body, more)).status;
    assert_eq!((status(""), status("Authorization: Bearer wrong-token\r\n")), (401, 401));
    assert_eq!(status("Authorization: Bearer a-secret-token\r\n"), 200);
    assert_eq!((served.get("/health").status, served.get("/openapi.json").status), (200, 401));
    drop(served);
    let served = start(&world, &[]);
    let rebound = post("/v1/completions", &body, "").replace("Host: 127.0.0.1", "Host: evil.example");
    assert_eq!(served.send(&rebound).status, 403);
    let form = post("/v1/completions", &body, "").replace("application/json", "text/plain");
    assert_eq!(served.send(&form).status, 415);
    assert_eq!(served.get("/v1/nothing").status, 404);
    let method = served.get("/v1/score");
    assert!(method.status == 405 && method.head.contains("allow: post"), "{}", method.head);
    let preflight = served.send(
        "OPTIONS /v1/score HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nOrigin: http://evil.example\r\n\r\n",
    );
    assert!(preflight.status == 405 && !preflight.head.contains("access-control"), "{}", preflight.head);
    let model = tiny();
    let open = ["serve", "--model", model.to_str().expect("UTF-8"), "--host", "0.0.0.0"];
    world.run(&open).fails_with(&["0.0.0.0 is reachable from other machines", "hint: set a token with --token-file"]);
    let port = served.port.to_string();
    let taken = ["serve", "--model", model.to_str().expect("UTF-8"), "--port", &port];
    world.run(&taken).fails_with(&["cannot listen on 127.0.0.1", "hint: choose another port"]);
    let short = world.file("short", "x");
    world
        .run(&[&open[..], &["--token-file", &short]].concat())
        .fails_with(&["does not hold a valid token", "hint: create one with"]);
}

#[test]
fn large_bodies_idle_connections_and_clients_that_leave_keep_nobody_from_an_answer() {
    let world = World::new();
    let served = start(&world, &["--max-connections", "8", "--max-body", "20kB"]);
    let ask = || served.answer("/v1/completions", &json!({"prompt": "x", "max_tokens": 3}));
    let before = ask();
    let huge = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: \
                1000000000\r\n\r\n{";
    let reply = served.send(huge);
    assert!(reply.status == 413 && reply.body.contains("20000 bytes"), "{}", reply.body);
    let chunked = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: \
         chunked\r\n\r\n\
         {:x}\r\n{}\r\n",
        30_000,
        " ".repeat(30_000)
    );
    assert_eq!(served.send(&chunked).status, 413);
    // More than the system buffers between two processes: a client that sends everything before reading still gets the
    // response.
    let whole = post("/v1/completions", &json!({"prompt": "x".repeat(8_000_000)}).to_string(), "");
    let few = start(&world, &["--max-body", "2MB"]);
    assert_eq!(few.send(&whole).status, 413);
    few.end().exits(0);
    // More idle connections than the server has slots.
    let idle: Vec<TcpStream> = (0..50).map(|_| served.connect()).collect();
    assert_eq!(ask(), before);
    let mut slow: Vec<TcpStream> = (0..20).map(|_| served.connect()).collect();
    for stream in &mut slow {
        let _ = stream.write_all(b"POST /v1/completions HTTP/1.1\r\nHost: loc");
    }
    assert_eq!(ask(), before);
    drop((idle, slow));
    for _ in 0..20 {
        let body = json!({"prompt": [5, 6], "max_tokens": 250, "stream": true, "temperature": 1.0}).to_string();
        let mut stream = served.connect();
        let _ = stream.write_all(post("/v1/completions", &body, "").as_bytes());
    }
    // Until the server notices that they are gone, all slots may be in use, which it reports.
    let body = json!({"prompt": "x", "max_tokens": 3});
    let reply = std::iter::repeat_with(|| served.post("/v1/completions", &body)).find(|reply| {
        assert!(reply.status == 200 || reply.status == 503 && reply.head.contains("retry-after: 1"), "{}", reply.head);
        reply.status == 200
    });
    assert_eq!(reply.map(|reply| reply.json()), Some(before));
    served.end().exits(0);
}

/// Many clients of the trained model `SmolLM2`, if downloaded, with a generation at the same time.
#[test]
fn clients_of_a_trained_model_get_the_bytes_that_each_gets_alone() {
    let models = std::env::var_os("PROBITY_MODELS").map(std::path::PathBuf::from);
    let model = models.map(|models| models.join("smollm2-135m-instruct")).filter(|model| model.is_dir());
    let file = model.and_then(|folder| Some(std::fs::read_dir(folder).ok()?.next()?.ok()?.path()));
    let Some(file) = file else {
        eprintln!("skipped: PROBITY_MODELS has no smollm2-135m-instruct");
        return;
    };
    let world = World::new();
    let served = start_model(&world, file.to_str().expect("UTF-8"), &[]);
    let (tale, chat) =
        ("Once upon a time there was a ferry that waited for the ice to break. ".repeat(3), "/v1/chat/completions");
    let ask = |n: usize| {
        let question = format!("{tale} Is sentence {n} true? Answer yes or no.");
        let messages = json!([{"role": "user", "content": question}]);
        let (path, body) = match n % 3 {
            0 => (
                "/v1/score",
                json!({"items": {"messages": messages, "labels": {"yes": ["yes", "Yes"], "no": ["no", "No"]}}}),
            ),
            1 => (chat, json!({"messages": messages, "max_tokens": 12, "logprobs": true, "top_logprobs": 2})),
            _ => ("/v1/completions", json!({"prompt": question, "max_tokens": 1, "echo": true, "logprobs": 1})),
        };
        let reply = served.post(path, &body);
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.body
    };
    let alone: Vec<String> = (0..9).map(ask).collect();
    let together: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..9).map(|n| scope.spawn(move || ask(n))).collect();
        clients.into_iter().map(|client| client.join().expect("answered")).collect()
    });
    assert_eq!(together, alone);
}

#[test]
fn thoughts_come_apart_from_the_answer() {
    let world = World::new();
    let served = |style: &str, more: &[&str]| {
        start_model(&world, root("tests/goldens/thinking").join(style).to_str().expect("UTF-8"), more)
    };
    let chat = |more: Value| {
        let mut body = json!({"messages": [{"role": "user", "content":
            "Which text is better, A or B? Answer with one letter."}], "max_tokens": 120});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };
    let path = "/v1/chat/completions";
    for style in ["qwen3", "harmony"] {
        let server = served(style, &[]);
        let message = server.answer(path, &chat(json!({})))["choices"][0]["message"].clone();
        let (thought, answer) = (message["reasoning_content"].as_str().expect("a thought"), &message["content"]);
        assert!(thought.trim().ends_with('.') && !thought.contains("assistant"), "{style}: {message}");
        assert!(answer.as_str().expect("an answer").starts_with("Answer"), "{style}: {message}");
        let reply = server.post(path, &chat(json!({"stream": true})));
        let join = |field: &str| -> String {
            events(&reply).iter().filter_map(|event| event["choices"][0]["delta"][field].as_str()).collect()
        };
        assert_eq!((join("reasoning_content").as_str(), &json!(join("content"))), (thought, answer), "{style}");
        let refused = server.post(path, &chat(json!({"reasoning_effort": "low"})));
        assert!(refused.status == 400 && refused.body.contains("no such variable"), "{}", refused.body);
        let refused = server.post(path, &chat(json!({"chat_template_kwargs": {"messages": []}})));
        assert!(refused.status == 400 && refused.body.contains("cannot be set"), "{}", refused.body);
    }
    let server = served("qwen3", &[]);
    let closed = json!({"chat_template_kwargs": {"enable_thinking": false}});
    let off = server.answer(path, &chat(closed))["choices"][0]["message"].clone();
    assert!(
        off["reasoning_content"].is_null() && off["content"].as_str().expect("text").starts_with("Answer"),
        "{off}"
    );
    let labels = json!({"items": [{"messages": [{"role": "user", "content": "Which text is better, A or B?"}],
        "labels": {"A": ["A"], "B": ["B"]}, "id": "1"}]});
    let mass = server.answer("/v1/score", &labels)["data"][0]["mass"].as_f64().expect("a mass");
    assert!(mass > 0.05, "labels are queried after a closed thought: {mass}");
    let off_by_option =
        served("r1", &["--think", "off"]).answer(path, &chat(json!({})))["choices"][0]["message"].clone();
    assert!(off_by_option["reasoning_content"].is_null(), "{off_by_option}");
    world
        .run(&["serve", "--model", root("tests/goldens/thinking/r1").to_str().expect("UTF-8"), "--think", "9"])
        .fails_with(&["does not write thoughts", "omit --think"]);
}
