"""The warm process: imports the package once and runs one trial after another, each asked for by a line on its input.

python -m hostile.worker ATTACK BASE
"""

import json
import os
import resource
import shutil
import sys
import traceback
from pathlib import Path

from hostile.attack import CASE, Verdict

MEMORY = 12 * 2**30
"""Bytes of address space of a worker, so that a call that allocates without bound fails instead of the machine."""


def main() -> None:
    """Answers every trial number with its verdict as a line of JSON."""
    from hostile import make

    name, base = sys.argv[1], Path(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anything else prints is no answer
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    attack = make(name)
    base.mkdir(parents=True, exist_ok=True)
    attack.prepare(base)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        number = int(line)
        folder = base / f"trial-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        os.chdir(folder)
        (base / CASE).unlink(missing_ok=True)
        start = _computing()
        try:
            verdict = attack.trial(number, folder)
        except Exception:  # a defect of the attack itself is a failure, too
            verdict = Verdict(f"trial {number}", f"the attack failed: {traceback.format_exc()[-1500:]}")
        os.chdir(base)
        _remove(folder)
        cost = _computing() - start
        print(json.dumps(verdict.as_dict() | {"number": number, "cpu": cost}), file=answers, flush=True)


def _computing() -> float:
    """Seconds of computing of this process and of its children that have ended."""
    usages = [resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _remove(folder: Path) -> None:
    """Removes a trial's directory, whatever modes its entries have."""
    for place, folders, _ in os.walk(folder):
        for name in folders:
            path = Path(place, name)
            if not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
