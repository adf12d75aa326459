//! The labelling page: one HTML document that only requests data from its own server.

use axum::body::Bytes;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use probity_report::{policy_hash, theme_style};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page and its security policy.
pub(super) struct LabelPage {
    pub(super) html: Bytes,
    /// Content security policy: this style, this script, and requests to this server.
    pub(super) policy: String,
}

impl LabelPage {
    /// Builds the page, which is the same for all tasks.
    pub(super) fn new() -> Self {
        let style = format!("{}\n{STYLE}", theme_style());
        let policy = format!(
            "default-src 'none'; style-src '{}'; script-src '{}'; connect-src 'self'; img-src data:; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'",
            policy_hash(&style),
            policy_hash(SCRIPT)
        );
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { "probity label" }
                    // Otherwise browsers request an icon.
                    link rel="icon" href="data:,";
                    style { (PreEscaped(&style)) }
                }
                body {
                    (top())
                    main #main .wide {
                        noscript { p { "This page needs JavaScript, which this browser does not run." } }
                        (task_container())
                        (finished())
                    }
                    (answers())
                    (help())
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        };
        Self { html: page.into_string().into(), policy }
    }
}

fn top() -> Markup {
    html! {
        header.top {
            div.wide {
                p #count { "probity label" }
                progress #progress max="1" value="0" aria-label="Completed tasks" {}
                button #help-button type="button" aria-haspopup="dialog" aria-keyshortcuts="?" { kbd { "?" } " Keys" }
            }
            p #said .wide role="status" aria-live="polite" {}
            p #wrong .wide role="alert" hidden {}
        }
    }
}

/// The container of a task.
fn task_container() -> Markup {
    html! {
        div #asked hidden {
            h1 #question tabindex="-1" {}
            section #instruction-part aria-labelledby="instruction-h" {
                h2 #instruction-h { "Instruction" }
                div #instruction .text.bounded role="region" aria-labelledby="instruction-h" tabindex="0" dir="auto" {}
            }
            section #context-part aria-labelledby="context-h" {
                h2 #context-h { "Context" }
                div #context .text.bounded role="region" aria-labelledby="context-h" tabindex="0" dir="auto" {}
            }
            div #texts {
                @for number in 1..=2 {
                    section id=(format!("part-{number}")) aria-labelledby=(format!("heading-{number}")) {
                        h2 id=(format!("heading-{number}")) { "Text " (number) }
                        div id=(format!("text-{number}")) .text dir="auto" {}
                    }
                }
            }
        }
    }
}

fn finished() -> Markup {
    html! {
        div #finished hidden {
            h1 #finished-h tabindex="-1" {}
            p { "All labels are saved. You can close this window; press Ctrl-C in the terminal to stop the command." }
        }
    }
}

fn answers() -> Markup {
    html! {
        footer #answers aria-label="Answers" hidden {
            div.wide {
                div #choices role="group" aria-labelledby="question" {}
                p #ends hidden {}
                div #others {
                    button #skip type="button" aria-keyshortcuts="s" { kbd { "s" } " Skip" }
                    button #undo type="button" aria-keyshortcuts="u" { kbd { "u" } " Undo" }
                }
            }
        }
    }
}

fn help() -> Markup {
    let rows = [
        ("1, ←, a", "text 1 is better"),
        ("2, →, b", "text 2 is better"),
        ("0, t", "neither is better"),
        ("0 to 9", "score of a single text"),
        ("s", "skip the task; it is not shown again"),
        ("u, Backspace", "undo the last answer"),
        ("?", "show these keys"),
    ];
    html! {
        dialog #help aria-labelledby="help-h" {
            h2 #help-h { "Keys" }
            table {
                tbody { @for (keys, does) in rows { tr { th scope="row" { (keys) } td { (does) } } } }
            }
            p { label { input #keys-on type="checkbox" checked; " Enable keys" } }
            p.note { "Texts are anonymous, and the positions of two texts are random for each task." }
            button #close type="button" { "Close" }
        }
    }
}
