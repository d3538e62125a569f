//! `GET /files`.

use std::{io, os::fd::OwnedFd, path::Path, rc::Rc};

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use rustix::fs::{SeekFrom, fstat, seek};

use super::{
    Query,
    disposition::{by_content, by_extension, content_disposition},
    encoding::{self, Encoding},
    range::{self, Part},
    resolve,
    source::{FilePart, read_chunk, stream},
};
use crate::{
    http::{body::Body, reply::Failure},
    paths,
    state::Envd,
    time,
};

/// Up to this size a file is read at once: most are, and a thread costs more than the read.
const SMALL: usize = 64 << 10;
const SNIFFED: usize = 512;

pub(crate) fn handle(
    envd: &Rc<Envd>,
    request: &Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let headers = request.headers();
    let query = Query::parse(request.uri().query());
    query.authorise(envd, headers, "read")?;
    let user = query.user(envd)?;
    let path = resolve(envd, &query.path, &user)?;
    let file = open(&path)?;
    let found = fstat(&file).map_err(|e| Failure::io(path.display(), &e.into()))?;
    // Files of /proc and /sys claim to be empty, or a page long: only reading shows.
    let size = u64::try_from(found.st_size).unwrap_or(0);
    let size = if size == 0 || is_virtual(&file) {
        None
    } else {
        Some(size)
    };
    let name = paths::base_name(&path);

    let encoding = encoding::negotiate(headers)?;
    let mut response = Response::new(Body::empty());
    let out = response.headers_mut();
    insert(
        out,
        header::CONTENT_DISPOSITION,
        &content_disposition(&name),
    );
    out.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));

    if encoding == Encoding::Gzip && !range::is_conditional(headers) {
        out.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        let kind = by_extension(&name).unwrap_or("application/octet-stream");
        out.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if request.method() != Method::HEAD {
            *response.body_mut() = stream(file, None, true);
        }
        return Ok(response);
    }

    let failed = |e: io::Error| Failure::io(format!("error reading {}", path.display()), &e);
    let start = match size {
        Some(size) => read_chunk(&file, usize::try_from(size).unwrap_or(SMALL).min(SMALL)),
        None => read_chunk(&file, SMALL),
    }
    .map_err(failed)?;
    let kind =
        by_extension(&name).unwrap_or_else(|| by_content(start.get(..SNIFFED).unwrap_or(&start)));
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    insert(out, header::LAST_MODIFIED, &time::http_date(found.st_mtime));

    let Some(size) = size else {
        // Unknown length: whatever comes, until the end.
        if start.is_empty() || request.method() == Method::HEAD {
            insert(
                response.headers_mut(),
                header::CONTENT_LENGTH,
                &start.len().to_string(),
            );
        } else if start.len() < SMALL && read_chunk(&file, 1).is_ok_and(|b| b.is_empty()) {
            *response.body_mut() = Body::full(start);
        } else {
            seek(&file, SeekFrom::Start(0)).map_err(|e| failed(e.into()))?;
            *response.body_mut() = stream(file, None, false);
        }
        return Ok(response);
    };

    out.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let (first, length) = match range::part(headers, size, found.st_mtime) {
        Part::Whole => (0, size),
        Part::NotModified => {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return Ok(response);
        }
        Part::Unsatisfiable => {
            *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
            insert(
                response.headers_mut(),
                header::CONTENT_RANGE,
                &format!("bytes */{size}"),
            );
            return Ok(response);
        }
        Part::Slice { first, length } => {
            let last = first + length - 1;
            insert(
                out,
                header::CONTENT_RANGE,
                &format!("bytes {first}-{last}/{size}"),
            );
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            (first, length)
        }
    };
    insert(
        response.headers_mut(),
        header::CONTENT_LENGTH,
        &length.to_string(),
    );
    if request.method() == Method::HEAD {
        return Ok(response);
    }
    let in_memory = usize::try_from(first)
        .ok()
        .and_then(|first| start.get(first..first.checked_add(usize::try_from(length).ok()?)?));
    *response.body_mut() = if let Some(bytes) = in_memory {
        Body::full(bytes.to_vec())
    } else {
        seek(&file, SeekFrom::Start(first)).map_err(|e| failed(e.into()))?;
        Body::File(Some(FilePart::new(file, first, length)))
    };
    Ok(response)
}

fn open(path: &Path) -> Result<OwnedFd, Failure> {
    let shown = path.display();
    paths::open_regular(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Failure::new(
            StatusCode::NOT_FOUND,
            format!("path '{shown}' does not exist"),
        ),
        io::ErrorKind::IsADirectory => {
            Failure::bad_request(format!("path '{shown}' is a directory"))
        }
        io::ErrorKind::InvalidInput => {
            Failure::bad_request(format!("path '{shown}' is not a regular file"))
        }
        _ => match e.raw_os_error() {
            // What a FIFO, a socket or a missing device answers.
            Some(libc::ENXIO | libc::ENODEV) => {
                Failure::bad_request(format!("path '{shown}' is not a regular file"))
            }
            Some(libc::ELOOP | libc::ENAMETOOLONG) => {
                Failure::bad_request(format!("path '{shown}': {e}"))
            }
            _ => Failure::io(format!("error opening '{shown}'"), &e),
        },
    })
}

fn is_virtual(file: &OwnedFd) -> bool {
    const PROC: u64 = 0x9fa0;
    const SYSFS: u64 = 0x6265_6572;
    const CGROUP: u64 = 0x0027_e0eb;
    const CGROUP2: u64 = 0x6367_7270;
    rustix::fs::fstatfs(file).is_ok_and(|found| {
        u64::try_from(found.f_type)
            .is_ok_and(|number| [PROC, SYSFS, CGROUP, CGROUP2].contains(&number))
    })
}

fn insert(headers: &mut http::HeaderMap, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
