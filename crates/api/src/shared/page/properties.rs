//! What holds of whatever clients send back as a token, and of any list that is walked through.

use proptest::{collection::vec, prelude::*};

use super::*;

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::NewestFirst), Just(Order::OldestFirst)]
}

/// Until the year 9999, which is what a written time has digits for.
const LAST: u64 = 253_402_207_200_000;

/// Ids of things are their names too: letters, digits and signs.
const ID: &str = "[a-z0-9._-]{1,30}|(asc|desc|_|__|a){1,5}";

fn position(item: &(u64, String)) -> Position<'_> {
    Position {
        at: UnixMillis(item.0),
        id: item.1.as_str().into(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_token_comes_back_in_its_own_order_and_in_no_other(
        at in 0..LAST,
        id in ID,
        order in order(),
    ) {
        let position = Position { at: UnixMillis(at), id: id.into() };
        let token = write_token(&position, order);
        prop_assert!(HeaderValue::try_from(&token).is_ok());
        prop_assert_eq!(read_token(&token, order).ok(), Some(position));
        let other = match order {
            Order::NewestFirst => Order::OldestFirst,
            Order::OldestFirst => Order::NewestFirst,
        };
        prop_assert!(read_token(&token, other).is_err());
    }

    #[test]
    fn any_token_is_a_position_or_refused(
        token in prop_oneof![
            ".{0,30}",
            "[A-Za-z0-9_-]{0,40}=?",
            "[0-9TZ:.+ -]{0,30}__.{0,12}(__asc|__desc)?".prop_map(|text| URL_SAFE_NO_PAD.encode(text)),
            vec(any::<u8>(), 0..30).prop_map(|bytes| URL_SAFE_NO_PAD.encode(bytes)),
        ],
        order in order(),
    ) {
        if let Ok(position) = read_token(&token, order) {
            prop_assert!(position.id.len() <= token.len());
            let again = write_token(&position, order);
            prop_assert_eq!(read_token(&again, order).ok(), Some(position));
        }
    }

    #[test]
    fn pages_show_everything_once_and_in_order(
        mut items in vec((0..20_u64, "[a-c_]{1,3}"), 0..40),
        limit in 1..9_usize,
        order in order(),
    ) {
        items.sort();
        items.dedup();
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let page = Paging { order, limit, after }.cut(items.clone(), position);
            prop_assert!(page.items.len() <= limit);
            seen.extend(page.items);
            prop_assert!(seen.len() <= items.len());
            match page.next {
                Some(token) => after = Some(read_token(&token, order).unwrap()),
                None => break,
            }
        }
        let in_order = seen.is_sorted_by(|a, b| order.compare(&position(a), &position(b)).is_lt());
        prop_assert!(in_order);
        seen.sort();
        prop_assert_eq!(seen, items);
    }
}
