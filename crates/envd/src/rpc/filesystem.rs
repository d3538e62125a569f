//! `filesystem.Filesystem`, except watching. Everything is done as root; the user only decides
//! where relative paths begin and who owns new directories.

use std::{
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    rc::Rc,
};

use http::{Request, Response};
use hyper::body::Incoming;

use super::{entry::entry_info, listing, user, watching};
use crate::{
    connect::{Call, Code, ConnectError, server_stream, unary},
    files::threads,
    http::{body::Body, reply::Failure},
    paths,
    proto::{
        filesystem::{
            EntryInfo, EntryResponse, ListDirRequest, ListDirResponse, MoveRequest, PathRequest,
        },
        process::Empty,
    },
    removal,
    state::Envd,
    users::{Names, User},
};

pub(crate) async fn dispatch(
    envd: Rc<Envd>,
    method: &str,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    Ok(match method {
        "Stat" => unary(envd, request, stat).await,
        "MakeDir" => unary(envd, request, make_dir).await,
        "Move" => unary(envd, request, rename).await,
        "ListDir" => unary(envd, request, list_dir).await,
        "Remove" => unary(envd, request, remove).await,
        "WatchDir" => server_stream(envd, request, watching::watch_dir).await,
        "CreateWatcher" => unary(envd, request, watching::create_watcher).await,
        "GetWatcherEvents" => unary(envd, request, watching::get_watcher_events).await,
        "RemoveWatcher" => unary(envd, request, watching::remove_watcher).await,
        _ => return Err(Failure::no_route()),
    })
}

pub(super) fn resolve(call: &Call, path: &str) -> Result<(PathBuf, User), ConnectError> {
    let user = user(call)?;
    let path = paths::resolve(path, &user, &call.envd.default_workdir())?;
    Ok((path, user))
}

async fn stat(call: Call, request: PathRequest) -> Result<EntryResponse, ConnectError> {
    let (path, _) = resolve(&call, &request.path)?;
    described(&call, &path)
}

/// A Python client of the first days fails on fields that it does not know.
fn is_ancient(call: &Call) -> bool {
    call.header("user-agent") == Some("connect-python")
}

fn reduced(entry: EntryInfo) -> EntryInfo {
    EntryInfo {
        name: entry.name,
        kind: entry.kind,
        path: entry.path,
        ..Default::default()
    }
}

async fn make_dir(call: Call, request: PathRequest) -> Result<EntryResponse, ConnectError> {
    let (path, user) = resolve(&call, &request.path)?;
    match std::fs::metadata(&path) {
        Ok(found) if found.is_dir() => {
            return Err(ConnectError::new(
                Code::AlreadyExists,
                format!("directory already exists: {}", path.display()),
            ));
        }
        Ok(_) => {
            return Err(ConnectError::invalid(format!(
                "path already exists but it is not a directory: {}",
                path.display()
            )));
        }
        Err(_) => {}
    }
    paths::make_directories(&path, &user)
        .map_err(|e| failed(&format!("error making directory {}", path.display()), &e))?;
    described(&call, &path)
}

async fn rename(call: Call, request: MoveRequest) -> Result<EntryResponse, ConnectError> {
    let (source, user) = resolve(&call, &request.source)?;
    let (destination, _) = resolve(&call, &request.destination)?;
    if let Some(parent) = destination.parent() {
        paths::make_directories(parent, &user)
            .map_err(|e| failed(&format!("error making directory {}", parent.display()), &e))?;
    }
    std::fs::rename(&source, &destination).map_err(|e| match e.kind() {
        ErrorKind::NotFound => {
            ConnectError::not_found(format!("source file not found: {}", source.display()))
        }
        _ => failed(
            &format!(
                "error renaming {} to {}",
                source.display(),
                destination.display()
            ),
            &e,
        ),
    })?;
    described(&call, &destination)
}

async fn remove(call: Call, request: PathRequest) -> Result<Empty, ConnectError> {
    let (path, _) = resolve(&call, &request.path)?;
    let shown = path.display().to_string();
    blocking(move || match std::fs::symlink_metadata(&path) {
        Ok(found) if found.is_dir() => removal::remove_tree(&path),
        Ok(_) => std::fs::remove_file(&path),
        Err(e) => Err(e),
    })
    .await?
    // Gone is gone, whoever did it.
    .or_else(|e| if is_missing(&e) { Ok(()) } else { Err(e) })
    .map_err(|e| failed(&format!("error removing {shown}"), &e))?;
    Ok(Empty {})
}

async fn list_dir(call: Call, request: ListDirRequest) -> Result<ListDirResponse, ConnectError> {
    let (path, _) = resolve(&call, &request.path)?;
    let shown = path.display().to_string();
    let found = std::fs::metadata(&path).map_err(|e| match e.raw_os_error() {
        Some(libc::ELOOP) => {
            ConnectError::new(Code::FailedPrecondition, format!("too many links: {shown}"))
        }
        _ if is_missing(&e) => ConnectError::not_found(format!("path not found: {shown}")),
        _ => failed(&format!("error reading {shown}"), &e),
    })?;
    if !found.is_dir() {
        return Err(ConnectError::invalid(format!(
            "path is not a directory: {shown}"
        )));
    }
    let depth = request.depth.max(1);
    let entries = blocking(move || listing::list(&path, depth, &Names::load())).await?;
    match entries {
        Ok(entries) if is_ancient(&call) => Ok(ListDirResponse {
            entries: entries.into_iter().map(reduced).collect(),
        }),
        Ok(entries) => Ok(ListDirResponse { entries }),
        Err(too_much @ listing::Error::TooMuch) => Err(ConnectError::new(
            Code::ResourceExhausted,
            format!("{shown} has {too_much}: list with a smaller depth"),
        )),
        Err(listing::Error::Read(e)) => Err(failed(&format!("error reading {shown}"), &e)),
    }
}

fn described(call: &Call, path: &Path) -> Result<EntryResponse, ConnectError> {
    match entry_info(path, &Names::load()) {
        Ok(entry) => {
            let entry = if is_ancient(call) {
                reduced(entry)
            } else {
                entry
            };
            Ok(EntryResponse { entry: Some(entry) })
        }
        Err(e) if is_missing(&e) => Err(ConnectError::not_found(format!(
            "file not found: {}",
            path.display()
        ))),
        Err(e) => Err(failed(&format!("error reading {}", path.display()), &e)),
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn failed(what: &str, error: &io::Error) -> ConnectError {
    let code = if paths::is_out_of_space(error) {
        Code::ResourceExhausted
    } else {
        Code::Internal
    };
    ConnectError::new(code, format!("{what}: {}", paths::told(error)))
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ConnectError> {
    threads::blocking(work)
        .await
        .map_err(|e| ConnectError::internal(e.to_string()))
}
