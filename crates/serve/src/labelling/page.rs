//! The page: one text that asks for nothing but its own server's answers.

use axum::body::Bytes;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use probity_report::{policy_hash, theme_style};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page and what a browser may do on it.
pub(super) struct LabelPage {
    pub(super) html: Bytes,
    /// The content security policy: this style, this script, and answers of this server.
    pub(super) policy: String,
}

impl LabelPage {
    /// The page, which is the same for all tasks.
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
                    // Browsers ask for an icon by themselves where none is named.
                    link rel="icon" href="data:,";
                    style { (PreEscaped(&style)) }
                }
                body {
                    (top())
                    main #main .wide {
                        noscript { p { "The script in this page asks for tasks, and this browser does not run it." } }
                        (asked())
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
                progress #progress max="1" value="0" aria-label="Tasks that are done" {}
                button #help-button type="button" aria-haspopup="dialog" aria-keyshortcuts="?" { kbd { "?" } " Keys" }
            }
            p #said .wide role="status" aria-live="polite" {}
            p #wrong .wide role="alert" hidden {}
        }
    }
}

/// Where a task is shown.
fn asked() -> Markup {
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
            p { "Everything is kept. This window can be closed; Ctrl-C in the terminal ends the command." }
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
                    button #undo type="button" aria-keyshortcuts="u" { kbd { "u" } " Undo the last" }
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
        ("0 to 9", "the score, where one text is shown"),
        ("s", "skip the task; it is not asked again"),
        ("u, Backspace", "take the last answer back"),
        ("?", "these keys"),
    ];
    html! {
        dialog #help aria-labelledby="help-h" {
            h2 #help-h { "Keys" }
            table {
                tbody { @for (keys, does) in rows { tr { th scope="row" { (keys) } td { (does) } } } }
            }
            p { label { input #keys-on type="checkbox" checked; " Keys answer" } }
            p.note { "Nothing tells whose texts they are, and which of two stands first is drawn for each task." }
            button #close type="button" { "Close" }
        }
    }
}
