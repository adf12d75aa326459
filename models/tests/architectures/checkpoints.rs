//! Checkpoints and goldens of the tests, in safetensors files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use probity_models::{ModelConfig, RawTensor, SourceError, TensorBytes, WeightSource, WeightType, read_config};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

pub(crate) use crate::device::goldens;

/// A `model.safetensors` in memory, optionally with renamed tensors.
pub(crate) struct Checkpoint {
    bytes: Arc<Vec<u8>>,
    pub(crate) config: Value,
    path: PathBuf,
    rename: fn(&str) -> String,
}

impl Checkpoint {
    pub(crate) fn open(folder: &Path) -> Self {
        let read = |name: &str| std::fs::read(folder.join(name)).expect("a checkpoint");
        let config = serde_json::from_slice(&read("config.json")).expect("JSON");
        Self { bytes: Arc::new(read("model.safetensors")), config, path: folder.to_owned(), rename: str::to_owned }
    }

    pub(crate) fn golden(name: &str) -> Self {
        Self::open(&goldens().join("models").join(name))
    }

    /// The same tensors, renamed by `rename`.
    pub(crate) fn renamed(self, rename: fn(&str) -> String) -> Self {
        Self { rename, ..self }
    }

    pub(crate) fn read_config(&self) -> ModelConfig {
        read_config(&self.config).expect("supported")
    }
}

impl WeightSource for Checkpoint {
    fn tensor(&self, name: &str) -> Result<RawTensor, SourceError> {
        let tensors = SafeTensors::deserialize(&self.bytes).expect("valid safetensors");
        let missing = || SourceError::Missing {
            name: name.to_owned(),
            path: self.path.clone(),
            held: tensors.len(),
            nearest: None,
        };
        let stored = tensors.names().into_iter().find(|stored| (self.rename)(stored) == name).ok_or_else(missing)?;
        let view = tensors.tensor(stored).expect("it was listed");
        let weight_type = match view.dtype() {
            Dtype::F32 => WeightType::F32,
            Dtype::F16 => WeightType::F16,
            Dtype::BF16 => WeightType::BF16,
            other => panic!("{name} is {other:?}"),
        };
        let start = view.data().as_ptr().addr() - self.bytes.as_ptr().addr();
        let bytes = TensorBytes::slice(self.bytes.clone(), start..start + view.data().len()).expect("inside the file");
        Ok(RawTensor { shape: view.shape().to_vec(), weight_type, bytes })
    }

    fn contains(&self, name: &str) -> bool {
        self.names().iter().any(|known| known == name)
    }

    fn names(&self) -> Vec<String> {
        let tensors = SafeTensors::deserialize(&self.bytes).expect("valid safetensors");
        let mut names: Vec<String> = tensors.names().into_iter().map(self.rename).collect();
        names.sort();
        names
    }

    fn path(&self) -> PathBuf {
        self.path.clone()
    }
}

/// Tensors of a golden file.
pub(crate) struct Golden(Vec<u8>);

impl Golden {
    pub(crate) fn open(name: &str) -> Self {
        Self(
            std::fs::read(goldens().join("models").join(name).join("golden.safetensors"))
                .expect("goldens are part of the repository"),
        )
    }

    fn bytes(&self, name: &str) -> &[u8] {
        SafeTensors::deserialize(&self.0).expect("valid goldens").tensor(name).expect("a golden of that name").data()
    }

    pub(crate) fn ids(&self, name: &str) -> Vec<u32> {
        self.bytes(name).as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b) as u32).collect()
    }

    pub(crate) fn floats(&self, name: &str) -> Vec<f32> {
        self.bytes(name).as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }
}

pub(crate) fn largest_difference(got: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(got.len(), expected.len(), "as many numbers");
    got.iter()
        .zip(expected)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, |most, gap| if gap.is_nan() { f32::INFINITY } else { gap.max(most) })
}
