//! `POST /files/compose`: puts parts that were uploaded separately together into one file.

use std::{
    fs::File,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    rc::Rc,
};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;

use super::{resolve, threads::blocking, upload::WriteInfo};
use crate::{
    connect::frame,
    files::metadata::Metadata,
    http::{body::Body, reply, reply::Failure},
    paths,
    state::Envd,
    users::User,
};

#[derive(Deserialize)]
struct Compose {
    #[serde(default)]
    source_paths: Vec<String>,
    #[serde(default)]
    destination: String,
    username: Option<String>,
}

pub(crate) async fn handle(
    envd: &Rc<Envd>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let body = frame::whole_body(request.into_body())
        .await
        .map_err(|e| Failure::new(e.code.status(), e.message))?;
    let compose: Compose = serde_json::from_slice(&body)
        .map_err(|e| Failure::bad_request(format!("invalid request body: {e}")))?;
    if compose.source_paths.is_empty() {
        return Err(Failure::bad_request("source_paths must not be empty"));
    }
    if compose.destination.is_empty() {
        return Err(Failure::bad_request("destination is required"));
    }
    let user = envd.user(compose.username.as_deref())?;
    let destination = resolve(envd, &compose.destination, &user)?;
    let sources = compose
        .source_paths
        .iter()
        .map(|path| resolve(envd, path, &user))
        .collect::<Result<Vec<_>, _>>()?;
    if sources.contains(&destination) {
        return Err(Failure::bad_request("a source cannot be the destination"));
    }
    let target = destination.clone();
    blocking(move || concatenate(&sources, &target, &user))
        .await
        .map_err(|e| Failure::io("composing", &e))??;
    let written = WriteInfo::new(&destination, Metadata::new());
    Ok(reply::json(
        StatusCode::OK,
        serde_json::to_vec(&written).unwrap_or_default(),
    ))
}

fn concatenate(sources: &[PathBuf], destination: &Path, user: &User) -> Result<(), Failure> {
    // All are opened first: a missing one must not leave half a file.
    let files = sources
        .iter()
        .map(|path| open(path))
        .collect::<Result<Vec<_>, _>>()?;
    if destination.is_dir() {
        return Err(Failure::bad_request("the destination is a directory"));
    }
    let parent = destination.parent().unwrap_or(Path::new("/"));
    let failed = |e: io::Error| Failure::io(format!("composing '{}'", destination.display()), &e);
    paths::make_directories(parent, user).map_err(failed)?;

    let temporary = parent.join(format!(".compose-{}", temporary_name()));
    let composed =
        write_all(files, &temporary, user).and_then(|()| std::fs::rename(&temporary, destination));
    if let Err(error) = composed {
        let _never_made = std::fs::remove_file(&temporary);
        return Err(failed(error));
    }
    for source in sources {
        let _vanished = std::fs::remove_file(source);
    }
    Ok(())
}

fn write_all(files: Vec<File>, path: &Path, user: &User) -> io::Result<()> {
    let mut to = File::create_new(path)?;
    std::os::unix::fs::fchown(&to, Some(user.uid), Some(user.gid))?;
    for mut file in files {
        io::copy(&mut file, &mut to)?;
    }
    Ok(())
}

fn open(path: &Path) -> Result<File, Failure> {
    paths::open_regular(path)
        .map(File::from)
        .map_err(|e| match e.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Failure::new(
                StatusCode::NOT_FOUND,
                format!("source '{}' does not exist", path.display()),
            ),
            ErrorKind::IsADirectory | ErrorKind::InvalidInput => {
                Failure::bad_request(format!("source '{}' is not a regular file", path.display()))
            }
            _ => Failure::io(format!("error opening '{}'", path.display()), &e),
        })
}

fn temporary_name() -> String {
    let mut random = [0; 8];
    soulbox_types::id::fill_random(&mut random);
    u64::from_ne_bytes(random).to_string()
}
