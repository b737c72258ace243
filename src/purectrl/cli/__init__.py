"""The command line. Exit status: 0 success, 1 something failed on the way, 2 a wrong call, file or answer of a reward,
130 stopped by the user.
"""

import os
import sys
from collections.abc import Sequence

from purectrl import __version__, signals
from purectrl.cli.commands import COMMANDS
from purectrl.core.errors import InputError, PurectrlError, TimeLimit, choose
from purectrl.core.text import printable
from purectrl.runs.progress import warnings_on_one_line

USAGE = """usage: purectrl COMMAND ...

  purectrl list                                   problems, algorithms, and which go together
  purectrl run PROBLEM --algorithm A --out DIR    one run; --seed S, --measurements N, any setting as --part.name value;
                                                  PROBLEM is a name, path/to/file.py:function or module:function;
                                                  the default algorithm on systems with states is pure-auto
  purectrl resume DIR                             continues a stopped run, bit for bit
  purectrl evaluate DIR                           evaluates the learned policy on new episodes; --video renders it
  purectrl label DIR                              a local page for the images that a run with --reward people waits for
  purectrl export DIR --to numpy|onnx|jax         writes the policy to files that need neither JAX nor this package
  purectrl sweep PROBLEM... --algorithms A B --seeds 0:5 --out DIR
                                                  many runs, on all cores or with --engine ray or submitit on a cluster
  purectrl league PROBLEM... --algorithms A B --seeds 0:5 --out DIR
                                                  what each algorithm spends to reach 95 % of the ceiling, in one table
  purectrl report DIR... [--out report.html]      one page that shows and compares all runs in and below DIR
  purectrl paper                                  the paper's figures and tables: what each shows and costs
  purectrl paper ITEM --out DIR                   runs what is missing of one, then draws it; --quick: fewer seeds

`purectrl COMMAND --help` lists the options, `purectrl run PROBLEM --algorithm A --help` every setting.
"""


def main(words: Sequence[str] | None = None) -> int:
    """The program `purectrl`."""
    words = list(sys.argv[1:] if words is None else words)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # Greek letters on a terminal without them
    if not words or words[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if words[0] == "--version":
        print(f"purectrl {__version__}")
        return 0
    try:
        check_words(words)
        with warnings_on_one_line():
            status = COMMANDS[choose("command", words[0], COMMANDS)](words[1:])
        sys.stdout.flush()
        return status
    except TimeLimit as limit:
        print(f"stopped: {limit}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains again at exit
        return 1
    except (KeyboardInterrupt, Exception) as error:
        message, status = _failure(error)
        print(message, file=sys.stderr)
        return status


def check_words(words: Sequence[str]) -> None:
    """Raises unless every word can be a name or a value; most of what is refused here cannot be typed by accident."""
    for number, word in enumerate(words, 1):
        what = f"argument {number}"
        if not word.strip():
            raise InputError(f"{what} is empty")
        if "\0" in word:
            raise InputError(f"{what} contains a null character: {word!r:.60}")
        try:
            word.encode()
        except UnicodeEncodeError:
            raise InputError(f"{what} is not valid UTF-8: {word!r:.60}") from None


def _failure(error: BaseException) -> tuple[str, int]:
    """What to print about an error, at most two lines, and the exit status. An error of the program itself is raised."""
    if isinstance(error, KeyboardInterrupt) or signals.received():
        said = str(error) if isinstance(error, KeyboardInterrupt) else ""
        return f"stopped; {printable(said or 'nothing was written')}", signals.STOPPED
    if isinstance(error, PurectrlError):
        return f"error: {printable(error)}", 2
    if isinstance(error, MemoryError):
        return "error: out of memory; use fewer paths, steps or measurements per episode", 1
    if isinstance(error, OSError):
        place = f": {error.filename}" if error.filename else ""
        return f"error: {printable('; '.join([f'{error.strerror}{place}', *getattr(error, '__notes__', [])]))}", 1
    raise error
