"""What a storm is asked to be. As a program it only tells what is wrong with its words, before
anything is built or installed for them: it needs nothing but Python.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

# No storm took place.
UNUSABLE = 2
# A server runs at most 4,096 sandboxes, and each create may be there twice: one that was cut may have made a
# sandbox, and is asked for again.
MOST_CREATES = 2000
# Of one create, with all that a round does; on two cores. And what a power cut adds to it.
SECONDS, CUT_SECONDS = 0.04, 0.012


class Options(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(UNUSABLE, f"storm: {message} (see ./storm --help)\n")


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def creates(text: str) -> int:
    number = positive(text)
    if number > MOST_CREATES:
        raise argparse.ArgumentTypeError(
            f"{number} are more than {MOST_CREATES}: a server holds 4,096 sandboxes, and a create that was cut "
            "may have made one and is asked for again"
        )
    return number


def program(text: str) -> Path:
    path = Path(text).resolve()
    if not path.is_file() or not os.access(path, os.X_OK):
        raise argparse.ArgumentTypeError(f"{text} is not a program")
    return path


def new_file(text: str) -> Path:
    path = Path(text).resolve()
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no place for a file: it needs a folder that exists, and a name")
    return path


def parser() -> Options:
    # The script looks for --bin itself, so it has to be written out.
    options = Options(prog="./storm", allow_abbrev=False)
    options.add_argument("--rounds", type=positive, default=50)
    options.add_argument("--round", type=positive, help="only this one, as another run numbered it")
    options.add_argument("--creates", type=creates, default=1000, help="at once, in each round")
    options.add_argument("--seed", type=int, help="of the plan; drawn and printed when left out")
    options.add_argument("--power-cuts", action=argparse.BooleanOptionalAction, default=True, help="one in each round")
    options.add_argument("--bin", type=program, help="the server's program, instead of SOULBOX_BIN")
    options.add_argument("--json", type=new_file, metavar="FILE", help="write the counts there too")
    return options


def duration(rounds: int, creates: int, power_cuts: bool) -> str:
    """How long it will take, more or less."""
    seconds = rounds * creates * (SECONDS + (CUT_SECONDS if power_cuts else 0))
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{max(seconds, 10):.0f} s"


if __name__ == "__main__":
    parser().parse_args()
    sys.exit(0)
