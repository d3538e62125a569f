//! The watching half of `filesystem.Filesystem`: a stream, or a watcher that is asked for events.

use std::{io, rc::Rc};

use tokio::time::Instant;

use super::{filesystem::blocking, filesystem::resolve, keepalive_interval};
use crate::{
    connect::{Call, Code, ConnectError, Sink},
    proto::{
        filesystem::{WatchDirResponse, WatchRequest, WatcherEvents, WatcherId},
        process::Empty,
    },
    watch::{self, Watch},
};

/// File systems whose changes may be made by others and are never reported here.
const NETWORK_FILE_SYSTEMS: [u32; 5] = [0x6969, 0x517B, 0xFF53_4D42, 0xFE53_4D42, 0x6573_5546];

pub(super) async fn watch_dir(
    call: Call,
    request: WatchRequest,
    sink: &Sink<WatchDirResponse>,
) -> Result<(), ConnectError> {
    let mut watch = open(&call, &request).await?;
    let deadline = call.deadline_passed();
    tokio::pin!(deadline);

    sink.send(&WatchDirResponse {
        start: Some(Empty {}),
        ..Default::default()
    })
    .await?;
    let interval = keepalive_interval(&call);
    let mut next_keepalive = Instant::now() + interval;
    loop {
        tokio::select! {
            ready = watch.readable() => ready.map_err(|e| ConnectError::internal(e.to_string()))?,
            () = sink.closed() => return Ok(()),
            () = &mut deadline => return Err(ConnectError::deadline()),
            () = tokio::time::sleep_until(next_keepalive) => {
                let alive = WatchDirResponse { keepalive: Some(Empty {}), ..Default::default() };
                sink.send(&alive).await?;
                next_keepalive = Instant::now() + interval;
                continue;
            }
        }
        for event in watch.take() {
            let message = WatchDirResponse {
                filesystem: Some(event),
                ..Default::default()
            };
            tokio::select! {
                sent = sink.send(&message) => sent?,
                () = &mut deadline => return Err(ConnectError::deadline()),
            }
            next_keepalive = Instant::now() + interval;
        }
    }
}

pub(super) async fn create_watcher(
    call: Call,
    request: WatchRequest,
) -> Result<WatcherId, ConnectError> {
    let watch = open(&call, &request).await?;
    let id = watch::keep(&call.envd, watch).ok_or_else(|| {
        ConnectError::new(
            Code::ResourceExhausted,
            "too many watchers: remove some first",
        )
    })?;
    Ok(WatcherId { watcher_id: id })
}

pub(super) async fn get_watcher_events(
    call: Call,
    request: WatcherId,
) -> Result<WatcherEvents, ConnectError> {
    match call.envd.watchers.take_events(&request.watcher_id) {
        Some(events) => Ok(WatcherEvents { events }),
        None => Err(unknown(&request.watcher_id)),
    }
}

pub(super) async fn remove_watcher(call: Call, request: WatcherId) -> Result<Empty, ConnectError> {
    if call.envd.watchers.remove(&request.watcher_id) {
        Ok(Empty {})
    } else {
        Err(unknown(&request.watcher_id))
    }
}

fn unknown(id: &str) -> ConnectError {
    ConnectError::not_found(format!("watcher with id {id} not found"))
}

async fn open(call: &Call, request: &WatchRequest) -> Result<Watch, ConnectError> {
    let (path, _) = resolve(call, &request.path)?;
    let shown = path.display().to_string();
    match std::fs::metadata(&path) {
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Err(ConnectError::not_found(format!("path {shown} not found")));
        }
        Err(e) => {
            return Err(ConnectError::internal(format!(
                "error reading {shown}: {e}"
            )));
        }
        Ok(found) if !found.is_dir() => {
            return Err(ConnectError::invalid(format!(
                "path {shown} not a directory"
            )));
        }
        Ok(_) => {}
    }
    if !request.allow_network_mounts && is_network(&path) {
        return Err(ConnectError::invalid(format!(
            "cannot watch path on network filesystem: {shown}"
        )));
    }
    let (recursive, include_entry) = (request.recursive, request.include_entry);
    let logs = Rc::clone(&call.envd);
    blocking(move || watch::Tree::new(path, recursive))
        .await?
        .and_then(|tree| Watch::new(tree, include_entry))
        .map_err(|e| {
            logs.logs
                .warn("watch", "cannot watch", [("error", e.to_string())]);
            let out_of_descriptors = matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
            let code = if out_of_descriptors || e.kind() == io::ErrorKind::StorageFull {
                Code::ResourceExhausted
            } else {
                Code::Internal
            };
            ConnectError::new(code, format!("error watching {shown}: {e}"))
        })
}

fn is_network(path: &std::path::Path) -> bool {
    // The kernel's numbers fit in 32 bits; the field is wider on some machines.
    rustix::fs::statfs(path).is_ok_and(|found| {
        u32::try_from(found.f_type & 0xFFFF_FFFF)
            .is_ok_and(|number| NETWORK_FILE_SYSTEMS.contains(&number))
    })
}
