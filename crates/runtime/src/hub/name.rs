//! Hub model names, and the files of a repository that they refer to.

use std::path::{Component, Path};

use crate::weights::PartName;

/// `ORG/NAME[@REVISION][:FILE]`: a repository of the Hugging Face hub, with an optional revision and file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubName {
    /// `organisation/name`; a few old repositories have no organisation.
    pub repo: String,
    /// A branch, tag or commit; default `main`.
    pub revision: Option<String>,
    /// A GGUF file's path in the repository, or its quantisation (`Q4_K_M`).
    pub file: Option<String>,
}

impl HubName {
    /// Parses a name. The result cannot point outside the repository's folder.
    pub fn parse(text: &str) -> Option<Self> {
        // The file first, because its path may contain `@`.
        let (whole, file) = match text.split_once(':') {
            Some((whole, file)) => (whole, Some(file)),
            None => (text, None),
        };
        let (repo, revision) = match whole.split_once('@') {
            Some((repo, revision)) => (repo, Some(revision)),
            None => (whole, None),
        };
        let is_word = |word: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            // `..` leaves the folder, and `.probity` is reserved for our files.
            !word.is_empty() && !word.starts_with('.') && word.chars().all(allowed)
        };
        let words: Vec<&str> = repo.split('/').collect();
        let valid = words.len() <= 2 && words.iter().all(|word| is_word(word)) && file.is_none_or(stays_inside);
        let valid = valid && revision.is_none_or(|revision| revision.split('/').all(is_word));
        valid.then(|| Self {
            repo: repo.to_owned(),
            revision: revision.map(str::to_owned),
            file: file.map(str::to_owned),
        })
    }

    /// The revision, or the default.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }

    /// Sets the revision, if given.
    #[must_use]
    pub fn at(self, revision: Option<&str>) -> Option<Self> {
        let Some(revision) = revision else { return Some(self) };
        Self::parse(&Self { revision: Some(revision.to_owned()), ..self }.to_string())
    }

    /// The repository's folder in the cache.
    pub(super) fn folder(&self) -> String {
        format!("models--{}", self.repo.replace('/', "--"))
    }
}

impl std::fmt::Display for HubName {
    /// In the notation of [`parse`](Self::parse).
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.repo)?;
        if let Some(revision) = &self.revision {
            write!(f, "@{revision}")?;
        }
        match &self.file {
            Some(file) => write!(f, ":{file}"),
            None => Ok(()),
        }
    }
}

/// Whether a path stays below the folder that it is joined to, on any system.
pub(super) fn stays_inside(path: &str) -> bool {
    !path.is_empty()
        && !path.contains(['\\', '\0', ':'])
        && !path.ends_with('/')
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

pub(super) fn is_gguf(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// GGUF files that contain a model, excluding image projectors and importance matrices. A model in several files is
/// its first one; other parts are listed only if that one is missing.
pub(super) fn ggufs<'a>(paths: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    let mut found: Vec<&str> = paths
        .into_iter()
        .filter(|path| is_gguf(path) && !name(path).starts_with("mmproj") && !name(path).contains("imatrix"))
        .collect();
    found.sort_unstable();
    let is_first = |path: &&str| {
        PartName::parse(path).is_none_or(|part| part.number == 1 || !found.contains(&part.of_number(1).as_str()))
    };
    found.iter().copied().filter(is_first).collect()
}

/// The files of `ggufs` that match `wanted`: the one with that path, otherwise those with that quantisation.
pub(super) fn meant<'a>(ggufs: &[&'a str], wanted: &str) -> Vec<&'a str> {
    if let Some(exact) = ggufs.iter().find(|path| **path == wanted) {
        return vec![exact];
    }
    ggufs
        .iter()
        .copied()
        .filter(|path| quantisation(path).is_some_and(|label| label.eq_ignore_ascii_case(wanted)))
        .collect()
}

/// The quantisation at the end of a GGUF file name, in upper case: `Q4_K_M` for `model-q4_k_m.gguf`.
pub(super) fn quantisation(path: &str) -> Option<String> {
    let name = path.rsplit('/').next()?;
    let stem = PartName::parse(name).map_or_else(|| &name[..name.len() - ".gguf".len()], |part| part.whole);
    let starts =
        stem.char_indices().filter(|&(at, _)| at == 0 || matches!(stem.as_bytes()[at - 1], b'-' | b'.' | b'_'));
    starts.map(|(at, _)| stem[at..].to_ascii_uppercase()).find(|label| is_quantisation(label))
}

/// `Q4_K_M`, `IQ2_XS`, `Q8_0`, `F16`, `BF16` …
fn is_quantisation(label: &str) -> bool {
    if matches!(label, "F16" | "F32" | "BF16" | "FP16" | "FP32") {
        return true;
    }
    let bits = label.strip_prefix("IQ").or_else(|| label.strip_prefix("TQ")).or_else(|| label.strip_prefix('Q'));
    let Some((bits, kind)) = bits.and_then(|rest| rest.split_at_checked(1)) else { return false };
    let known = ["", "_0", "_1", "_K", "_K_S", "_K_M", "_K_L", "_K_XL", "_XXS", "_XS", "_S", "_M", "_NL"];
    bits.bytes().all(|byte| byte.is_ascii_digit()) && known.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_and_written_the_same() {
        for text in ["org/name", "org/name:Q4_K_M", "org/name@refs/pr/1:sub/x.gguf", "gpt2", "org/name@v1.0"] {
            assert_eq!(HubName::parse(text).expect(text).to_string(), text);
        }
        let name = HubName::parse("org/name:x.gguf").expect("name").at(Some("v2")).expect("revision");
        assert_eq!((name.to_string().as_str(), name.revision()), ("org/name@v2:x.gguf", "v2"));
        for text in [
            "a/b/c", "../x", "a/b@../c", "a/b@", "a/b@x//y", "a/b:../../x.gguf", "a/b:", "a/b:x\\y.gguf", "a b/c",
            "a/b@/etc",
        ] {
            assert_eq!(HubName::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_quantisation_is_the_end_of_a_name() {
        let labels = [
            ("Llama-3.2-3B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
            ("qwen2.5-7b-instruct-q4_0.gguf", "Q4_0"),
            ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
            ("prometheus-7b-v2.0.Q8_0.gguf", "Q8_0"),
            ("model_iq2_xxs.gguf", "IQ2_XXS"),
            ("BF16/model-BF16-00001-of-00002.gguf", "BF16"),
            ("q6_k.gguf", "Q6_K"),
        ];
        for (name, label) in labels {
            assert_eq!(quantisation(name).as_deref(), Some(label), "{name}");
        }
        assert_eq!(quantisation("qwen2.5-7b.gguf"), None);
        assert_eq!(quantisation("é.gguf"), None);
    }

    #[test]
    fn a_path_or_a_quantisation_means_a_file() {
        let files = ggufs([
            "m-Q4_K_M.gguf", "m-Q8_0.gguf", "sub/m-Q8_0.gguf", "mmproj-F16.gguf", "m.imatrix.gguf", "config.json",
        ]);
        assert_eq!(files, ["m-Q4_K_M.gguf", "m-Q8_0.gguf", "sub/m-Q8_0.gguf"]);
        assert_eq!(meant(&files, "q4_k_m"), ["m-Q4_K_M.gguf"]);
        assert_eq!(meant(&files, "Q8_0").len(), 2);
        assert_eq!(meant(&files, "sub/m-Q8_0.gguf"), ["sub/m-Q8_0.gguf"]);
        assert!(meant(&files, "K_M").is_empty() && meant(&files, "Q4_0").is_empty());
    }
}
