//! Rotary position embeddings: frequencies from the configuration.

use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use crate::config::{ConfigError, ConfigFields, invalid, number_in};

/// Valid bases. Models use 1e4 to 1e8. Below 1 the order of frequencies would be reversed, and at 1e-300 all of them
/// would be equal.
pub(crate) const BASES: RangeInclusive<f64> = 1.0..=1e12;
/// The default base. The reference (transformers 4 and 5) uses it for llama, mistral, qwen2 and qwen3, though published
/// qwen models set another.
const DEFAULT_BASE: f64 = 10_000.0;
/// Valid scaling factors and original context lengths.
pub(crate) const FACTORS: RangeInclusive<f64> = 1e-3..=1e9;

/// Scaling of the frequencies `theta^(−2i / head_dim)`.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// No scaling.
    None,
    /// All positions are divided by a factor.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3: long wavelengths are divided by the factor, short ones kept, with a ramp in between.
    Llama3 {
        /// The divisor of long wavelengths.
        factor: f64,
        /// Wavelengths above `original / low` are long.
        low_freq_factor: f64,
        /// Wavelengths below `original / high` are short.
        high_freq_factor: f64,
        /// Context length of the original training.
        original_max_position: f64,
    },
    /// `YaRN` (Peng et al. 2023): frequencies with fewer than `slow` turns in the original context length are divided
    /// by the factor, those with more than `fast` turns are kept, with a ramp in between.
    Yarn {
        /// The divisor of low frequencies.
        factor: f64,
        /// Context length of the original training.
        original_max_position: f64,
        /// Number of turns above which frequencies are kept.
        fast: f64,
        /// Number of turns below which they are divided.
        slow: f64,
        /// Whether the ends of the ramp are rounded to whole pairs.
        whole: bool,
    },
    /// Each frequency is divided by its own factor.
    Each(Vec<f64>),
    /// Frequencies of the first pairs are divided by the factor; the other pairs are not rotated.
    Proportional {
        /// The divisor.
        factor: f64,
        /// The share of rotated pairs.
        share: f64,
    },
}

/// Base and scaling of a model's rotary embeddings.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// The base of the frequencies.
    pub theta: f64,
    /// The scaling of the frequencies.
    pub scaling: RopeScaling,
    /// Factor of cosines and sines.
    pub scale: f32,
    /// Number of rotated elements per head, if it differs from the model's.
    pub rotary_dim: Option<usize>,
}

impl Rope {
    /// Reads `rope_theta` and `rope_scaling`, or `rope_parameters` of newer configurations.
    pub(crate) fn from_fields(fields: &mut ConfigFields, max_position: usize) -> Result<Self, ConfigError> {
        let theta = fields.number("rope_theta", &BASES)?;
        let (name, value) = match (fields.take("rope_parameters"), fields.take("rope_scaling")) {
            // Which field takes precedence depends on the version of transformers.
            (Some(_), Some(scaling)) => return Err(fields.not_honoured("rope_scaling", &scaling)),
            (Some(parameters), None) => ("rope_parameters", parameters),
            (None, Some(scaling)) => ("rope_scaling", scaling),
            (None, None) => return Ok(Self::plain(theta.unwrap_or(DEFAULT_BASE))),
        };
        let Some(map) = value.as_object() else { return Err(invalid(name, &value, "an object")) };
        let number = |key: &str, range: &RangeInclusive<f64>| {
            let field = format!("{name}.{key}");
            map.get(key).map(|v| number_in(&field, v, range)).transpose()
        };
        let required = |key: &str| {
            number(key, &FACTORS)?.ok_or_else(|| invalid(&format!("{name}.{key}"), &Value::Null, "a number"))
        };
        let (outside, inside) = (theta, number("rope_theta", &BASES)?);
        // The precedence depends on the version here, too.
        if let (Some(outside), Some(inside)) = (outside, inside)
            && outside != inside
        {
            return Err(invalid(
                &format!("{name}.rope_theta"),
                &json!(inside),
                &format!("{outside}, the value of the outer `rope_theta`"),
            ));
        }
        let theta = inside.or(outside).unwrap_or(DEFAULT_BASE);
        let [kind, old] = ["rope_type", "type"].map(|key| map.get(key).and_then(Value::as_str));
        // Versions also differ in which of the two names they read.
        if let (Some(kind), Some(other)) = (kind, old)
            && kind != other
        {
            let expected = format!("{kind}, the value of `rope_type`");
            return Err(invalid(&format!("{name}.type"), &json!(other), &expected));
        }
        let kind = kind.or(old).unwrap_or("default");
        let (scaling, known): (_, &[&str]) = match kind {
            "default" => (RopeScaling::None, &[]),
            "linear" => (RopeScaling::Linear { factor: required("factor")? }, &["factor"]),
            "llama3" => {
                let (low_freq_factor, high_freq_factor) = (required("low_freq_factor")?, required("high_freq_factor")?);
                // The ramp is divided by the difference of these factors.
                if high_freq_factor <= low_freq_factor {
                    let value = Value::from(high_freq_factor);
                    return Err(invalid(
                        &format!("{name}.high_freq_factor"),
                        &value,
                        &format!("more than low_freq_factor, {low_freq_factor}"),
                    ));
                }
                let scaling = RopeScaling::Llama3 {
                    factor: required("factor")?,
                    low_freq_factor,
                    high_freq_factor,
                    original_max_position: required("original_max_position_embeddings")?,
                };
                (scaling, &["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"])
            }
            "yarn" => {
                let or = |key: &str, usual: f64| Ok::<_, ConfigError>(number(key, &FACTORS)?.unwrap_or(usual));
                let scaling = RopeScaling::Yarn {
                    factor: required("factor")?,
                    original_max_position: or("original_max_position_embeddings", max_position as f64)?,
                    fast: or("beta_fast", 32.0)?,
                    slow: or("beta_slow", 1.0)?,
                    whole: map.get("truncate").is_none_or(|value| *value != Value::Bool(false)),
                };
                (scaling, &YARN)
            }
            "proportional" => {
                let factor = number("factor", &FACTORS)?.unwrap_or(1.0);
                let share = number("partial_rotary_factor", &(0.0..=1.0))?.unwrap_or(1.0);
                (RopeScaling::Proportional { factor, share }, &["factor", "partial_rotary_factor"])
            }
            _ => return Err(fields.not_honoured(name, &value)),
        };
        refuse_unknown(fields, name, map, known)?;
        let scale = match scaling {
            RopeScaling::Yarn { factor, .. } => {
                let given = number("attention_factor", &FACTORS)?;
                let both = number("mscale", &FACTORS)?.zip(number("mscale_all_dim", &FACTORS)?);
                given.unwrap_or_else(|| {
                    both.map_or(yarn_scale(factor, 1.0), |(scale, all)| {
                        yarn_scale(factor, scale) / yarn_scale(factor, all)
                    })
                })
            }
            _ => 1.0,
        };
        Ok(Self { theta, scaling, scale: scale as f32, rotary_dim: None })
    }

    /// Without scaling.
    pub(crate) fn plain(theta: f64) -> Self {
        Self { theta, scaling: RopeScaling::None, scale: 1.0, rotary_dim: None }
    }

    /// The `rotary_dim / 2` frequencies, computed in f32 from an f32 base, as in the reference.
    pub fn frequencies(&self, rotary_dim: usize) -> Vec<f32> {
        let rotary_dim = self.rotary_dim.unwrap_or(rotary_dim);
        (0..rotary_dim / 2)
            .map(|i| self.scaled(i, rotary_dim, libm::powf(self.theta as f32, (2 * i) as f32 / rotary_dim as f32)))
            .collect()
    }

    /// Scales the inverse of an unscaled frequency.
    fn scaled(&self, index: usize, rotary_dim: usize, inverse: f32) -> f32 {
        let frequency = 1.0 / inverse;
        match self.scaling {
            RopeScaling::None => frequency,
            RopeScaling::Linear { factor } => frequency / factor as f32,
            RopeScaling::Proportional { factor, share } => {
                let pairs = (share * rotary_dim as f64 / 2.0) as usize;
                if index < pairs { frequency / factor as f32 } else { 0.0 }
            }
            RopeScaling::Each(ref factors) => 1.0 / (factors[index] as f32 * inverse),
            RopeScaling::Yarn { factor, original_max_position, fast, slow, whole } => {
                // The pair with that many turns in the original context length.
                let pair = |turns: f64| {
                    let pair =
                        rotary_dim as f64 * libm::log(original_max_position / (turns * 2.0 * std::f64::consts::PI));
                    pair / (2.0 * libm::log(self.theta))
                };
                let (low, high) = (pair(fast), pair(slow));
                let (low, high) = if whole { (low.floor(), high.ceil()) } else { (low, high) };
                let (low, high) = (low.max(0.0), high.min(rotary_dim as f64 - 1.0));
                let width = if low == high { 0.001 } else { high - low };
                let kept = 1.0 - ((index as f32 - low as f32) / width as f32).clamp(0.0, 1.0);
                1.0 / (factor as f32 * inverse) * (1.0 - kept) + frequency * kept
            }
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position } => {
                let (factor, low, high) = (factor as f32, low_freq_factor as f32, high_freq_factor as f32);
                let wavelength = 2.0 * std::f32::consts::PI / frequency;
                let original = original_max_position as f32;
                if wavelength > original / low {
                    frequency / factor
                } else if wavelength < original / high {
                    frequency
                } else {
                    let smooth = (original / wavelength - low) / (high - low);
                    (1.0 - smooth) * (frequency / factor) + smooth * frequency
                }
            }
        }
    }
}

/// The fields of `YaRN`.
const YARN: [&str; 8] = [
    "factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
    "mscale_all_dim", "truncate",
];

/// `YaRN`'s factor of cosines and sines.
pub(crate) fn yarn_scale(factor: f64, scale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * scale * libm::log(factor) + 1.0 }
}

fn refuse_unknown(
    fields: &ConfigFields,
    name: &str,
    map: &Map<String, Value>,
    known: &[&str],
) -> Result<(), ConfigError> {
    let always = ["rope_type", "type", "rope_theta"];
    match map
        .iter()
        .find(|(key, value)| !value.is_null() && !always.contains(&key.as_str()) && !known.contains(&key.as_str()))
    {
        Some((key, value)) => Err(fields.not_honoured(&format!("{name}.{key}"), value)),
        None => Ok(()),
    }
}
