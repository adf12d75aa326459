//! Activation functions of feed-forward layers.

use rayon::prelude::*;

use crate::Isa;
use crate::isa::dispatch;
use crate::simd::{LANES, Simd};

/// Elements per task.
const TASK: usize = 1 << 14;

/// The activation function of a feed-forward layer, computed to 1e-7, or to two roundings of a result above 0.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x / (1 + e⁻ˣ)`.
    Silu,
    /// `x · Φ(x)` with the normal distribution function Φ (Hendrycks & Gimpel 2016).
    GeluErf,
    /// The approximation `x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))` of GELU.
    GeluTanh,
    /// `max(x, 0)`.
    Relu,
    /// `g · σ(1.702 g)` with `g = min(x, 7)`, which gates `u + 1` with the second product `u` limited to ±7 (Agarwal et
    /// al. 2025).
    ClampedSigmoid,
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid,
}

impl Activation {
    /// All activation functions.
    pub const ALL: [Self; 6] =
        [Self::Silu, Self::GeluErf, Self::GeluTanh, Self::Relu, Self::Sigmoid, Self::ClampedSigmoid];
    /// The factor in the logistic function of [`ClampedSigmoid`](Self::ClampedSigmoid).
    pub const CLAMPED_FACTOR: f32 = 1.702;
    /// The limit of both products of [`ClampedSigmoid`](Self::ClampedSigmoid).
    pub const CLAMPED_LIMIT: f32 = 7.0;
}

/// `y = activation(gate) · up`, or `activation(gate)` without `up`. [`Activation::ClampedSigmoid`] limits `up` and adds
/// one to it.
pub fn activate(isa: Isa, activation: Activation, gate: &[f32], up: Option<&[f32]>, y: &mut [f32]) {
    assert!(gate.len() == y.len() && up.is_none_or(|up| up.len() == y.len()), "gate, up and y are of one shape");
    gate.par_chunks(TASK).zip(y.par_chunks_mut(TASK)).enumerate().for_each(|(task, (gate, y))| {
        let up = up.map(|up| &up[task * TASK..][..y.len()]);
        dispatch!(isa, activate_part(activation: Activation, gate: &[f32], up: Option<&[f32]>, y: &mut [f32]));
    });
}

#[inline(always)]
fn activate_part<S: Simd>(activation: Activation, gate: &[f32], up: Option<&[f32]>, y: &mut [f32]) {
    for (index, y) in y.chunks_mut(LANES).enumerate() {
        let (mut gates, mut ups, mut results) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        gates[..y.len()].copy_from_slice(&gate[index * LANES..][..y.len()]);
        if let Some(up) = up {
            ups[..y.len()].copy_from_slice(&up[index * LANES..][..y.len()]);
        }
        activate_lanes::<S>(activation, &gates, up.map(|_| &ups), &mut results);
        y.copy_from_slice(&results[..y.len()]);
    }
}

// A closure would not be compiled for the caller's instruction set.
#[inline(always)]
pub(crate) fn activate_lanes<S: Simd>(
    activation: Activation,
    gate: &[f32; LANES],
    up: Option<&[f32; LANES]>,
    y: &mut [f32; LANES],
) {
    let x = S::load(gate);
    let activated = match activation {
        Activation::Silu => S::mul(x, sigmoid::<S>(x)),
        Activation::GeluErf => gelu::<S>(x),
        Activation::GeluTanh => {
            // (1 + tanh u) / 2 is the logistic function of 2u.
            let cubed = S::mul(S::mul(x, x), x);
            let u = S::mul(S::splat(2.0 * 0.797_884_6), S::fma(S::splat(0.044_715), cubed, x));
            S::mul(x, sigmoid::<S>(u))
        }
        // In this order, so that NaN stays NaN.
        Activation::Relu => S::max(S::splat(0.0), x),
        Activation::ClampedSigmoid => {
            let x = S::min(S::splat(Activation::CLAMPED_LIMIT), x);
            S::mul(x, sigmoid::<S>(S::mul(S::splat(Activation::CLAMPED_FACTOR), x)))
        }
        Activation::Sigmoid => sigmoid::<S>(x),
    };
    let activated = match up {
        Some(up) if activation == Activation::ClampedSigmoid => {
            let limit = Activation::CLAMPED_LIMIT;
            let up = S::min(S::splat(limit), S::max(S::splat(-limit), S::load(up)));
            S::mul(activated, S::add(up, S::splat(1.0)))
        }
        Some(up) => S::mul(activated, S::load(up)),
        None => activated,
    };
    S::store(activated, y);
}

/// `1 / (1 + e⁻ˣ)`.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(x: S::F) -> S::F {
    S::div(S::splat(1.0), S::add(S::splat(1.0), S::exp(S::sub(S::splat(0.0), x))))
}

/// `max(x, 0) − |x| Φ(−|x|)`, which equals `x Φ(x)` and is accurate for large negative x.
#[inline(always)]
fn gelu<S: Simd>(x: S::F) -> S::F {
    /// Polynomial of `Φ(−a) e^(a²/2) / t` in `t = 1 / (1 + 0.35 a)` for a in 0..13, highest power first, fitted to a
    /// relative error of 4e-8.
    const TAIL: [f32; 9] = [
        -0.029_095_102, 0.143_719_58, -0.255_182_33, 0.158_552_42, -0.022_670_865, 0.105_316_94, 0.119_882_755,
        0.139_854_74, 0.139_621_82,
    ];
    // Beyond 13 the tail is zero. NaN passes through both.
    let a = S::min(S::splat(13.0), S::max(x, S::sub(S::splat(0.0), x)));
    let t = S::div(S::splat(1.0), S::fma(S::splat(0.35), a, S::splat(1.0)));
    let mut p = S::splat(TAIL[0]);
    for c in &TAIL[1..] {
        p = S::fma(p, t, S::splat(*c));
    }
    let tail = S::mul(S::exp(S::mul(S::mul(S::splat(-0.5), a), a)), S::mul(t, p));
    S::sub(S::max(S::splat(0.0), x), S::mul(a, tail))
}
