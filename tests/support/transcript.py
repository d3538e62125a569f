"""What the command line prints, compared with text that is kept.

A transcript is a list of commands with all that they printed and their exit codes. What differs from
run to run (ids, times, sizes) is masked; the same id has the same number throughout a transcript.
`SOULBOX_ACCEPT_CLI=1` writes the files anew: look at the difference, and commit it.
"""

import difflib
import os
import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "e2e" / "transcripts"
ACCEPT = "SOULBOX_ACCEPT_CLI"

# In this order: later patterns would match parts of earlier ones.
IDS = [
    ("sandbox", re.compile(r"\bi[a-z0-9]{20}\b")),
    ("uuid", re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")),
    ("secret", re.compile(r"\bsec_[0-9a-f]{32}\b")),
    ("template", re.compile(r"\b(?=[a-z0-9]*[0-9])(?=[a-z0-9]*[a-z])[a-z0-9]{20}\b")),
]
MASKS = [
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?UTC|Z)?"), "<time>"),
    (re.compile(r"\b\d+(\.\d)? [KMGT]iB\b"), "<size>"),
    (re.compile(r"\b\d+ B\b"), "<size>"),
    (re.compile(r"\b\d+ (s|min) ago\b"), "<ago>"),
    (re.compile(r"\bin \d+ (s|min|h)( \d+ (s|min))?(?= |$)", re.M), "in <span>"),
    (re.compile(r"\b\d+\.\d %"), "<share>"),
    (re.compile(r'"spawnCount": \d+'), '"spawnCount": <count>'),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "<server>"),
    (re.compile(r"sbx\.localhost:\d+"), "<domain>"),
    (re.compile(r"\bpid=\d+|\bprocess \d+"), lambda found: re.sub(r"\d+", "<pid>", found[0])),
    # Columns are as wide as what is in them.
    (re.compile(r"(?<=\S) {2,}"), "  "),
    (re.compile(r"[ \t]+$", re.M), ""),
]


class Transcript:
    def __init__(self, server, name: str) -> None:
        self.server = server
        self.path = FOLDER / f"{name}.txt"
        self.lines: list[str] = []
        self.known: dict[str, str] = {}
        self.shown: list[tuple[str, str]] = []

    def run(self, *words: str, **kwargs):
        """A command, with all that it says."""
        done = self.server.cli(*words, **kwargs)
        self.say(words, done.returncode, done.stdout.decode(), done.stderr.decode())
        return done

    def say(self, words, code: int, stdout: str, stderr: str = "") -> None:
        line = " ".join(self.quoted(word) for word in words)
        self.lines.append(f"$ soulbox {line}")
        self.lines += stdout.splitlines()
        self.lines += [f"! {each}" for each in stderr.splitlines()]
        if code != 0:
            self.lines.append(f"= {code}")
        self.lines.append("")

    def also(self, text: str, mask: str) -> None:
        """Masks this text too."""
        self.shown.append((text, mask))

    @staticmethod
    def quoted(word: str) -> str:
        return word if re.fullmatch(r"[\w./:=@%+,-]+", word) else "'" + word.replace("'", "'\\''") + "'"

    def text(self) -> str:
        text = "\n".join(self.lines)
        for plain, mask in self.shown:
            text = text.replace(plain, mask)
        for kind, pattern in IDS:
            text = pattern.sub(lambda found, kind=kind: self.number(kind, found[0]), text)
        for pattern, mask in MASKS:
            text = pattern.sub(mask, text)
        return text.rstrip("\n") + "\n"

    def number(self, kind: str, name: str) -> str:
        if name not in self.known:
            count = sum(each.startswith(f"<{kind} ") for each in self.known.values())
            self.known[name] = f"<{kind} {count + 1}>"
        return self.known[name]

    def compare(self) -> None:
        text = self.text()
        if os.environ.get(ACCEPT):
            FOLDER.mkdir(exist_ok=True)
            self.path.write_text(text)
            return
        kept = self.path.read_text() if self.path.exists() else ""
        if text != kept:
            difference = difflib.unified_diff(kept.splitlines(), text.splitlines(), "kept", "is", lineterm="")
            raise AssertionError(
                "\n".join(difference) + f"\n\nIf that is meant: {ACCEPT}=1, and commit {self.path.name}"
            )
