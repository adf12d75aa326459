//! Low-rank adapters (`LoRA`, Hu et al. 2022) in PEFT's format, `adapter_config.json` and `adapter_model.safetensors`,
//! merged into a model's weights when loading.
//!
//! A linear layer's weights become W + s·B·A, where s is `lora_alpha` / r, or `lora_alpha` / √r with `use_rslora`. Sums
//! are computed in f32 and the tensor stays in f32; a quantised layer is not quantised again. Every field of the
//! configuration and every tensor of the adapter is either used, known to be irrelevant, or rejected.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use probity_kernels::{WeightType, dequantise};
use probity_lm::{BoxedError, nearest, parse_unique};
use probity_models::{RawTensor, SourceError, TensorBytes, WeightSource};
use rayon::prelude::*;
use serde_json::{Map, Value, json};

use super::{SafetensorsFiles, WeightsError, check_finite};
use crate::side_file;

/// File names of the configuration and weights.
const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";

/// Why an adapter cannot be used.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum AdapterError {
    /// A file cannot be read.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Weights(#[from] WeightsError),
    /// The file is not an adapter's configuration, or requests something unsupported.
    #[error("{}: {why}", path.display())]
    #[diagnostic(help("{hint}"))]
    Config {
        /// `adapter_config.json`.
        path: PathBuf,
        /// Description of the problem.
        why: String,
        /// A hint.
        hint: &'static str,
    },
    /// A tensor of the adapter does not fit.
    #[error("tensor `{name}` in {}: {source}", path.display())]
    #[diagnostic(help("use an adapter of this model with complete files"))]
    Tensor {
        /// The tensor.
        name: String,
        /// `adapter_model.safetensors`.
        path: PathBuf,
        /// Description of the problem.
        #[diagnostic_source]
        source: BoxedError,
    },
}

/// An adapter's files, parsed and checked.
pub struct LoraAdapter {
    folder: PathBuf,
    weights: SafetensorsFiles,
    rank: usize,
    scale: f32,
    /// Names of the changed tensors, with the names of A and B.
    changes: BTreeMap<String, [String; 2]>,
}

impl LoraAdapter {
    /// Reads the adapter in `folder`.
    pub fn open(folder: &Path) -> Result<Self, AdapterError> {
        let (rank, scale) = read_config(&folder.join(CONFIG))?;
        let path = folder.join(WEIGHTS);
        // A pickle can execute code when opened, so it is not read at all.
        if !path.is_file() && folder.join("adapter_model.bin").is_file() {
            let hint = "save the adapter again with safe_serialization=True";
            return Err(AdapterError::Config {
                path,
                why: "it has only adapter_model.bin, which can run code when opened".into(),
                hint,
            });
        }
        let weights = SafetensorsFiles::open(&path)?;
        let changes = changes(&weights, &path)?;
        let adapter = Self { folder: folder.to_owned(), weights, rank, scale, changes };
        for name in adapter.changes.values().flatten() {
            let tensor = adapter.weights.tensor(name).map_err(|error| adapter.wrong(name, error))?;
            // Checked here too; an error in the sum later would name the model's file.
            check_finite(&adapter.weights.path(), name, &tensor)?;
        }
        Ok(adapter)
    }

    /// The adapter's files.
    pub fn files(&self) -> [PathBuf; 2] {
        [CONFIG, WEIGHTS].map(|name| self.folder.join(name))
    }

    /// Names of the tensors that it changes.
    pub fn changed(&self) -> impl Iterator<Item = &str> {
        self.changes.keys().map(String::as_str)
    }

    /// The rank, and the scale of the changes.
    pub fn rank_and_scale(&self) -> (usize, f32) {
        (self.rank, self.scale)
    }

    /// Merges the adapter into the model's weights. `pairs` is the head size if the rows of queries and keys are in
    /// llama.cpp's order, with rotated elements adjacent.
    pub fn onto(
        self,
        base: Box<dyn WeightSource + Send + Sync>,
        pairs: Option<usize>,
    ) -> Result<AdaptedWeights, AdapterError> {
        let names = base.names();
        for (name, [a, b]) in &self.changes {
            if !base.contains(name) {
                let near =
                    nearest(name, names.iter().map(String::as_str)).map(|near| format!("; did you mean `{near}`?"));
                return Err(self.wrong(a, format!("the model has no `{name}`{}", near.unwrap_or_default())));
            }
            let [out, columns] = match base.tensor(name).map_err(|error| self.wrong(a, error))?.shape[..] {
                [out, columns] => [out, columns],
                ref other => {
                    return Err(self.wrong(
                        a,
                        format!(
                            "`{name}` is not a linear layer; its shape is \
                                                               {other:?}"
                        ),
                    ));
                }
            };
            for (name, expected) in [(a, [self.rank, columns]), (b, [out, self.rank])] {
                let found = self.weights.tensor(name).map_err(|error| self.wrong(name, error))?.shape;
                if found != expected {
                    return Err(self.wrong(name, format!("its shape is {found:?}, but the model needs {expected:?}")));
                }
            }
        }
        Ok(AdaptedWeights { base, adapter: self, pairs })
    }

    fn wrong(&self, name: &str, why: impl Into<BoxedError>) -> AdapterError {
        AdapterError::Tensor { name: name.to_owned(), path: self.folder.join(WEIGHTS), source: why.into() }
    }
}

/// A model's weights with an adapter merged.
pub struct AdaptedWeights {
    base: Box<dyn WeightSource + Send + Sync>,
    adapter: LoraAdapter,
    pairs: Option<usize>,
}

impl AdaptedWeights {
    /// W + s·B·A in f32.
    fn changed(&self, name: &str, [a, b]: &[String; 2]) -> Result<RawTensor, SourceError> {
        let LoraAdapter { weights, rank, scale, .. } = &self.adapter;
        let base = self.base.tensor(name)?;
        let (a, b) = (widened(&weights.tensor(a)?), widened(&weights.tensor(b)?));
        let columns = base.shape[1];
        // Converters permute only these two weights.
        let pairs = self.pairs.filter(|_| name.ends_with(".q_proj.weight") || name.ends_with(".k_proj.weight"));
        let row_bytes = base.bytes.len() / base.shape[0];
        let mut merged = vec![0u8; base.shape[0] * columns * 4];
        merged.par_chunks_exact_mut(columns * 4).enumerate().for_each(|(row, merged)| {
            let mut sums = vec![0f32; columns];
            let b = &b[pairs.map_or(row, |head| row_of_pairs(row, head)) * rank..][..*rank];
            for (b, a) in b.iter().zip(a.chunks_exact(columns)) {
                sums.iter_mut().zip(a).for_each(|(sum, a)| *sum += b * a);
            }
            let mut weights = vec![0f32; columns];
            dequantise(base.weight_type, &base.bytes[row * row_bytes..][..row_bytes], 0, &mut weights);
            for ((bytes, weight), sum) in merged.chunks_exact_mut(4).zip(weights).zip(sums) {
                // Sum, then scale, then weight: the order of PEFT's merge, which this matches to 8e-6.
                bytes.copy_from_slice(&(weight + sum * scale).to_le_bytes());
            }
        });
        // Replaced by the sum and not read again.
        base.bytes.release();
        let len = merged.len();
        let bytes = TensorBytes::slice(Arc::new(merged), 0..len).expect("all of it");
        Ok(RawTensor { shape: base.shape, weight_type: WeightType::F32, bytes })
    }
}

/// The row in half-split order for `row` in paired order.
fn row_of_pairs(row: usize, head: usize) -> usize {
    let (first, within) = (row / head * head, row % head);
    first + within % 2 * (head / 2) + within / 2
}

/// A tensor's elements as f32.
fn widened(tensor: &RawTensor) -> Vec<f32> {
    let mut values = vec![0f32; tensor.shape.iter().product()];
    dequantise(tensor.weight_type, &tensor.bytes, 0, &mut values);
    values
}

impl WeightSource for AdaptedWeights {
    fn tensor(&self, name: &str) -> Result<RawTensor, SourceError> {
        match self.adapter.changes.get(name) {
            Some(names) => self.changed(name, names),
            None => self.base.tensor(name),
        }
    }

    fn stored(&self, name: &str) -> Result<(WeightType, usize), SourceError> {
        if !self.adapter.changes.contains_key(name) {
            return self.base.stored(name);
        }
        Ok((WeightType::F32, self.base.tensor(name)?.shape.iter().product::<usize>() * 4))
    }

    fn contains(&self, name: &str) -> bool {
        self.base.contains(name)
    }

    fn names(&self) -> Vec<String> {
        self.base.names()
    }

    fn path(&self) -> PathBuf {
        self.base.path()
    }
}

/// The tensors of the model that an adapter changes, with its two matrices for each.
fn changes(weights: &SafetensorsFiles, path: &Path) -> Result<BTreeMap<String, [String; 2]>, AdapterError> {
    let wrong = |name: &str, why: &str| AdapterError::Tensor {
        name: name.to_owned(),
        path: path.to_owned(),
        source: why.into(),
    };
    let mut changes = BTreeMap::new();
    for name in weights.names() {
        let module = name
            .strip_prefix("base_model.model.")
            .ok_or_else(|| wrong(&name, "its name does not begin with `base_model.model.`"))?;
        if let Some(module) = module.strip_suffix(".lora_A.weight") {
            let b = format!("base_model.model.{module}.lora_B.weight");
            if !weights.contains(&b) {
                return Err(wrong(&name, &format!("`{b}` is missing")));
            }
            changes.insert(format!("{module}.weight"), [name, b]);
        } else if let Some(module) = module.strip_suffix(".lora_B.weight") {
            let a = format!("base_model.model.{module}.lora_A.weight");
            if !weights.contains(&a) {
                return Err(wrong(&name, &format!("`{a}` is missing")));
            }
        } else {
            return Err(wrong(&name, "only `lora_A.weight` and `lora_B.weight` of linear layers are supported"));
        }
    }
    Ok(changes)
}

/// Fields about training or authorship, which do not affect the merged weights.
const SILENT: [&str; 16] = [
    "auto_mapping", "base_model_name_or_path", "eva_config", "exclude_modules", "inference_mode", "layers_pattern",
    "layers_to_transform", "lora_dropout", "megatron_core", "peft_version", "qalora_group_size", "revision",
    "runtime_config", "target_modules", "task_type", "ensure_weight_tying",
];

/// The rank, and the scale of the product of an adapter's matrices.
fn read_config(path: &Path) -> Result<(usize, f32), AdapterError> {
    let text = side_file::read(path).map_err(|source| WeightsError::Io { path: path.to_owned(), source })?;
    let parsed: Result<Map<String, Value>, _> = parse_unique(&text);
    let fail = |why: String, hint| AdapterError::Config { path: path.to_owned(), why, hint };
    let broken = "use a folder written by PEFT's save_pretrained";
    let fields = parsed.map_err(|error| fail(error.to_string(), broken))?;
    for (name, value) in &fields {
        // A default value changes nothing, whatever the field.
        let empty = matches!(value, Value::Null | Value::Bool(false)) || [json!([]), json!({})].contains(value);
        let fits = match name.as_str() {
            "peft_type" => *value == "LORA",
            "bias" => *value == "none",
            // Other values modify the base weights before training, so A and B belong to weights that are not
            // available.
            "init_lora_weights" => {
                value.is_boolean() || ["gaussian", "eva", "orthogonal"].contains(&value.as_str().unwrap_or_default())
            }
            "r" | "lora_alpha" | "use_rslora" => true,
            name => empty || SILENT.contains(&name),
        };
        if !fits {
            let hint = "merge the adapter into its model with PEFT's merge_and_unload, save it, and use it as --model";
            return Err(fail(format!("`{name}`: {value} is not supported"), hint));
        }
    }
    let missing = |name: &str| fail(format!("`{name}` is missing or not a number above 0"), broken);
    if !fields.contains_key("peft_type") {
        return Err(fail("`peft_type` is missing".into(), broken));
    }
    let rank = fields.get("r").and_then(Value::as_u64).filter(|rank| *rank > 0).ok_or_else(|| missing("r"))?;
    let alpha = fields
        .get("lora_alpha")
        .and_then(Value::as_f64)
        .filter(|alpha| *alpha > 0.0)
        .ok_or_else(|| missing("lora_alpha"))?;
    let rank_stabilised = fields.get("use_rslora").is_some_and(|value| *value == true);
    let divisor = if rank_stabilised { (rank as f64).sqrt() } else { rank as f64 };
    Ok((rank as usize, (alpha / divisor) as f32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy of a golden adapter with this field added to its configuration.
    fn with(field: &str, value: Value) -> Result<LoraAdapter, AdapterError> {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/adapters/llama");
        let copy = tempfile::tempdir().expect("temporary folder");
        let text = std::fs::read_to_string(golden.join(CONFIG)).expect("golden");
        let mut config: Map<String, Value> = serde_json::from_str(&text).expect("JSON");
        config.insert(field.to_owned(), value);
        std::fs::write(copy.path().join(CONFIG), Value::Object(config).to_string()).expect("written");
        std::fs::copy(golden.join(WEIGHTS), copy.path().join(WEIGHTS)).expect("copied");
        LoraAdapter::open(copy.path())
    }

    #[test]
    fn a_field_that_stands_twice_is_refused() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join(CONFIG);
        std::fs::write(&path, r#"{"peft_type": "LORA", "r": 8, "lora_alpha": 8, "r": 4}"#).expect("written");
        let error = read_config(&path).expect_err("which of the two?").to_string();
        assert!(error.contains("duplicate key `r`") && error.contains(CONFIG), "{error}");
    }

    #[test]
    fn fields_are_honoured_known_not_to_matter_or_refused_by_name() {
        for (field, value) in [
            ("bias", json!("all")),
            ("use_dora", json!(true)),
            ("fan_in_fan_out", json!(true)),
            ("modules_to_save", json!(["lm_head"])),
            ("rank_pattern", json!({"q_proj": 8})),
            ("alpha_pattern", json!({"q_proj": 8})),
            ("init_lora_weights", json!("pissa")),
            ("peft_type", json!("IA3")),
            ("layer_replication", json!([[0, 2]])),
            ("something_new", json!(0.5)),
            ("r", json!(0)),
            ("lora_alpha", json!("8")),
        ] {
            let Err(error) = with(field, value.clone()) else { panic!("`{field}`: {value} is refused") };
            assert!(!crate::hint_of(&error).is_empty(), "{field}");
            assert!(error.to_string().contains(&format!("`{field}`")), "{field}\n{error}");
        }
        for (field, value) in [
            ("target_modules", json!("all-linear")),
            ("layers_to_transform", json!([0, 1])),
            ("lora_dropout", json!(0.1)),
            ("something_new", json!(null)),
            ("modules_to_save", json!([])),
        ] {
            assert!(with(field, value.clone()).is_ok(), "`{field}`: {value} changes nothing");
        }
    }

    #[test]
    fn the_scale_is_alpha_over_the_rank_or_its_root() {
        let scale = |adapter: LoraAdapter| adapter.rank_and_scale();
        assert_eq!(scale(with("lora_alpha", json!(6)).expect("valid")), (4, 1.5));
        assert_eq!(scale(with("use_rslora", json!(true)).expect("valid")), (4, 5.0));
    }

    #[test]
    fn rows_of_pairs_are_those_of_halves_in_another_order() {
        let rows: Vec<usize> = (0..12).map(|row| row_of_pairs(row, 6)).collect();
        assert_eq!(rows, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
    }

    /// The error for an adapter with these tensors, all of one element.
    fn refused(names: &[&str]) -> String {
        let value = 1f32.to_le_bytes();
        let view =
            || safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![1, 1], &value).expect("a tensor");
        let bytes = safetensors::serialize(names.iter().map(|name| (*name, view())), None).expect("a file");
        let path = Path::new(WEIGHTS);
        let weights = SafetensorsFiles::from_bytes(path, bytes).expect("a file");
        changes(&weights, path).expect_err("refused").to_string()
    }

    #[test]
    fn tensors_that_are_no_pair_of_matrices_are_refused() {
        assert!(
            refused(&["base_model.model.q.lora_A.weight"]).contains("`base_model.model.q.lora_B.weight` is missing")
        );
        assert!(
            refused(&["base_model.model.q.lora_B.weight"]).contains("`base_model.model.q.lora_A.weight` is missing")
        );
        assert!(refused(&["base_model.model.q.lora_embedding_A"]).contains("`base_model.model.q.lora_embedding_A`"));
        assert!(refused(&["base_model.model.lm_head.weight"]).contains("only `lora_A.weight`"));
        assert!(refused(&["q.lora_A.weight"]).contains("does not begin with `base_model.model.`"));
    }
}
