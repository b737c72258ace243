"""Small real runs for the report page."""

import json
import re

from helpers import purectrl, small, stopped_run

from purectrl.cli import main
from purectrl.runs.runner import run


def make(out, problem="finite", algorithm="pure-base", seed=0, measurements=60, arguments=None, **overrides):
    """A finished run; `learner__delta=0.2` sets `learner.delta`."""
    run(small(problem, algorithm, seed, measurements, arguments, **overrides), out, quiet=True)
    return out


def stop_half_way(out, algorithm="pure-base", seed=0, measurements=60, **overrides):
    """An unfinished run."""
    spec = small("finite", algorithm, seed, measurements, **overrides)
    return stopped_run(spec, out, until=measurements // 2 // spec.algorithm.sampler.m, at=(measurements // 2,))


def change(file, **values):
    """Changes some values of a JSON file, as somebody would who then removes the checksums of the run."""
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    if (summary := file.with_name("summary.json")).exists():
        content = json.loads(summary.read_text())
        summary.write_text(json.dumps({key: content[key] for key in content if not key.startswith("checksum")}))


def records(place):
    """All records of a run."""
    return [json.loads(line) for line in (place / "records.jsonl").read_text().splitlines()]


def data(page):
    """The JSON data of a page."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
    return json.loads(text)


def report(*directories, out):
    """Runs `purectrl report` as a subprocess."""
    return purectrl("report", *directories, "--out", out)


def reported(*directories, out, capsys):
    """Exit status, standard error, and the JSON data of the page, if it was written."""
    status = main(["report", *map(str, directories), "--out", str(out)])
    return status, capsys.readouterr().err, data(out) if out.exists() else None


def make_control(out, name="tank", seed=0, ends=False):
    """A run on a system with states, whose policy is random: dx/dt = u from x ≈ 1, with reward −x; 40 measurements."""
    import jax
    import jax.numpy as jnp

    import purectrl as pc

    problem = pc.problems.continuous(
        name=name,
        horizon=1.0,
        drift=lambda x, u: jnp.stack([u[0], -x[1]]),
        reward=lambda x, u: -x[0],
        initial=lambda key: jnp.stack([1.0 + 0.05 * jax.random.uniform(key), 1.0]),
        limits={0: (-10.0, 1.1)} if ends else None,
        eval_episodes=3,
        target_return=-0.9,
    )
    pc.run(problem, "random", measurements=40, seed=seed, out=out)
    return out


def say(out, **columns):
    """Adds columns to every record of a run, a list of values each."""
    lines = [record | {name: values[n] for name, values in columns.items()} for n, record in enumerate(records(out))]
    (out / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    change(out / "config.json")  # nothing, but the checksums of the run are removed
