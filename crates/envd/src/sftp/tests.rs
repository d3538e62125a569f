//! Requests as a client writes them, against a folder of this machine.

use std::{
    collections::VecDeque,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use super::serve;

struct Request(Vec<u8>);

fn request(kind: u8, id: u32) -> Request {
    Request(vec![kind]).number(id)
}

impl Request {
    fn number(mut self, number: u32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn long(mut self, number: u64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn bytes(self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        let mut request = self.number(u32::try_from(bytes.len()).unwrap());
        request.0.extend_from_slice(bytes);
        request
    }

    fn path(self, path: &Path) -> Self {
        self.bytes(path.to_str().unwrap())
    }
}

/// The responses, each without its length.
fn exchange(requests: Vec<Request>) -> VecDeque<Vec<u8>> {
    let mut input = Vec::new();
    for Request(body) in requests {
        input.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
        input.extend(body);
    }
    let mut output = Vec::new();
    serve(input.as_slice(), &mut output).unwrap();
    let mut answers = VecDeque::new();
    let mut rest = output.as_slice();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (answer, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        answers.push_back(answer.to_vec());
        rest = after;
    }
    answers
}

fn status(answer: &[u8]) -> u32 {
    assert_eq!(answer[0], 101, "{answer:?}");
    u32::from_be_bytes(answer[5..9].try_into().unwrap())
}

/// Handles are numbered from the first on.
fn handle(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

#[test]
fn a_file_is_written_at_offsets_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a file");
    let open = |id, flags| request(3, id).path(&file).number(flags);
    let answers = exchange(vec![
        request(1, 3),
        open(1, 0x02 | 0x08 | 0x10).number(4).number(0o640),
        request(6, 2).bytes(handle(0)).long(5).bytes(b"world"),
        request(6, 3).bytes(handle(0)).long(0).bytes(b"hello"),
        request(10, 4)
            .bytes(handle(0))
            .number(8)
            .number(1000)
            .number(2000),
        request(4, 5).bytes(handle(0)),
        open(6, 0x01).number(0),
        request(5, 7).bytes(handle(1)).long(3).number(100),
        request(5, 8).bytes(handle(1)).long(10).number(100),
        request(4, 9).bytes(handle(1)),
        request(4, 10).bytes(handle(1)),
    ]);
    assert_eq!(answers[0][..5], [2, 0, 0, 0, 3]);
    assert_eq!(answers[1][0], 102);
    for each in [2, 3, 4, 5, 9] {
        assert_eq!(status(&answers[each]), 0);
    }
    assert_eq!(answers[7][0], 103);
    assert_eq!(&answers[7][9..], b"loworld");
    assert_eq!(status(&answers[8]), 1, "the end of the file");
    assert_eq!(status(&answers[10]), 4, "closed twice");
    let metadata = fs::metadata(&file).unwrap();
    assert_eq!((metadata.mode() & 0o777, metadata.mtime()), (0o640, 2000));
}

#[test]
fn folders_are_made_listed_whole_renamed_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("made");
    fs::create_dir(&made).unwrap();
    for number in 0..250 {
        fs::write(made.join(format!("{number}")), "").unwrap();
    }
    let mut requests = vec![request(11, 1).path(&made)];
    requests.extend((2..6).map(|id| request(12, id).bytes(handle(0))));
    let answers = exchange(requests);
    let counts: Vec<u32> = answers
        .iter()
        .filter(|answer| answer[0] == 104)
        .map(|answer| u32::from_be_bytes(answer[5..9].try_into().unwrap()))
        .collect();
    assert_eq!(counts, [100, 100, 50]);
    assert_eq!(status(&answers[4]), 1);

    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    let link = folder.path().join("link");
    let answers = exchange(vec![
        request(14, 1).path(&old).number(4).number(0o700),
        request(18, 2).path(&old).path(&made),
        request(18, 3).path(&old).path(&new),
        request(20, 4).bytes("new").path(&link),
        request(19, 5).path(&link),
        request(9, 6).path(&new).number(4).number(0o711),
        request(13, 7).path(&link),
        request(15, 8).path(&new),
        request(7, 9).path(&new),
        request(16, 10).path(&folder.path().join("made/../later")),
    ]);
    let told: Vec<u32> = [0, 1, 2, 3, 5, 6, 7, 8]
        .map(|each: usize| status(&answers[each]))
        .to_vec();
    assert_eq!(told, [0, 4, 0, 0, 0, 0, 0, 2]);
    assert_eq!(&answers[4][13..16], b"new");
    let real = folder.path().canonicalize().unwrap().join("later");
    let told = String::from_utf8_lossy(&answers[9]).into_owned();
    assert!(told.contains(real.to_str().unwrap()), "{told}");
}

#[test]
fn what_makes_no_sense_is_refused_and_the_session_goes_on() {
    let answers = exchange(vec![
        request(99, 1),
        request(5, 2).bytes(b"no handle"),
        request(3, 3).bytes("/x").number(1),
        Request(vec![5]),
        request(200, 4).bytes("statvfs@openssh.com"),
        request(16, 5).bytes(""),
    ]);
    let told: Vec<u32> = answers
        .iter()
        .take(5)
        .map(|answer| status(answer))
        .collect();
    assert_eq!(told, [8, 4, 5, 5, 8]);
    assert_eq!(answers[5][0], 104);
    assert!(
        serve([0xff; 8].as_slice(), Vec::new()).is_err(),
        "a packet without end"
    );
    assert!(
        serve([0, 0, 0, 9, 1].as_slice(), Vec::new()).is_err(),
        "half a packet"
    );
}

#[test]
fn appending_ignores_offsets_and_what_is_there_can_be_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    fs::write(&file, "one").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let answers = exchange(vec![
        request(3, 1)
            .path(&file)
            .number(0x02 | 0x04 | 0x08)
            .number(0),
        request(6, 2).bytes(handle(0)).long(0).bytes(b" two"),
        request(3, 3)
            .path(&file)
            .number(0x02 | 0x08 | 0x20)
            .number(0),
    ]);
    assert_eq!(status(&answers[1]), 0);
    assert_eq!(status(&answers[2]), 4);
    assert_eq!(fs::read(&file).unwrap(), b"one two");
}
