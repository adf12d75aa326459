//! Which items are compared together, so that each text is read once and few are held.

use rustc_hash::FxHashSet;

/// Items that are compared together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ItemBlock {
    /// Positions of the items.
    pub(super) items: Vec<usize>,
    /// Texts that must be read first; all others that the items use are held.
    pub(super) read: Vec<usize>,
    /// Texts that need not be held afterwards.
    pub(super) forget: Vec<usize>,
}

/// Cuts items into blocks. `uses` are the texts of each item, the last of them those that others are likely to use too
/// (a reference), `sizes` the bytes of each text. No more than `budget` bytes are held, but for an item that needs more
/// by itself; only then, and where items share texts in so tangled a way that more would have to be held, is a text
/// read twice.
pub(super) fn plan(uses: &[Vec<usize>], sizes: &[usize], budget: usize) -> Vec<ItemBlock> {
    let order = by_shared_text(uses, sizes.len());
    // Known beforehand, so that a text is let go as soon as nothing after it wants it.
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
            // What is still wanted goes too, and is read again later: a budget that holds is worth more than a pass.
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

/// Items in the order of the first item that uses their last text: those with one reference stand together.
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
        // Candidates 0..4, references 4 and 5; the systems' outputs stand one system after another.
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
