//! The sandbox's side of a copy.

use anyhow::{Context, Result, anyhow};
use soulbox_client::{
    Envd,
    envd::{
        files::EntryKind,
        input::InputKind,
        process::{Command, Event, ProcessStream},
    },
};

use super::{
    SourceInfo,
    chunk_stream::ChunkStream,
    target::{join, says_folder},
};
use crate::report::{advice, warning};

/// How much of tar's complaints is kept.
const MAX_COMPLAINT: usize = 2048;
/// GNU tar's exit code when something changed while it was read.
const CHANGED_MEANWHILE: u8 = 1;

pub(super) fn read(envd: Envd, path: String) -> ChunkStream {
    ChunkStream::spawn(|sink| async move {
        let mut download = envd.download(&path).await.with_context(|| path.clone())?;
        while let Some(chunk) = download.chunk().await? {
            if sink.send(Ok(chunk)).await.is_err() {
                break;
            }
        }
        Ok(())
    })
}

pub(super) fn pack(envd: Envd, path: String) -> ChunkStream {
    ChunkStream::spawn(|sink| async move {
        // Relative paths are envd's to resolve; tar would start elsewhere.
        let folder = envd.stat(&path).await?.path;
        let mut process = tar(&envd, &["-cf", "-", "-C", &folder, "."], false).await?;
        let mut complaint = String::new();
        while let Some(event) = process.next().await? {
            match event {
                Event::Stdout(chunk) | Event::Pty(chunk) => {
                    if sink.send(Ok(chunk)).await.is_err() {
                        return Ok(());
                    }
                }
                Event::Stderr(text) => keep(&mut complaint, &text),
                Event::End(end) => match end.shell_status() {
                    0 => return Ok(()),
                    CHANGED_MEANWHILE => {
                        warning(complaint.trim());
                        return Ok(());
                    }
                    code => return Err(failed(code, &complaint)),
                },
            }
        }
        Err(anyhow!("tar in the sandbox vanished"))
    })
}

pub(super) async fn take(
    envd: &Envd,
    path: &str,
    source_info: &SourceInfo,
    chunk_stream: ChunkStream,
) -> Result<()> {
    let there = match envd.stat(path).await {
        Ok(entry) => Some(entry.kind),
        Err(error) if error.is_not_found() => None,
        Err(error) => return chunk_stream.settle(Err(error.into())).await,
    };
    let own_name = there == Some(EntryKind::Directory) || says_folder(path);
    let target = match &source_info.name {
        Some(name) if own_name && !source_info.contents => join(path, name),
        None if own_name && !source_info.is_directory => {
            let hint = "name the file: SANDBOX:FOLDER/NAME";
            return chunk_stream
                .settle(Err(advice("the copy has no name", hint)))
                .await;
        }
        _ => path.to_owned(),
    };
    if source_info.is_directory {
        unpack(envd, &target, chunk_stream).await
    } else {
        write(envd, &target, source_info, chunk_stream).await
    }
}

async fn write(
    envd: &Envd,
    target: &str,
    source_info: &SourceInfo,
    chunk_stream: ChunkStream,
) -> Result<()> {
    let (chunks, outcome) = chunk_stream.split();
    let uploaded = envd
        .upload(target, None, chunks)
        .await
        .with_context(|| target.to_owned());
    outcome.settle(uploaded).await?;
    // Uploads are plain data files; a program should stay one.
    if let Some(mode) = source_info.mode.filter(|mode| mode & 0o111 != 0) {
        set_mode(envd, target, mode).await;
    }
    Ok(())
}

async fn set_mode(envd: &Envd, target: &str, mode: u32) {
    let changed = async {
        let path = envd.stat(target).await?.path;
        let command = Command {
            program: "chmod".to_owned(),
            arguments: vec![format!("{mode:o}"), path],
            ..Command::default()
        };
        end_of(envd.start(&command).await?).await
    };
    match changed.await {
        Ok((0, _)) => {}
        Ok((_, complaint)) => warning(&format!("{target} is not executable: {}", complaint.trim())),
        Err(error) => warning(&format!("{target} is not executable: {error}")),
    }
}

async fn unpack(envd: &Envd, target: &str, mut chunk_stream: ChunkStream) -> Result<()> {
    let begun = async {
        envd.make_directory(target).await?;
        let folder = envd.stat(target).await?.path;
        // Owned by the account, not by whoever has the same number here.
        tar(envd, &["-xof", "-", "-C", &folder], true).await
    };
    let process = match begun.await {
        Ok(process) => process,
        Err(error) => return chunk_stream.settle(Err(error)).await,
    };
    let pid = process.pid();
    let ending = tokio::spawn(end_of(process));
    let input = envd.input(pid, InputKind::Stdin);
    let mut sent = Ok(());
    loop {
        match chunk_stream.next().await {
            Ok(Some(chunk)) => {
                if !input.send(chunk).await {
                    break;
                }
            }
            Ok(None) => break,
            Err(error) => {
                sent = Err(error.into());
                break;
            }
        }
    }
    if sent.is_ok() {
        // When tar ended early its own words are better than ours.
        input.finish().await.ok();
    }
    envd.close_stdin(pid).await.ok();
    let (code, complaint) = ending.await??;
    let unpacked = if code == 0 {
        sent
    } else {
        sent.and(Err(failed(code, &complaint)))
    };
    chunk_stream.settle(unpacked).await
}

async fn tar(envd: &Envd, arguments: &[&str], stdin: bool) -> Result<ProcessStream> {
    let command = Command {
        program: "tar".to_owned(),
        arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
        stdin,
        ..Command::default()
    };
    envd.start(&command)
        .await
        .context("folders are copied with the sandbox's tar")
}

/// The exit code and what was said on stderr.
async fn end_of(mut process: ProcessStream) -> Result<(u8, String)> {
    let mut complaint = String::new();
    while let Some(event) = process.next().await? {
        match event {
            Event::Stderr(text) => keep(&mut complaint, &text),
            Event::End(end) => return Ok((end.shell_status(), complaint)),
            Event::Stdout(_) | Event::Pty(_) => {}
        }
    }
    Err(anyhow!("the process in the sandbox vanished"))
}

fn keep(complaint: &mut String, text: &[u8]) {
    let room = MAX_COMPLAINT.saturating_sub(complaint.len());
    complaint.extend(String::from_utf8_lossy(text).chars().take(room));
}

fn failed(code: u8, complaint: &str) -> anyhow::Error {
    let said = complaint.trim();
    let message = if said.is_empty() {
        format!("tar in the sandbox ended with {code}")
    } else {
        format!("tar in the sandbox: {said}")
    };
    advice(message, "may the account write there? --user root may")
}
