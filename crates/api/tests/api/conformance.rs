//! docs/conformance.md lists the routes that are served: all of them, and no other.

use std::collections::{BTreeMap, BTreeSet};

const SURFACES: [&str; 2] = [
    include_str!("../../src/e2b.rs"),
    include_str!("../../src/v1.rs"),
];
const PAGE: &str = include_str!("../../../../docs/conformance.md");
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// The methods of each path, from the source of the routing tables: a router does not list its
/// routes. Without one: a path that answers all methods alike.
fn served() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let routes = SURFACES
        .iter()
        .flat_map(|source| source.split(".route(").skip(1));
    let parse = |route: &'static str| {
        let mut parts = route.trim_start().strip_prefix('"').unwrap().splitn(2, '"');
        let (path, handlers) = (parts.next().unwrap(), parts.next().unwrap());
        let has = |method: &str| {
            let call = format!("{}(", method.to_lowercase());
            let mut found = handlers.match_indices(&call);
            found
                .any(|(at, _)| !handlers[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        };
        let methods = METHODS.into_iter().filter(|method| has(method));
        (path, methods.collect())
    };
    routes.map(parse).collect()
}

/// The operations in the first column of the page's tables.
fn documented() -> BTreeSet<(&'static str, &'static str)> {
    let begin = PAGE.find("## Control plane").unwrap();
    let end = PAGE.find("## Known differences").unwrap();
    let cells = PAGE[begin..end]
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    words
        .filter_map(|word| word.split_once(' '))
        .filter(|(method, _)| METHODS.contains(method))
        .collect()
}

/// `/admin/{*rest}` stands for all that is below it.
fn is_at(path: &str, route: &str) -> bool {
    match route.split_once("{*") {
        Some((above, _)) => path.starts_with(above),
        None => path == route,
    }
}

#[test]
fn the_page_and_the_router_have_the_same_routes() {
    let (served, documented) = (served(), documented());
    assert!(served.len() > 50 && documented.len() > 71);
    for (method, path) in &documented {
        let is_served = served.iter().any(|(route, methods)| {
            is_at(path, route) && (methods.is_empty() || methods.contains(method))
        });
        assert!(is_served, "{method} {path} is on the page, and not served");
    }
    for (route, methods) in &served {
        let is_documented = |method: Option<&str>| {
            let mut all = documented.iter();
            all.any(|(m, path)| is_at(path, route) && method.is_none_or(|method| method == *m))
        };
        let missing = match methods.len() {
            0 => (!is_documented(None)).then_some("any method"),
            _ => methods.iter().copied().find(|m| !is_documented(Some(m))),
        };
        assert_eq!(missing, None, "{route} is served, and not on the page");
    }
}
