//! A shell as a kernel: an interactive bash without a terminal, driven over pipes.
//!
//! Interactive, because only such a shell gives up its current command at Ctrl-C and goes on. It
//! writes to a pipe of its own before each prompt: that is how the end of a cell is known. What the
//! code prints, to either stream, is one stream, in order.

use std::{
    cell::{Cell, RefCell},
    fs, io,
    os::fd::OwnedFd,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    rc::Rc,
    time::Duration,
};

use rustix::{
    fs::{CWD, FileType, Mode as FileMode, mknodat},
    pipe::{PipeFlags, pipe_with},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe::{OpenOptions, Receiver, Sender},
    sync::{Mutex, mpsc},
    task::JoinHandle,
    time::timeout,
};

use super::{Event, Execution, KernelLost, Mode, Outcome, Process, Step, Stream, launcher::Folder};
use crate::language::shell_quoted;

const START: Duration = Duration::from_secs(20);
const CHUNK: usize = 64 << 10;
/// Output belongs to the event before it when it follows so closely.
const TOGETHER: Duration = Duration::from_millis(2);

pub(crate) struct Kernel {
    process: Process,
    input: Mutex<Sender>,
    shared: Rc<Shared>,
    task: JoinHandle<()>,
    count: Cell<u64>,
    _folder: Folder,
}

#[derive(Default)]
struct Shared {
    current: RefCell<Option<mpsc::Sender<Step>>>,
    lost: Cell<bool>,
}

impl Kernel {
    pub(super) async fn start(cwd: &Path, folder: Folder) -> io::Result<Self> {
        let prompts = folder.path().join("prompts");
        mknodat(
            CWD,
            &prompts,
            FileType::Fifo,
            FileMode::from_raw_mode(0o600),
            0,
        )?;
        // Read and write: it never ends, however often the shell opens and closes it.
        let mut prompts_source = OpenOptions::new()
            .read_write(true)
            .open_receiver(&prompts)?;
        let rc = folder.path().join("bashrc");
        fs::write(&rc, start_file(&prompts))?;

        let (input, input_sink) = pipe_with(PipeFlags::CLOEXEC)?;
        let (output_source, output) = pipe_with(PipeFlags::CLOEXEC)?;
        let child = Command::new("bash")
            .args(["--noprofile", "--noediting", "--rcfile"])
            .arg(&rc)
            .arg("-i")
            .current_dir(cwd)
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(Stdio::from(output))
            .process_group(0)
            .spawn()?;
        let process = Process::adopt(&child)?;
        let input = Sender::from_owned_fd(input_sink)?;
        let mut output = receiver(output_source)?;

        // The first prompt says that the shell is up; what it printed before is ignored.
        let first = async {
            let mut nothing = vec![0; CHUNK];
            loop {
                tokio::select! {
                    read = output.read(&mut nothing) => {
                        if read? == 0 {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                    }
                    prompt = prompts_source.read_u8() => return prompt.map(|_| ()),
                }
            }
        };
        timeout(START, first)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        while matches!(output.try_read(&mut [0; 4096]), Ok(1..)) {}

        let shared = Rc::new(Shared::default());
        let task = tokio::task::spawn_local(read(Rc::clone(&shared), output, prompts_source));
        Ok(Self {
            process,
            input: Mutex::new(input),
            shared,
            task,
            count: Cell::new(0),
            _folder: folder,
        })
    }

    pub(super) async fn execute(&self, code: &str, mode: Mode) -> Result<Execution, KernelLost> {
        let (steps, execution) = Execution::channel();
        if self.shared.lost.get() || self.process.exit().is_some() {
            return Err(KernelLost);
        }
        if mode == Mode::Visible {
            if !code.trim().is_empty() {
                self.count.set(self.count.get() + 1);
            }
            let accepted = Event::Accepted(self.count.get().max(1));
            steps
                .try_send(Step::Event(accepted))
                .map_err(|_| KernelLost)?;
        }
        *self.shared.current.borrow_mut() = Some(steps);
        let code = code.replace('\0', "");
        let line = format!("eval {} </dev/null\n", shell_quoted(&code));
        // A shell that is busy with what an earlier cell left does not read: no wait without end.
        let mut input = self.input.lock().await;
        let sent = timeout(START, input.write_all(line.as_bytes())).await;
        if matches!(sent, Ok(Ok(()))) {
            Ok(execution)
        } else {
            self.shared.lost.set(true);
            Err(KernelLost)
        }
    }

    pub(super) fn process(&self) -> &Process {
        &self.process
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn receiver(pipe: OwnedFd) -> io::Result<Receiver> {
    Receiver::from_owned_fd(pipe)
}

fn start_file(prompts: &Path) -> String {
    let prompts = shell_quoted(&prompts.to_string_lossy());
    format!(
        "PS1= PS2= HISTFILE=\nset +H +m\nshopt -u huponexit checkjobs\n\
         PROMPT_COMMAND=\"builtin printf . >{prompts}\"\n"
    )
}

async fn read(shared: Rc<Shared>, mut output: Receiver, mut prompts: Receiver) {
    let mut chunk = vec![0; CHUNK];
    let mut decoder = Decoder::default();
    loop {
        tokio::select! {
            biased;
            read = output.read(&mut chunk) => match read {
                Ok(0) | Err(_) => break,
                Ok(mut length) => {
                    // A program that writes in small chunks makes one event of them.
                    while length < chunk.len() {
                        match timeout(TOGETHER, output.read(&mut chunk[length..])).await {
                            Ok(Ok(more @ 1..)) => length += more,
                            _ => break,
                        }
                    }
                    send_text(&shared, decoder.decode(&chunk[..length])).await;
                }
            },
            prompt = prompts.read_u8() => {
                if prompt.is_err() {
                    break;
                }
                // All that the cell wrote is in the pipe by now.
                while let Ok(length @ 1..) = output.try_read(&mut chunk) {
                    send_text(&shared, decoder.decode(&chunk[..length])).await;
                }
                send_text(&shared, decoder.rest()).await;
                let current = shared.current.borrow_mut().take();
                if let Some(steps) = current {
                    let _nobody_listens = steps.send(Step::End(Outcome::Done)).await;
                }
            }
        }
    }
    shared.lost.set(true);
    shared.current.borrow_mut().take();
}

async fn send_text(shared: &Shared, text: String) {
    let steps = shared.current.borrow().clone();
    if let Some(steps) = steps.filter(|_| !text.is_empty()) {
        let event = Event::Text(Stream::Stdout, text);
        let _nobody_listens = steps.send(Step::Event(event)).await;
    }
}

/// Text from bytes that arrive in chunks: a character may be split between two of them.
#[derive(Default)]
struct Decoder(Vec<u8>);

impl Decoder {
    fn decode(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.0);
        all.extend_from_slice(bytes);
        let cut = incomplete_tail(&all);
        self.0 = all.split_off(all.len() - cut);
        String::from_utf8_lossy(&all).into_owned()
    }

    fn rest(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.0)).into_owned()
    }
}

/// How many bytes at the end begin a character that is not complete.
fn incomplete_tail(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        let length = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return 0,
        };
        return if length > back { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_split_between_pieces_is_whole() {
        let bytes = "aé漢😀z".as_bytes();
        for cut in 0..=bytes.len() {
            let mut decoder = Decoder::default();
            let mut text = decoder.decode(&bytes[..cut]);
            text += &decoder.decode(&bytes[cut..]);
            text += &decoder.rest();
            assert_eq!(text, "aé漢😀z", "cut at {cut}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_and_not_kept_for_ever() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.decode(b"\xff\xfe\x80"), "\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(decoder.decode(b"\xe6"), "");
        assert_eq!(decoder.rest(), "\u{fffd}");
    }
}
