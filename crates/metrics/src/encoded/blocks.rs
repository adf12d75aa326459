//! Groups items such that each text is encoded once and few are in memory.

use rustc_hash::FxHashSet;

/// Items that are compared together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ItemBlock {
    /// Indices of the items.
    pub(super) items: Vec<usize>,
    /// Texts to encode first; all other texts of the items are in memory.
    pub(super) read: Vec<usize>,
    /// Texts to drop afterwards.
    pub(super) forget: Vec<usize>,
}

/// Splits items into blocks. `uses` are the texts of each item, with the text most likely to be shared (a reference)
/// last; `sizes` are the bytes of each text. At most `budget` bytes are in memory, unless a single item needs more. A
/// text is encoded twice only in that case, and if items share texts in so many ways that the budget would be exceeded.
pub(super) fn plan(uses: &[Vec<usize>], sizes: &[usize], budget: usize) -> Vec<ItemBlock> {
    let order = by_shared_text(uses, sizes.len());
    // Known in advance, so that a text is dropped after its last use.
    let mut last_use = vec![0; sizes.len()];
    for (at, &item) in order.iter().enumerate() {
        for &text in &uses[item] {
            last_use[text] = at;
        }
    }
    let (mut blocks, mut block) = (Vec::new(), ItemBlock::default());
    let mut held = vec![false; sizes.len()];
    let mut bytes = 0;
    for (at, &item) in order.iter().enumerate() {
        let own: FxHashSet<usize> = uses[item].iter().copied().collect();
        let needed: usize = own.iter().filter(|&&text| !held[text]).map(|&text| sizes[text]).sum();
        if !block.items.is_empty() && bytes + needed > budget {
            let spent = |text: &usize| held[*text] && last_use[*text] < at;
            let mut forget: Vec<usize> = (0..sizes.len()).filter(spent).collect();
            let freed: usize = forget.iter().map(|&text| sizes[text]).sum();
            // Drops texts that are needed again later: keeping the budget is worth encoding them twice.
            if bytes - freed + needed > budget {
                forget = (0..sizes.len()).filter(|text| held[*text] && !own.contains(text)).collect();
            }
            for &text in &forget {
                held[text] = false;
                bytes -= sizes[text];
            }
            block.forget = forget;
            blocks.push(std::mem::take(&mut block));
        }
        for &text in &uses[item] {
            if !std::mem::replace(&mut held[text], true) {
                bytes += sizes[text];
                block.read.push(text);
            }
        }
        block.items.push(item);
    }
    blocks.push(block);
    blocks
}

/// Items ordered by the first item that uses their last text, so that items with one reference are adjacent.
fn by_shared_text(uses: &[Vec<usize>], texts: usize) -> Vec<usize> {
    let mut first_use = vec![usize::MAX; texts];
    for (item, uses) in uses.iter().enumerate() {
        if let Some(&text) = uses.last() {
            first_use[text] = first_use[text].min(item);
        }
    }
    let mut order: Vec<usize> = (0..uses.len()).collect();
    order.sort_by_key(|&item| uses[item].last().map(|&text| first_use[text]));
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn items_of_one_reference_run_together_and_their_texts_are_let_go() {
        // Candidates 0..4, references 4 and 5; the output of one system follows that of another.
        let uses = [vec![0, 4], vec![1, 5], vec![2, 4], vec![3, 5]];
        let blocks = plan(&uses, &[1; 6], 3);
        let expected = [
            ItemBlock { items: vec![0, 2], read: vec![0, 4, 2], forget: vec![0, 2, 4] },
            ItemBlock { items: vec![1, 3], read: vec![1, 5, 3], forget: vec![] },
        ];
        assert_eq!(blocks, expected);
        assert_eq!(plan(&uses, &[1; 6], 100).len(), 1);
    }

    proptest! {
        #[test]
        fn every_item_finds_its_texts_within_the_budget(
            uses in prop::collection::vec(prop::collection::vec(0usize..12, 1..4), 1..30),
            sizes in prop::collection::vec(1usize..5, 12),
            budget in 1usize..40,
        ) {
            let blocks = plan(&uses, &sizes, budget);
            let mut held = [false; 12];
            let mut seen = vec![0; uses.len()];
            for block in &blocks {
                for &text in &block.read {
                    prop_assert!(!std::mem::replace(&mut held[text], true), "read twice while it is held");
                }
                let own: usize = uses[*block.items.last().expect("a block has \
                    items")].iter().collect::<FxHashSet<_>>().iter().map(|&&t| sizes[t]).sum();
                let bytes: usize = (0..12).filter(|&text| held[text]).map(|text| sizes[text]).sum();
                prop_assert!(bytes <= budget.max(own), "{bytes} bytes are held");
                for &item in &block.items {
                    seen[item] += 1;
                    prop_assert!(uses[item].iter().all(|&text| held[text]));
                }
                for &text in &block.forget {
                    prop_assert!(std::mem::replace(&mut held[text], false));
                }
            }
            prop_assert!(seen.iter().all(|&count| count == 1));
            if budget >= 12 * 4 {
                prop_assert_eq!(blocks.len(), 1);
            }
        }
    }
}
