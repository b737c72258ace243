"""Small real runs for the report page."""

import json
import re

from helpers import purectrl

from purectrl.cli import main
from purectrl.core.keys import Key
from purectrl.experiments import Spec, run
from purectrl.experiments.runner import _line
from purectrl.experiments.store import Store

SMALL = {"measurements": 60, "paths": 8, "steps": 8}


def make(out, experiment="finite", algorithm="pure-base", seed=0, **settings):
    """A finished run."""
    run(Spec.of(experiment, algorithm, seed, **{**SMALL, **settings}), out, quiet=True)
    return out


def stop_half_way(out, algorithm="pure-base", seed=0, **settings):
    """A run that has not finished."""
    spec = Spec.of("finite", algorithm, seed, **{**SMALL, **settings})
    task = spec.build()
    with Store.create(out, spec.as_dict()) as store:
        state = store.restore(task.loop.init(Key.from_seed(seed)), print)
        while state.ledger.measurements < spec.settings.measurements / 2:
            state, record = task.loop.step(state)
            store.append(_line(state, record, task))
        store.checkpoint(state)
    return out


def change(file, **values):
    """Rewrites a JSON file with other values."""
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def records(place):
    """All lines of a run."""
    return [json.loads(line) for line in (place / "records.jsonl").read_text().splitlines()]


def data(page):
    """What a page carries."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
    return json.loads(text)


def report(*directories, out):
    """`purectrl report` as a user types it."""
    return purectrl("report", *directories, "--out", out)


def reported(*directories, out, capsys):
    """Exit status, standard error, and what the page carries, if there is one."""
    status = main(["report", *map(str, directories), "--out", str(out)])
    return status, capsys.readouterr().err, data(out) if out.exists() else None
