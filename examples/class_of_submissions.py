"""Thirty submissions in five languages, each in a sandbox of its own, with a verdict for each.

Some never end, some take all memory, some multiply: that is theirs alone.

    pip install e2b
    eval "$(sudo cat /var/lib/soulbox/env)"
    python3 examples/class_of_submissions.py

Needs python3, gcc, perl, bash and awk on the server's machine: the template is made of its /usr.
"""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2b import CommandExitException, Sandbox, Template

HERE = Path(__file__).parent
AT_A_TIME = 8

# The task: read integers, one in a line, and print their sum.
TESTS = [("3\n-5\n44\n", "42"), ("2147483647\n2147483647\n", "4294967294")]

# By the file's ending: the language, how to compile it, how to run it.
LANGUAGES = {
    ".py": ("Python", None, "python3 main.py"),
    ".c": ("C", "gcc -O1 -o main main.c", "./main"),
    ".sh": ("bash", None, "bash main.sh"),
    ".pl": ("Perl", None, "perl main.pl"),
    ".awk": ("awk", None, "awk -f main.awk"),
}


def build() -> None:
    """What every sandbox starts from, and how large each is. The second time nothing is left to do."""
    template = Template(file_context_path=HERE).from_template("base").copy("judge.py", "/opt/judge.py")
    Template.build(template, "class", cpu_count=1, memory_mb=128)


def judge(submission: Path) -> tuple[str, str]:
    """The verdict, and a word about it."""
    _, compiler, program = LANGUAGES[submission.suffix]
    # Whatever it does ends with this block. It has no network: it can ask nobody.
    with Sandbox.create("class", timeout=120, allow_internet_access=False) as sandbox:
        sandbox.files.write(f"main{submission.suffix}", submission.read_text())
        if compiler:
            try:
                sandbox.commands.run(compiler, timeout=60)
            except CommandExitException as failed:
                return "compile error", line_with("error", failed.stderr)
        for number, (given, expected) in enumerate(TESTS, 1):
            verdict, word = attempt(sandbox, program, given, expected)
            if verdict != "accepted":
                return verdict, f"test {number}: {word}"
        return "accepted", ""


def attempt(sandbox: Sandbox, program: str, given: str, expected: str) -> tuple[str, str]:
    sandbox.files.write("/tmp/input", given, user="root")
    used_up = False
    try:
        ended = sandbox.commands.run(f"python3 /opt/judge.py {program}", user="root", timeout=60)
    except CommandExitException as failed:
        # When the kernel killed something for lack of memory, the sandbox says so.
        used_up = "out of memory" in (failed.error or "")
        ended = failed
    if not ended.stdout:
        raise RuntimeError(f"the judge itself failed: {ended.stderr}")
    told = json.loads(ended.stdout)
    if told["processes"] > 8 or "Resource temporarily unavailable" in told["errors"]:
        return "too many processes", "more than it may have"
    if used_up:
        return "memory limit", "more than 128 MiB"
    if told["code"] in (None, -24, -9):  # still there after 10 s, or ended by the limit of 2 s of cpu
        return "time limit", "it does not end"
    if told["code"] != 0:
        return "runtime error", line_with("", told["errors"])
    if told["output"].strip() != expected:
        return "wrong answer", f"{told['output'].strip()[:20]} instead of {expected}"
    return "accepted", ""


def line_with(word: str, text: str) -> str:
    """The last such line, shortened: what a student looks at first."""
    return next((each.strip()[:60] for each in reversed(text.splitlines()) if word in each), "")


build()
submissions = sorted((HERE / "submissions").iterdir())
with ThreadPoolExecutor(AT_A_TIME) as pool:
    results = list(pool.map(judge, submissions))
for submission, (verdict, word) in zip(submissions, results):
    print(f"{submission.stem:5} {LANGUAGES[submission.suffix][0]:7} {verdict:19} {word}".rstrip())
print(", ".join(f"{count} {verdict}" for verdict, count in Counter(each for each, _ in results).most_common()))
