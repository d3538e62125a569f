//! Jupyter's messages: signed on the way out, checked on the way in.

mod connection;
mod message;
mod reply;

pub(crate) use self::{
    connection::Connection,
    message::{Incoming, Session},
    reply::{Broadcast, ExecuteReply},
};
