//! A pool decides by itself which connection a request goes over.

use http::{Extensions, Request};
use hyper_util::client::legacy::connect::capture_connection;

use crate::{Heads, interim::count};

/// As [`Heads::watch`]. Connections of the pool are [bounded](Heads::bound), and tell their [`Heads`]
/// as an extra of `Connected`.
pub fn watch_pooled<B>(request: &mut Request<B>) {
    let captured = capture_connection(request);
    count(request, move || {
        let mut extras = Extensions::new();
        if let Some(connected) = captured.connection_metadata().as_ref() {
            connected.get_extras(&mut extras);
        }
        if let Some(heads) = extras.get::<Heads>() {
            heads.flood();
        }
    });
}
