//! Files named by options: prompts and texts, whose content identifies a run.

use std::path::PathBuf;

use probity_methods::{Configured, DynMethod};
use probity_options::{OptionSpec, open_regular};
use probity_studies::methods;
use serde_json::Value;

use crate::SessionError;

/// A file named by an option's value.
pub(crate) struct OptionFile {
    /// The option's field.
    pub(crate) field: String,
    pub(crate) path: PathBuf,
}

impl OptionFile {
    /// The files among a method's own options, according to the forms of their values.
    pub(crate) fn all(method: &dyn DynMethod, configured: &dyn Configured) -> Vec<Self> {
        Self::among(method, &configured.options_in_force())
    }

    /// The files among `values`, by field.
    fn among(method: &dyn DynMethod, values: &Value) -> Vec<Self> {
        let of = |option: OptionSpec| {
            let value = &values[&option.field];
            let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            let paths = values.iter().filter_map(|value| file_of(method, &option.form, value.as_str()?));
            paths.map(|path| Self { field: option.field.clone(), path: path.into() }).collect::<Vec<_>>()
        };
        method.options().into_iter().flat_map(of).collect()
    }

    /// The option's long name.
    pub(crate) fn option(&self) -> String {
        self.field.replace('_', "-")
    }
}

/// Files of options that cannot be read, by long name; `values` are by field.
pub fn unreadable_files(method: &dyn DynMethod, values: &Value) -> Vec<(String, SessionError)> {
    let unreadable = |file: OptionFile| {
        let source = open_regular(&file.path).err()?;
        Some((file.option(), SessionError::OptionFile { path: file.path, source }))
    };
    OptionFile::among(method, values).into_iter().filter_map(unreadable).collect()
}

/// The file that a value of this form names; `None` for a text or the name of a prompt.
fn file_of<'v>(method: &dyn DynMethod, form: &str, value: &'v str) -> Option<&'v str> {
    match form {
        // A method may use another method's prompts.
        "NAME|FILE" => {
            let known = methods().flat_map(DynMethod::prompts).chain(method.prompts());
            (known.into_iter().all(|prompt| prompt.name() != value)).then_some(value)
        }
        _ if form.starts_with("TEXT|@FILE") => value.strip_prefix('@'),
        _ if form.ends_with("=FILE") => value.split_once('=').map(|(_, file)| file),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use probity_options::GivenOptions;
    use serde_json::json;

    use super::*;
    use crate::stage_kinds::stage_kind;

    #[test]
    fn every_option_that_may_name_a_file_is_known_by_its_form() {
        let files = |method: &str, more: &Value| {
            let given: GivenOptions = more.as_object().expect("options").clone();
            let kind = stage_kind(method).expect("a kind");
            let configured = kind.with(&given).unwrap_or_else(|error| panic!("{method}: {error}"));
            let all = OptionFile::all(kind, &*configured).into_iter();
            all.map(|file| format!("{}={}", file.field, file.path.display())).collect::<Vec<_>>()
        };
        let of = json!({"attribute": ["quality"], "question": ["Is it?", "@q.txt", "@r.txt"], "template": ["t.j2"]});
        assert_eq!(files("checklist", &of), ["question=q.txt", "question=r.txt", "template=t.j2"]);
        let of = json!({"attribute": ["quality"], "template": ["1", "t.j2"]});
        assert_eq!(files("compare", &of), ["template=t.j2"]);
        let of = json!({"attribute": ["quality"], "criteria": "@c.txt", "steps": "generate", "steps_template": "s.j2"});
        assert_eq!(files("g-eval", &of), ["criteria=c.txt", "steps_template=s.j2"]);
        let of = json!({"attribute": ["quality"], "rubric": "@r.txt", "template": "j.j2"});
        assert_eq!(files("judge", &of), ["rubric=r.txt", "template=j.j2"]);
        let of = json!({"attribute": ["quality"], "template": "pairwise", "reviser_template": ["adapted=a.j2"]});
        assert_eq!(files("reviseval", &of), ["reviser_template=a.j2"]);
        for method in ["prompt-scoring", "gpt-score"] {
            let of = json!({"attribute": ["quality"], "template": ["t.j2"]});
            assert_eq!(files(method, &of), ["template=t.j2"], "{method}");
        }
        assert_eq!(files("parapluie", &json!({"template": ["direct", "t.j2"]})), ["template=t.j2"]);
    }
}
