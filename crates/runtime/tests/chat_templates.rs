//! Chat templates compared with transformers' rendering (`tests/goldens/chat_templates.json`, made by
//! `scripts/goldens/make_chat_templates.py`): our own expressions, and the collection of templates that
//! `scripts/get-tokenizers` downloads to the folder in `PROBITY_TOKENIZERS`.

mod optional_file;

use std::collections::BTreeMap;
use std::path::Path;

use optional_file::optional;
use probity_lm::{Message, Role};
use probity_runtime::chat::{ChatError, ChatTemplate};
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// Limits the memory of templates without end.
#[global_allocator]
static ALLOCATOR: probity_runtime::CountingAllocator = probity_runtime::CountingAllocator;

/// Intended differences, by reason.
const OTHERWISE: [(&str, &[&str]); 7] = [
    (
        "the engine has no tuples and no ranges: they are lists",
        &[
            "{{ 'a.b'.partition('.') }}", "{{ 'a.b.c'.rpartition('.') }}", "{{ 'ab'.partition('.') }}",
            "{{ 'ab'.rpartition('.') }}", "{{ {'a': 1}.items() }}", "{{ {'a': 1}.items() | list }}",
            "{{ [1, 2] == (1, 2) }}", "{{ {'b': 1, 'a': 2} | dictsort }}",
            "{{ {'b': 1, 'a': 2} | dictsort(by='value') }}", "{{ {'b': 1, 'a': 2} | items | list }}", "{{ range(3) }}",
            "{{ [range(2)] }}", "{{ (1, 'a') }}", "{{ (1,) }}",
        ],
    ),
    (
        "fails where Python does not",
        &[
            "{{ '%r' % 'a' }}", "{{ 2 ** -1 }}", "{{ 2.567 | round(2, 'floor') }}", "{{ [[1], [2]] | sum(start=[]) }}",
            "{{ 'a' | center(5) }}", "{{ [1, 2] | join(', ', attribute='x') }}", "{{ [1] | tojson(indent=20) }}",
        ],
    ),
    (
        "goes on where Python fails",
        &["{{ ','.join([1]) }}", "{% for x in none %}{% endfor %}", "{{ 'abc' is startingwith 'a' }}"],
    ),
    (
        "a namespace is a mapping",
        &["{% set ns = namespace(a=1) %}{{ ns is mapping }}{{ ns is iterable }}{{ ns is defined }}"],
    ),
    (
        "a macro has no names for surplus arguments",
        &["{% macro m(a, b='x') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}"],
    ),
    ("`and` of a false value is false", &["{{ '' or 'x' }}|{{ 'a' and 'b' }}|{{ 0 or none }}|{{ 0 and 1 }}"]),
    ("a text's escapes have four digits at most", &["{{ ['é', '\\U0001f600', 'a'] | tojson(ensure_ascii=true) }}"]),
];

/// Templates only for tools, which loop over the tools of a chat without any: Python fails, the engine loops zero
/// times.
const LOOPS_OVER_NONE: [&str; 3] = [
    "CohereForAI-c4ai-command-r-plus-tool_use.jinja", "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja",
];

#[derive(Deserialize)]
struct Golden {
    tokens: BTreeMap<String, String>,
    chats: BTreeMap<String, Vec<Turn>>,
    /// Each with its text; absent if it fails.
    expressions: Vec<(String, Option<String>)>,
    /// By file name: the hash of each rendering and of the file.
    templates: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Turn {
    role: String,
    content: String,
}

fn golden() -> Golden {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/chat_templates.json");
    serde_json::from_slice(&std::fs::read(path).expect("a committed file")).expect("JSON")
}

fn messages(turns: &[Turn]) -> Vec<Message> {
    let role = |role: &str| match role {
        "system" => Role::System,
        "assistant" => Role::Assistant,
        _ => Role::User,
    };
    turns.iter().map(|turn| Message::new(role(&turn.role), turn.content.as_str())).collect()
}

impl Golden {
    fn render(&self, source: &str, chat: &str, begin_answer: bool) -> Result<String, ChatError> {
        let tokens: Vec<(String, String)> = self.tokens.clone().into_iter().collect();
        let template = ChatTemplate::new(source, &tokens, Path::new("chat_template.jinja"))?;
        template.render(&messages(&self.chats[chat]), begin_answer)
    }
}

fn hash(text: &str) -> String {
    let first = Sha256::digest(text)[..8].try_into().expect("eight bytes");
    format!("{:016x}", u64::from_be_bytes(first))
}

#[test]
fn expressions_render_as_in_python() {
    let golden = golden();
    let mut others = Vec::new();
    for (source, expected) in &golden.expressions {
        let found = golden.render(source, "several turns", true);
        let otherwise = OTHERWISE.iter().any(|(_, expressions)| expressions.contains(&source.as_str()));
        if (found.as_ref().ok() == expected.as_ref()) == otherwise {
            others.push(format!("{source}\n    expected {expected:?}\n    found    {found:?}"));
        }
    }
    assert!(others.is_empty(), "{} of {} differ:\n{}", others.len(), golden.expressions.len(), others.join("\n"));
}

#[test]
fn templates_of_current_families_render_as_in_python() {
    let Some(folder) = optional("PROBITY_TOKENIZERS", "llama.cpp/templates") else { return };
    let golden = golden();
    let mut others = Vec::new();
    for (name, hashes) in &golden.templates {
        let source = std::fs::read_to_string(folder.join(name)).expect("a template of the collection");
        assert_eq!(hash(&source), hashes["sha256"], "{name} is another file");
        for (key, expected) in hashes.iter().filter(|(key, _)| *key != "sha256") {
            let chat = key.strip_suffix(" +");
            let found = match golden.render(&source, chat.unwrap_or(key), chat.is_some()) {
                Ok(text) => format!("text {text}"),
                Err(ChatError::Refused(why)) => {
                    format!("refused {}", why.strip_suffix(", in chat_template.jinja").unwrap_or(&why))
                }
                Err(_) => "failed".to_owned(),
            };
            let looped = LOOPS_OVER_NONE.contains(&name.as_str());
            if looped && *expected != hash("failed") || !looped && hash(&found) != *expected {
                others.push(format!("{name} {key}: {found}"));
            }
        }
    }
    assert!(others.is_empty(), "{} renderings differ:\n{}", others.len(), others.join("\n"));
}
