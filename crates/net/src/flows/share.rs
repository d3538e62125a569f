//! Which sandboxes have more than their share of a table that runs full.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// How many connections each sandbox began.
pub(crate) type Counts = BTreeMap<Ipv4Addr, usize>;

/// The highest number that all may have so that together they stay within `budget`: who has fewer
/// loses nothing, and leaves the rest to the others. `None`: they are within it.
pub(crate) fn highest_share(counts: &Counts, budget: usize) -> Option<usize> {
    if counts.values().sum::<usize>() <= budget {
        return None;
    }
    let mut ascending: Vec<usize> = counts.values().copied().collect();
    ascending.sort_unstable();
    let mut left = budget;
    let mut holders = ascending.len();
    for count in ascending {
        if count * holders > left {
            return Some(left / holders);
        }
        left -= count;
        holders -= 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[usize]) -> Counts {
        let each = of.iter().enumerate();
        each.map(|(index, count)| (Ipv4Addr::from(u32::try_from(index).unwrap()), *count))
            .collect()
    }

    #[test]
    fn who_has_little_keeps_it_and_the_rest_share_what_is_left() {
        assert_eq!(highest_share(&counts(&[10, 20, 30]), 60), None);
        assert_eq!(highest_share(&counts(&[10, 20, 30]), 59), Some(29));
        assert_eq!(highest_share(&counts(&[1, 1, 4096, 4096]), 1002), Some(500));
        assert_eq!(highest_share(&counts(&[4096; 64]), 131_072), Some(2048));
        assert_eq!(highest_share(&counts(&[5, 5]), 1), Some(0));
        assert_eq!(highest_share(&counts(&[]), 0), None);
    }

    #[test]
    fn the_share_keeps_all_within_the_budget() {
        for budget in 0..500 {
            let counts = counts(&[0, 3, 17, 99, 99, 250]);
            if let Some(share) = highest_share(&counts, budget) {
                let kept: usize = counts.values().map(|count| *count.min(&share)).sum();
                assert!(kept <= budget, "{kept} of {budget}");
                let one_more: usize = counts.values().map(|c| *c.min(&(share + 1))).sum();
                assert!(
                    one_more > budget,
                    "more than {share} would fit into {budget}"
                );
            }
        }
    }
}
