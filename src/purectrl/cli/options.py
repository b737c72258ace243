"""The options of the commands. Settings of problems and algorithms are declared where they are used."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from purectrl.core.settings import Settings

Engines = Literal["local", "ray", "submitit"]


Trackers = tuple[Literal["tensorboard", "wandb"], ...]


@dataclass(frozen=True, kw_only=True)
class RunOptions(Settings):
    """Options of `run`."""

    out: Path
    """Directory of the run, new or empty."""
    algorithm: str | None = None
    """The algorithm; `purectrl list` shows them. By default pure-auto on systems with states and controls."""
    seed: int = 0
    """The same seed gives the same numbers."""
    measurements: int | None = None
    """N, the measurement budget; by default that of the problem."""
    rollouts: int | None = None
    """The largest number of rollouts; by default unlimited."""
    max_seconds: float | None = None
    """Stop after this many seconds, at the end of a step; `purectrl resume` continues the run. By default unlimited."""
    preset: str | None = None
    """Named settings of the algorithm on this problem; `purectrl list` shows them. Flags override it."""
    config: Path | None = None
    """The config.json of another run, whose settings are used; flags override it."""
    trust: bool = False
    """Allow importing the code, and downloading the weights, that the file of --config names."""
    quiet: bool = False
    """Show no progress."""
    track: Trackers = ()
    """Live view of the run in TensorBoard or Weights & Biases; needs the extra of that name."""
    force: bool = False
    """Run even if the estimated memory is more than the machine has."""


@dataclass(frozen=True, kw_only=True)
class SweepOptions(Settings):
    """Options of `sweep`."""

    algorithms: tuple[str, ...]
    """The algorithms; `purectrl list` shows them."""
    out: Path
    """Directory of the sweep; each run is written to PROBLEM/ALGORITHM-seedS in it."""
    seeds: str = "0:5"
    """A range such as 0:5 (without its end), or numbers separated by commas."""
    measurements: int | None = None
    """N, the measurement budget; by default that of each problem."""
    rollouts: int | None = None
    """The largest number of rollouts; by default unlimited."""
    preset: str | None = None
    """Named settings of the algorithm on this problem; `purectrl list` shows them. Flags override it."""
    config: Path | None = None
    """The config.json of another run, whose settings are used; flags override it."""
    trust: bool = False
    """Allow importing the code, and downloading the weights, that the file of --config names."""
    engine: Engines = "local"
    """local: this machine's cores. ray: the cluster that RAY_ADDRESS names, else a local Ray. submitit: Slurm."""
    workers: int | None = None
    """Number of runs at the same time; by default one per core."""
    batch: bool = False
    """Compute the seeds of a setting together where possible, many times faster; results may differ in the last bit."""
    quiet: bool = False
    """Show no progress."""
    track: Trackers = ()
    """Live view of each run in TensorBoard or Weights & Biases; needs the extra of that name."""
    force: bool = False
    """Run even if the estimated memory is more than the machine has."""


@dataclass(frozen=True, kw_only=True)
class PaperOptions(Settings):
    """Options of `paper`."""

    out: Path
    """Directory; the item is written to ITEM in it."""
    quick: bool = False
    """Fewer seeds; each run is the same."""
    engine: Engines = "local"
    """local: this machine's cores. ray: the cluster that RAY_ADDRESS names, else a local Ray. submitit: Slurm."""
    workers: int | None = None
    """Number of runs at the same time; by default one per core."""
    quiet: bool = False
    """Show no progress."""


@dataclass(frozen=True, kw_only=True)
class LeagueOptions(Settings):
    """Options of `league`."""

    algorithms: tuple[str, ...]
    """The algorithms to compare; `purectrl list` shows them. `random` and, with equations, `known-model` are added."""
    out: Path
    """Directory; the league is written to league in it."""
    seeds: str = "0:5"
    """A range such as 0:5 (without its end), or numbers separated by commas."""
    measurements: int | None = None
    """N, the measurement budget of every run; by default that of each problem."""
    share: float = 0.95
    """The score that counts as reached: 0 is the return of random control, 1 that with known equations."""
    measurement_price: float | None = None
    """Price of a measurement in the utility; by default that of each problem, and zero if another price is given."""
    rollout_price: float | None = None
    """Price of a rollout."""
    update_price: float | None = None
    """Price of a policy update."""
    engine: Engines = "local"
    """local: this machine's cores. ray: the cluster that RAY_ADDRESS names, else a local Ray. submitit: Slurm."""
    workers: int | None = None
    """Number of runs at the same time; by default one per core."""
    quiet: bool = False
    """Show no progress."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions(Settings):
    """Options of `report`."""

    out: Path = Path("report.html")
    """The page; an earlier report there is replaced."""


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(Settings):
    """Options of `resume`."""

    max_seconds: float | None = None
    """Stop after this many more seconds, at the end of a step. By default unlimited."""
    quiet: bool = False
    """Show no progress."""
    track: Trackers = ()
    """Live view of the run in TensorBoard or Weights & Biases; needs the extra of that name."""
    trust: bool = False
    """Allow importing the code, and downloading the weights, that the run's config.json names."""
    force: bool = False
    """Run even if the estimated memory is more than the machine has."""


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(Settings):
    """Options of `evaluate`."""

    episodes: int | None = None
    """Number of new episodes; by default that of the problem."""
    seed: int = 0
    """Seed of the episodes."""
    video: bool = False
    """Render the policy to DIR/media."""
    trust: bool = False
    """Allow importing the code, and downloading the weights, that the run's config.json names."""
    update: int | None = None
    """The policy after this update; by default the one that the run returned, or the newest of an unfinished run."""


@dataclass(frozen=True, kw_only=True)
class LabelOptions(Settings):
    """Options of `label`."""

    question: str = "How good is this image?"
    """What people are asked about each image."""
    port: int = 0
    """Port of the page on 127.0.0.1; 0 takes a free one."""
    browser: bool = False
    """Open the page in the default browser."""


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Settings):
    """Options of `export`."""

    to: Literal["numpy", "onnx", "jax"]
    """numpy: a Python file and its weights, which need NumPy only. onnx: a model for ONNX Runtime. jax: for jax.export."""
    update: int | None = None
    """The policy after this update; by default the one that the run returned, or the newest of an unfinished run."""
    out: Path | None = None
    """The file to write; by default policy.py, policy.onnx or policy.jax in DIR/policy."""
    trust: bool = False
    """Allow importing the code, and downloading the weights, that the run's config.json names."""


SHORT: Mapping[str, str] = {
    "sampler": "sampler",
    "schedule": "schedule",
    "learner": "learner",
    "output": "output",
    "radius": "learner.radius",
    "renew": "schedule.renew",
    "env": "problem.env",
    "model": "problem.model",
    "reward": "problem.reward",
    "view": "problem.view",
}
"""Flags without a dot for the choices that are made most often."""
