//! Products on a machine's [tile unit](TileUnit).

use super::{ExpandedPanels, PanelWork};
use crate::isa::TileRegisters;
use crate::pack::PackedPart;
use crate::tiles::{PanelSums, TILE_ROWS, TileUnit};
use crate::{ProductForm, WeightType};

/// The lanes for computations outside the unit.
type Lanes = <TileRegisters as TileUnit>::Lanes;

/// Adds the products of a part to the rows' sums, with the unit configured for it. The rows are packed for a unit, so
/// there is one.
pub(super) fn add(
    tiles: &mut Option<TileRegisters>,
    work: &PanelWork<'_>,
    panels: &mut ExpandedPanels,
    sums: &mut [PanelSums],
) {
    let (form, weight_type) = (work.part.weights.form(), work.part.weights.weight_type());
    let quads = if form == ProductForm::Int8 { weight_type.group_len() / 4 } else { 16 };
    // Registers are released before they are configured again.
    if tiles.take_if(|tiles| tiles.quads() != quads).is_some() || tiles.is_none() {
        *tiles = Some(TileRegisters::configure(quads));
    }
    let tiles = tiles.as_ref().expect("configured just above");
    if form != ProductForm::Int8 {
        return half_rows(tiles, work, panels, sums);
    }
    let part = work.part;
    let rows =
        work.tiles::<Lanes>().map(|((first, _), _)| work.inputs.int_tile((first, TILE_ROWS), part.start, part.len, 32));
    tiles.int_rows(part, &mut panels.ints, rows, sums);
}

fn half_rows(tiles: &TileRegisters, work: &PanelWork<'_>, panels: &mut ExpandedPanels, sums: &mut [PanelSums]) {
    let part = work.part;
    let is_expanded = |part: &PackedPart<'_>| {
        part.weights.form() == ProductForm::Tiles && part.weights.weight_type() != WeightType::BF16
    };
    let ExpandedPanels { pairs, next_pairs, ready, .. } = panels;
    if is_expanded(&part) && !*ready {
        pairs.set_len(part.len / 2);
        tiles.unpack_pairs(part, pairs);
    }
    let panel = if is_expanded(&part) { &**pairs } else { part.lines() };
    let next = work.next.filter(is_expanded);
    next_pairs.set_len(next.map_or(0, |next| next.len / 2));
    let rows = work.tiles::<Lanes>().map(|((first, _), _)| {
        work.ask_for_halves::<Lanes>((first, TILE_ROWS));
        work.inputs.half_tile(ProductForm::Tiles, (first, TILE_ROWS), part.start, part.len.next_multiple_of(32))
    });
    tiles.half_rows(panel, rows, sums, part.start == 0, next.map(|next| (next, &mut **next_pairs)));
    *ready = next.is_some();
    if *ready {
        std::mem::swap(pairs, next_pairs);
    }
}
