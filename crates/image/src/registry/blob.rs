//! Downloads that survive a cut connection.
//!
//! What has arrived is hashed and kept in a file without a name; the next try asks for the rest.

use std::{
    fs::File,
    io::{Seek, Write},
    path::Path,
};

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};

use super::{Session, backoff::Backoff, http::RegistryResponse, session::check};
use crate::{
    Error, Result,
    digest::Hasher,
    error::{At, blocking},
    manifest::Descriptor,
    progress::ProgressCounter,
};

/// Collected before it is written.
const BATCH: usize = 1 << 20;
/// Even with progress in each of them.
const MAX_CONNECTIONS: u32 = 100;

/// A whole blob whose digest was checked; gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Blob {
    pub(crate) file: File,
    pub(crate) size: u64,
}

struct Partial {
    file: File,
    /// Bytes that stay free on its disk.
    min_free: u64,
    hasher: Hasher,
    done: u64,
}

impl Session {
    pub(crate) async fn blob(
        &self,
        descriptor: &Descriptor,
        folder: &Path,
        min_free: u64,
        counter: &ProgressCounter,
    ) -> Result<Blob> {
        let what = format!("the layer {}", descriptor.digest.short());
        let mut counted = Counted { counter, bytes: 0 };
        let mut backoff = Backoff::new(self.http.timeouts);
        let mut partial = start(folder, min_free).await?;
        let mut furthest = 0;
        for _ in 0..MAX_CONNECTIONS {
            let ended = self
                .rest(descriptor, &what, &mut partial, &mut counted)
                .await;
            let error = match ended {
                Ok(()) => {
                    check(&what, &descriptor.digest, &partial.hasher.finish())?;
                    counted.bytes = 0;
                    return Ok(Blob {
                        file: partial.file,
                        size: descriptor.size,
                    });
                }
                Err(error) => error,
            };
            if partial.done > furthest {
                furthest = partial.done;
                backoff.reset();
            }
            let cut = !matches!(error, Error::RateLimited { .. } | Error::Status { .. });
            if let Err(error) = backoff.wait(error).await {
                return Err(if error.is_transient() && cut && furthest > 0 {
                    cut_off(what, furthest, descriptor.size, &error.to_string())
                } else {
                    error
                });
            }
        }
        let cause = format!("the connection broke {MAX_CONNECTIONS} times");
        Err(cut_off(what, furthest, descriptor.size, &cause))
    }

    /// From where `partial` is to the end.
    async fn rest(
        &self,
        descriptor: &Descriptor,
        what: &str,
        partial: &mut Partial,
        counted: &mut Counted<'_>,
    ) -> Result<()> {
        let mut headers = Vec::new();
        if partial.done > 0 && partial.done < descriptor.size {
            let range = format!("bytes={}-", partial.done);
            if let Ok(range) = HeaderValue::from_str(&range) {
                headers.push((header::RANGE, range));
            }
        }
        if partial.done < descriptor.size || descriptor.size == 0 {
            let path = format!("blobs/{}", descriptor.digest);
            let mut answer = self.get(&path, what, &headers).await?;
            if !continues(&answer, partial.done) {
                counted.restart();
                restart(partial).await?;
            }
            return self
                .receive(&mut answer, descriptor.size, what, partial, counted)
                .await;
        }
        Ok(())
    }

    async fn receive(
        &self,
        answer: &mut RegistryResponse,
        size: u64,
        what: &str,
        partial: &mut Partial,
        counted: &mut Counted<'_>,
    ) -> Result<()> {
        let mut batch = Vec::new();
        let mut waiting = 0;
        loop {
            let chunk = answer.chunk().await;
            let ended = !matches!(chunk, Ok(Some(_)));
            if let Ok(Some(chunk)) = &chunk {
                waiting += chunk.len();
                counted.add(chunk.len() as u64);
                batch.push(chunk.clone());
                if partial.done + waiting as u64 > size {
                    return Err(Error::TooLarge {
                        what: what.to_owned(),
                        limit: size,
                    });
                }
            }
            // What came before a cut is kept, too.
            if ended || waiting >= BATCH {
                write(partial, std::mem::take(&mut batch)).await?;
                waiting = 0;
            }
            match chunk {
                Ok(Some(_)) => {}
                Ok(None) if partial.done == size => return Ok(()),
                Ok(None) => {
                    return Err(Error::Http {
                        host: answer.host.clone(),
                        cause: "the body ended too early".to_owned(),
                    });
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether the answer begins where we stopped.
fn continues(answer: &RegistryResponse, done: u64) -> bool {
    if done == 0 || answer.response.status() != StatusCode::PARTIAL_CONTENT {
        return false;
    }
    let range = answer.response.headers().get(header::CONTENT_RANGE);
    range
        .and_then(|range| range.to_str().ok())
        .and_then(|range| range.strip_prefix("bytes ")?.split_once('-'))
        .is_some_and(|(first, _)| first.parse() == Ok(done))
}

async fn start(folder: &Path, min_free: u64) -> Result<Partial> {
    let folder = folder.to_owned();
    blocking(move || {
        let file = tempfile::tempfile_in(&folder).at("make a file in", &folder)?;
        Ok(Partial {
            file,
            min_free,
            hasher: Hasher::new(),
            done: 0,
        })
    })
    .await
}

async fn restart(partial: &mut Partial) -> Result<()> {
    if partial.done == 0 {
        return Ok(());
    }
    let mut file = clone(&partial.file)?;
    blocking(move || {
        let emptied = file.set_len(0).and_then(|()| file.rewind());
        emptied.at("empty", Path::new("a download"))
    })
    .await?;
    partial.hasher = Hasher::new();
    partial.done = 0;
    Ok(())
}

async fn write(partial: &mut Partial, batch: Vec<Bytes>) -> Result<()> {
    if batch.is_empty() {
        return Ok(());
    }
    let mut file = clone(&partial.file)?;
    let mut hasher = partial.hasher.clone();
    let min_free = partial.min_free;
    let (hasher, written) = blocking(move || {
        let needed: u64 = batch.iter().map(|chunk| chunk.len() as u64).sum();
        let disk =
            rustix::fs::fstatvfs(&file).at("look at the disk of", Path::new("a download"))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let free = free.saturating_sub(min_free);
        if free < needed {
            return Err(Error::NoSpace { needed, free });
        }
        let mut written = 0;
        for chunk in batch {
            file.write_all(&chunk)
                .at("write", Path::new("a download"))?;
            hasher.update(&chunk);
            written += chunk.len() as u64;
        }
        Ok((hasher, written))
    })
    .await?;
    partial.hasher = hasher;
    partial.done += written;
    Ok(())
}

/// The same open file, the same position.
fn clone(file: &File) -> Result<File> {
    file.try_clone().at("open", Path::new("a download"))
}

fn cut_off(what: String, done: u64, total: u64, cause: &str) -> Error {
    Error::CutOff {
        what,
        done,
        total,
        cause: cause.to_owned(),
    }
}

/// What a download that fails or is given up has counted is taken back.
struct Counted<'a> {
    counter: &'a ProgressCounter,
    bytes: u64,
}

impl Counted<'_> {
    fn add(&mut self, bytes: u64) {
        self.counter.advance(bytes);
        self.bytes += bytes;
    }

    fn restart(&mut self) {
        self.counter.take_back(std::mem::take(&mut self.bytes));
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.restart();
    }
}
