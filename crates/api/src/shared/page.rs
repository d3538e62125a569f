//! Lists in pages, newest first or oldest first.

use std::{borrow::Cow, cmp::Ordering};

use axum::response::{IntoResponse, Response};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::HeaderValue;
use serde::Serialize;
use soulbox_types::UnixMillis;

use crate::shared::{
    error::{ApiError, Result},
    query::Query,
    wire,
};

const MAX_LIMIT: usize = 100;
const NEXT_TOKEN: &str = "x-next-token";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    NewestFirst,
    OldestFirst,
}

/// Where an item stands in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position<'a> {
    pub(crate) at: UnixMillis,
    pub(crate) id: Cow<'a, str>,
}

#[derive(Debug)]
pub(crate) struct Paging {
    order: Order,
    limit: usize,
    after: Option<Position<'static>>,
}

/// A page, and how to get the next one.
#[derive(Debug)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

impl Paging {
    pub(crate) fn from_query(query: &Query) -> Result<Self> {
        let order = match query.text("order") {
            None | Some("desc") => Order::NewestFirst,
            Some("asc") => Order::OldestFirst,
            Some(_) => return Err(ApiError::bad_request("order must be asc or desc")),
        };
        let limit = query.number("limit")?.unwrap_or(MAX_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            let message = format!("limit must be between 1 and {MAX_LIMIT}");
            return Err(ApiError::bad_request(message));
        }
        let after = query
            .text("nextToken")
            .map(|token| read_token(token, order))
            .transpose()?;
        Ok(Self {
            order,
            limit,
            after,
        })
    }

    /// For items that are shown one by one, of which few are to be kept.
    pub(crate) fn gather<T, P: for<'a> Fn(&'a T) -> Position<'a>>(
        &self,
        position: P,
    ) -> Gathering<'_, T, P> {
        Gathering {
            paging: self,
            position,
            kept: Vec::new(),
            full: false,
        }
    }

    /// Only what is on the page is put in order: a list may have thousands of items.
    pub(crate) fn cut<T>(
        &self,
        mut items: Vec<T>,
        position: impl for<'a> Fn(&'a T) -> Position<'a>,
    ) -> Page<T> {
        let compare = |a: &T, b: &T| self.order.compare(&position(a), &position(b));
        if let Some(after) = &self.after {
            items.retain(|item| self.order.compare(&position(item), after).is_gt());
        }
        let more = items.len() > self.limit;
        if more {
            items.select_nth_unstable_by(self.limit, compare);
            items.truncate(self.limit);
        }
        items.sort_by(compare);
        let last = items.last().filter(|_| more);
        let next = last.map(|last| write_token(&position(last), self.order));
        Page { items, next }
    }
}

/// The items of a page so far, and some more.
#[derive(Debug)]
pub(crate) struct Gathering<'p, T, P> {
    paging: &'p Paging,
    position: P,
    /// When it is `full`, the last of them comes after all that the page and the next one's first
    /// item can still be.
    kept: Vec<T>,
    full: bool,
}

impl<T, P: for<'a> Fn(&'a T) -> Position<'a>> Gathering<'_, T, P> {
    /// `item` is called if it may be on the page, `position` only if its time does not decide.
    pub(crate) fn offer<'a>(
        &mut self,
        at: UnixMillis,
        position: impl FnOnce() -> Position<'a>,
        item: impl FnOnce() -> T,
    ) {
        let order = self.paging.order;
        let last = self.kept.get(self.paging.limit).filter(|_| self.full);
        let last = last.map(&self.position);
        let is_later = |than: &Position<'_>| order.compare_times(at, than.at);
        if last.as_ref().is_some_and(|last| is_later(last).is_gt()) {
            return;
        }
        let position = position();
        if last.is_some_and(|last| order.compare(&position, &last).is_ge()) {
            return;
        }
        if let Some(after) = &self.paging.after
            && order.compare(&position, after).is_le()
        {
            return;
        }
        self.kept.push(item());
        // The page and one more, which tells that there is a next one.
        let wanted = self.paging.limit + 1;
        if self.kept.len() == 2 * wanted {
            let position = &self.position;
            self.kept.select_nth_unstable_by(wanted - 1, |a, b| {
                order.compare(&position(a), &position(b))
            });
            self.kept.truncate(wanted);
            self.full = true;
        }
    }

    pub(crate) fn page(self) -> Page<T> {
        self.paging.cut(self.kept, self.position)
    }
}

impl<T: Serialize> IntoResponse for Page<T> {
    fn into_response(self) -> Response {
        with_next(axum::Json(self.items).into_response(), self.next)
    }
}

/// Tells how to get the next page, if there is one.
pub(crate) fn with_next(mut response: Response, next: Option<String>) -> Response {
    if let Some(value) = next.and_then(|token| HeaderValue::try_from(token).ok()) {
        response.headers_mut().insert(NEXT_TOKEN, value);
    }
    response
}

impl Order {
    fn name(self) -> &'static str {
        match self {
            Self::NewestFirst => "desc",
            Self::OldestFirst => "asc",
        }
    }

    fn compare_times(self, a: UnixMillis, b: UnixMillis) -> Ordering {
        match self {
            Self::NewestFirst => b.cmp(&a),
            Self::OldestFirst => a.cmp(&b),
        }
    }

    /// Newest first, then by id; oldest first is the exact reverse.
    fn compare(self, a: &Position<'_>, b: &Position<'_>) -> Ordering {
        let newest_first = b.at.cmp(&a.at).then_with(|| a.id.cmp(&b.id));
        match self {
            Self::NewestFirst => newest_first,
            Self::OldestFirst => newest_first.reverse(),
        }
    }
}

/// The id comes last: it may have what stands between the parts in it, as the tags of snapshots do.
fn write_token(position: &Position<'_>, order: Order) -> String {
    let at = wire::timestamp(position.at);
    URL_SAFE_NO_PAD.encode(format!("{at}__{}__{}", order.name(), position.id))
}

/// A token is only good for the order for which it was made.
fn read_token(token: &str, order: Order) -> Result<Position<'static>> {
    let read = || {
        let text = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).ok()?;
        let text = String::from_utf8(text).ok()?;
        let (at, rest) = text.split_once("__")?;
        let (made_for, id) = rest.split_once("__")?;
        let at = wire::parse_timestamp(at)?.whole_millis();
        let id = Cow::Owned(id.to_owned());
        (made_for == order.name()).then_some(Position { at, id })
    };
    read().ok_or_else(|| ApiError::bad_request("Invalid next token"))
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn paging(order: Order, limit: usize, token: Option<String>) -> Paging {
        let after = token.map(|token| read_token(&token, order).unwrap());
        Paging {
            order,
            limit,
            after,
        }
    }

    fn walk(order: Order) -> Vec<&'static str> {
        let items = vec![(1, "c"), (3, "a"), (2, "b"), (2, "a2")];
        let (mut seen, mut token) = (Vec::new(), None);
        loop {
            let page = paging(order, 1, token.take()).cut(items.clone(), |item| Position {
                at: UnixMillis(item.0),
                id: item.1.into(),
            });
            seen.extend(page.items.into_iter().map(|(_, id)| id));
            match page.next {
                Some(next) => token = Some(next),
                None => return seen,
            }
        }
    }

    #[test]
    fn pages_of_one_visit_everything_in_order() {
        assert_eq!(walk(Order::NewestFirst), ["a", "a2", "b", "c"]);
        assert_eq!(walk(Order::OldestFirst), ["c", "b", "a2", "a"]);
    }

    fn position(item: &(u64, String)) -> Position<'_> {
        Position {
            at: UnixMillis(item.0),
            id: item.1.as_str().into(),
        }
    }

    #[test]
    fn what_is_gathered_one_by_one_is_what_is_cut_from_all() {
        // In an order that has nothing to do with theirs, and with equal times.
        let items: Vec<_> = (0..200_u64)
            .map(|n| (n * 77 % 200 / 3, format!("{:03}", n * 77 % 200)))
            .collect();
        for order in [Order::NewestFirst, Order::OldestFirst] {
            for limit in [1, 7, 100] {
                let (mut seen, mut token) = (Vec::new(), None);
                loop {
                    let paging = paging(order, limit, token.take());
                    let mut gathering = paging.gather(position);
                    for item in &items {
                        gathering.offer(UnixMillis(item.0), || position(item), || item.clone());
                    }
                    let gathered = gathering.page();
                    let cut = paging.cut(items.clone(), position);
                    assert_eq!((&gathered.items, &gathered.next), (&cut.items, &cut.next));
                    seen.extend(gathered.items);
                    match gathered.next {
                        Some(next) => token = Some(next),
                        None => break,
                    }
                }
                assert_eq!(seen.len(), items.len());
            }
        }
    }

    #[test]
    fn an_id_may_have_any_signs() {
        for id in ["a__b", "t.v1__asc", "__", "asc"] {
            for order in [Order::NewestFirst, Order::OldestFirst] {
                let (at, id) = (UnixMillis(5), id.into());
                let position = Position { at, id };
                let token = write_token(&position, order);
                assert_eq!(read_token(&token, order).unwrap(), position);
            }
        }
    }

    #[test]
    fn a_token_is_refused_for_the_other_order_and_when_broken() {
        let position = Position {
            at: UnixMillis(5),
            id: "i1".into(),
        };
        let token = write_token(&position, Order::OldestFirst);
        assert_eq!(read_token(&token, Order::OldestFirst).unwrap(), position);
        assert!(read_token(&token, Order::NewestFirst).is_err());
        for bad in [
            "",
            "%%%",
            "aaaa",
            &URL_SAFE_NO_PAD.encode("2020-01-01T00:00:00Z"),
        ] {
            assert!(read_token(bad, Order::NewestFirst).is_err(), "{bad}");
        }
    }
}
