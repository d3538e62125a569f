//! The limit for pooled clients, where the pool chooses the connection of a request.

use http::{Extensions, Request};
use hyper_util::client::legacy::connect::capture_connection;

use crate::{InterimLimit, interim::count};

/// As [`InterimLimit::watch`]. Connections of the pool are [bounded](InterimLimit::bound), and carry
/// their [`InterimLimit`] as an extra of `Connected`.
pub fn watch_pooled<B>(request: &mut Request<B>) {
    let captured = capture_connection(request);
    count(request, move || {
        let mut extras = Extensions::new();
        if let Some(connected) = captured.connection_metadata().as_ref() {
            connected.get_extras(&mut extras);
        }
        if let Some(interim_limit) = extras.get::<InterimLimit>() {
            interim_limit.flood();
        }
    });
}
