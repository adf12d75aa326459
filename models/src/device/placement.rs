//! Placement of a model's layers on one or several devices.

use std::fmt;

use super::list::StageNames;
use super::{DeviceChoice, DeviceError};
use crate::bridge::BridgedConfig;
use crate::{Arithmetic, ModelConfig};

/// The devices that share a model, and the first layer of each. Layers are counted from the encoder to the decoder;
/// everything after the last layer is on the last device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    devices: Vec<DeviceChoice>,
    first_layers: Vec<usize>,
}

impl From<DeviceChoice> for Placement {
    fn from(device: DeviceChoice) -> Self {
        Self { devices: vec![device], first_layers: vec![0] }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        StageNames(&self.devices).fmt(f)
    }
}

impl Placement {
    /// Places the layers on `devices`, each beginning with its entry in `first_layers`.
    pub fn new(devices: &[DeviceChoice], first_layers: &[usize]) -> Self {
        debug_assert_eq!(devices.len(), first_layers.len(), "a first layer for each device");
        Self { devices: devices.to_vec(), first_layers: first_layers.to_vec() }
    }

    /// The devices, in the order of the layers.
    pub fn devices(&self) -> &[DeviceChoice] {
        &self.devices
    }

    pub(super) fn is_cpu(&self) -> bool {
        self.devices == [DeviceChoice::Cpu]
    }

    /// Each device and its first layer.
    pub(super) fn stages(&self) -> impl Iterator<Item = (DeviceChoice, usize)> {
        self.devices.iter().copied().zip(self.first_layers.iter().copied())
    }
}

/// Checks that a model with this configuration can run on these devices, as one copy with this arithmetic.
pub fn check_model(devices: &[DeviceChoice], config: &ModelConfig, arithmetic: Arithmetic) -> Result<(), DeviceError> {
    if let ModelConfig::Bridged(config) = config {
        return check_bridged(devices, config, arithmetic);
    }
    let recurrence = config.stacks().iter().find_map(|stack| stack.recurrence);
    let device = devices.iter().find(|device| **device != DeviceChoice::Cpu);
    if let Some((recurrence, device)) = recurrence.zip(device) {
        return Err(DeviceError::Recurrent { layers: recurrence.name(), device: *device });
    }
    let layers = config.device_layers();
    if layers < devices.len() { Err(DeviceError::FewLayers { layers, devices: devices.len() }) } else { Ok(()) }
}

/// The same check for candle-transformers models.
pub(super) fn check_bridged(
    devices: &[DeviceChoice],
    config: &BridgedConfig,
    arithmetic: Arithmetic,
) -> Result<(), DeviceError> {
    let architecture = config.architecture.name;
    match devices {
        [DeviceChoice::Cpu] => return Err(DeviceError::BridgedOnCpu { architecture }),
        [_] => {}
        [first, ..] => return Err(DeviceError::BridgedDivided { architecture, device: *first }),
        [] => unreachable!("a model is on a device"),
    }
    if !cfg!(feature = "candle-transformers") {
        return Err(DeviceError::NoBridge { architecture });
    }
    if arithmetic != Arithmetic::Exact {
        return Err(DeviceError::BridgedPrecision { architecture });
    }
    Ok(())
}

/// The first layer of each device, such that the highest utilisation is minimal. `layers` are the bytes of each layer,
/// `behind` those after the last one. Each device gets at least one layer while there are enough.
pub(super) fn first_layers(layers: &[u64], behind: u64, rooms: &[u64]) -> Vec<usize> {
    let (count, last) = (layers.len(), rooms.len().saturating_sub(1));
    if count <= last {
        return (0..rooms.len()).map(|device| device.min(count)).collect();
    }
    let sums = layers.iter().scan(0, |sum, bytes| {
        *sum += bytes;
        Some(*sum)
    });
    let sums: Vec<u64> = std::iter::once(0).chain(sums).collect();
    let share = |device: usize, from: usize, to: usize| {
        let bytes = sums[to] - sums[from] + if device == last { behind } else { 0 };
        bytes as f64 / rooms[device].max(1) as f64
    };
    // For the devices so far and each number of layers on them: the highest utilisation, and each device's first layer.
    let mut best: Vec<(f64, Vec<usize>)> = (0..=count).map(|to| (share(0, 0, to), vec![0])).collect();
    for device in 1..rooms.len() {
        let with_device = |to: usize| {
            let ways = (device..to).map(|from| (best[from].0.max(share(device, from, to)), from));
            let (largest, from) = ways.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, device));
            let begins = best[from].1.iter().copied().chain([from]).collect();
            (largest, begins)
        };
        best = (0..=count)
            .map(|to| if to > device { with_device(to) } else { (f64::INFINITY, vec![0; device + 1]) })
            .collect();
    }
    best.swap_remove(count).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_divided_by_their_bytes_and_the_room_of_each_device() {
        let cut = |layers: &[u64], behind, rooms: &[u64]| first_layers(layers, behind, rooms);
        assert_eq!(cut(&[5; 4], 0, &[9]), [0]);
        assert_eq!(cut(&[5; 4], 0, &[9, 9]), [0, 2]);
        // The head counts with the last layers.
        assert_eq!(cut(&[5; 4], 10, &[9, 9]), [0, 3]);
        // By bytes, not by count: the first layer is as large as the other three together.
        assert_eq!(cut(&[15, 5, 5, 5], 0, &[9, 9]), [0, 1]);
        // A device with three times the memory gets three times as much.
        assert_eq!(cut(&[5; 8], 0, &[10, 30]), [0, 2]);
        assert_eq!(cut(&[5; 8], 0, &[30, 10]), [0, 6]);
        assert_eq!(cut(&[5; 9], 0, &[1, 1, 1]), [0, 3, 6]);
        assert_eq!(cut(&[2, 2, 6, 2, 2, 6], 0, &[8, 8, 8]), [0, 2, 4]);
    }

    #[test]
    fn each_device_has_a_layer_as_far_as_they_go() {
        // A head larger than all layers leaves one layer for the last device.
        assert_eq!(first_layers(&[1; 4], 100, &[9, 9, 9]), [0, 1, 3]);
        assert_eq!(first_layers(&[1; 3], 0, &[9, 9, 9]), [0, 1, 2]);
        assert_eq!(first_layers(&[1, 1], 0, &[0, 0, 0]), [0, 1, 2]);
        assert_eq!(first_layers(&[], 7, &[9]), [0]);
    }
}
