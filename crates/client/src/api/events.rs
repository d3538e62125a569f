use super::{Client, segment};
use crate::{Result, model::SandboxEvent};

/// The most that a page has.
pub const EVENTS_PER_PAGE: u32 = 100;

impl Client {
    /// What happened to sandboxes, newest first: a page of up to [`EVENTS_PER_PAGE`] after `offset`
    /// others. Also of sandboxes that have ended. `of`: only of this one.
    pub async fn events(&self, of: Option<&str>, offset: u32) -> Result<Vec<SandboxEvent>> {
        let path = match of {
            Some(id) => format!("/events/sandboxes/{}", segment(id)),
            None => "/events/sandboxes".to_owned(),
        };
        let path = format!("{path}?limit={EVENTS_PER_PAGE}&offset={offset}");
        self.get(&path, "reading the events").await
    }
}
