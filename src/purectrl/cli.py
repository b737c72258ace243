"""The command line. Each command is a thin layer over `purectrl.runs`, `purectrl.report` and `purectrl.paper`.

Exit status: 0 success, 1 something failed on the way, 2 a wrong call, file or answer of a reward, 130 stopped by the user.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from purectrl import __version__, signals
from purectrl.algorithms import ALGORITHMS, PRESETS, compatible
from purectrl.core.errors import InputError, PurectrlError, TimeLimit, choose
from purectrl.core.output_paths import require_creatable
from purectrl.core.settings import Settings
from purectrl.core.text import VALUE, printable
from purectrl.problems import PROBLEMS
from purectrl.runs import flags
from purectrl.runs.flags import Arguments
from purectrl.runs.progress import warnings_on_one_line

if TYPE_CHECKING:  # what these modules import is not needed to list names or to refuse a mistyped one
    from purectrl.core.algorithm import Algorithm
    from purectrl.core.problem import Source
    from purectrl.runs.spec import RunSpec
    from purectrl.runs.sweep import Engine, Outcome
    from purectrl.runs.tracking import TrackerKind

USAGE = """usage: purectrl COMMAND ...

  purectrl list                                   problems, algorithms, and which go together
  purectrl run PROBLEM --algorithm A --out DIR    one run; --seed S, --measurements N, any setting as --part.name value;
                                                  PROBLEM is a name, path/to/file.py:function or module:function
  purectrl resume DIR                             continues a stopped run, bit for bit
  purectrl evaluate DIR                           evaluates the learned policy on new episodes; --video renders it
  purectrl label DIR                              a local page for the images that a run with --reward people waits for
  purectrl export DIR --to numpy|onnx|jax         writes the policy to files that need neither JAX nor this package
  purectrl sweep PROBLEM... --algorithms A B --seeds 0:5 --out DIR
                                                  many runs, on all cores or with --engine ray on a cluster
  purectrl report DIR... [--out report.html]      one page that shows and compares all runs in and below DIR
  purectrl paper                                  the paper's figures and tables: what each shows and costs
  purectrl paper ITEM --out DIR                   runs what is missing of one, then draws it; --quick: fewer seeds

`purectrl COMMAND --help` lists the options, `purectrl run PROBLEM --algorithm A --help` every setting.
"""

Engines = Literal["local", "ray"]
Trackers = tuple[Literal["tensorboard", "wandb"], ...]


@dataclass(frozen=True, kw_only=True)
class RunOptions(Settings):
    """Options of `run`."""

    out: Path
    """Directory of the run, new or empty."""
    algorithm: str
    """The algorithm; `purectrl list` shows them."""
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
    """local: this machine's cores. ray: the cluster that RAY_ADDRESS names, else a local Ray."""
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
    """local: this machine's cores. ray: the cluster that RAY_ADDRESS names, else a local Ray."""
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


def list_command(words: Sequence[str]) -> int:
    """`purectrl list`."""
    if words:
        raise InputError(f"list takes no arguments, got {words[0]!r:.60}")
    print("problems, and the algorithms that work on them")
    for name, entry in PROBLEMS.items():
        print(f"  {name:20}{entry.about}")
        print(f"  {'':20}  {', '.join(found for found in ALGORITHMS if compatible(found, entry.offers))}")
    print("  file.py:function    your own problem, see docs/your-own-system.md")
    print("\nalgorithms")
    for name, entry in ALGORITHMS.items():
        print(f"  {name:20}{entry.about}")
    print("\npresets, --preset NAME")
    for problem, presets in PRESETS.items():
        for number, (name, preset) in enumerate(presets.items()):
            print(f"  {name:20}{problem}{' (default)' if number == 0 else ''}: {preset.about}")
    print("\n`purectrl run PROBLEM --algorithm A --help` lists samplers, schedules and every other setting.")
    return 0


def run_command(words: Sequence[str]) -> int:
    """`purectrl run`."""
    arguments = flags.split(words)
    if not arguments.positional and arguments.help:
        print(f"usage: purectrl run PROBLEM --algorithm A --out DIR [options]\n\nproblems: {', '.join(PROBLEMS)}\n")
        print(flags.describe_command(RunOptions))
        return 0
    (reference,) = _positional(arguments, "run", "a problem", PROBLEMS, most=1)
    if arguments.help:
        print(_describe_run(reference, arguments))
        return 0
    _require_algorithms(arguments, "algorithm", [reference])
    options = flags.parse(RunOptions, arguments, SHORT, f"run {reference}", nested=True)
    from purectrl.runs.runner import run

    spec = _spec(reference, options.algorithm, options, arguments, options.seed)
    finished = run(spec, options.out, options.quiet, _trackers(options.track), options.force, options.max_seconds)
    _show(finished.summary, options.out)
    return 0


def sweep_command(words: Sequence[str]) -> int:
    """`purectrl sweep`."""
    arguments = flags.split(words)
    if arguments.help:
        print("usage: purectrl sweep PROBLEM... --algorithms A B --seeds 0:5 --out DIR [options]\n")
        print(flags.describe_command(SweepOptions))
        return 0
    references = _positional(arguments, "sweep", "a problem", PROBLEMS)
    _require_algorithms(arguments, "algorithms", references)
    options = flags.parse(SweepOptions, arguments, SHORT, "sweep", nested=True)
    from purectrl.runs.memory import require_memory
    from purectrl.runs.sweep import parse_seeds, sweep

    seeds = parse_seeds(options.seeds)
    require_creatable(options.out)
    pairs = [
        _spec(problem, algorithm, options, arguments, 0) for problem in references for algorithm in options.algorithms
    ]
    workers = min(options.workers or os.cpu_count() or 1, len(pairs) * len(seeds)) if options.engine == "local" else 1
    for spec in pairs:
        require_memory(spec, options.force, copies=workers)
        spec.compose()  # what cannot work is refused before anything runs
    specs = [spec.with_seed(seed) for spec in pairs for seed in seeds]
    engine = _engine(options.engine, options.workers, options.batch)
    outcomes = sweep(specs, options.out, engine, _trackers(options.track))
    finished = follow(outcomes, len(specs), options.out, options.quiet)
    print(f"{finished} of {len(specs)} runs finished in {options.out}")
    return 0 if finished == len(specs) else 1


def resume_command(words: Sequence[str]) -> int:
    """`purectrl resume`."""
    directory, options = _directory("resume", ResumeOptions, words)
    from purectrl.runs.runner import resume

    limits = {"force": options.force, "max_seconds": options.max_seconds}
    _show(resume(directory, options.quiet, _trackers(options.track), options.trust, **limits), directory)
    return 0


def evaluate_command(words: Sequence[str]) -> int:
    """`purectrl evaluate`."""
    directory, options = _directory("evaluate", EvaluateOptions, words)
    from purectrl.runs.runner import evaluate

    result = evaluate(directory, options.episodes, options.seed, options.video, options.trust, update=options.update)
    print(f"{result['episodes']} new episodes (seed {result['seed']}): {_metrics(result['metrics'])}")
    if result["written"]:
        print("wrote", ", ".join(str(directory / name) for name in ("evaluation.json", *result.get("media", ()))))
    return 0


def label_command(words: Sequence[str]) -> int:
    """`purectrl label`."""
    directory, options = _directory("label", LabelOptions, words)
    from purectrl.labels import serve

    def announce(url: str) -> None:
        print(f"label at {url}\nCtrl-C ends it; every label is kept at once in {directory / 'labels'}", flush=True)
        if options.browser:
            import webbrowser

            webbrowser.open(url)

    with signals.unwinding():
        count = serve(directory, options.question, options.port, announce)
    print(f"the run in {directory} has finished: {count} labels")
    return 0


def export_command(words: Sequence[str]) -> int:
    """`purectrl export`."""
    directory, options = _directory("export", ExportOptions, words)
    from purectrl.runs.export import export_policy

    files = export_policy(directory, options.to, options.update, options.out, options.trust)
    print("wrote", ", ".join(f"{path} ({path.stat().st_size / 1e3:.0f} kB)" for path in files))
    return 0


def report_command(words: Sequence[str]) -> int:
    """`purectrl report`."""
    arguments = flags.split(words)
    if arguments.help:
        print(f"usage: purectrl report DIR... [options]\n\n{flags.describe_command(ReportOptions)}")
        return 0
    directories = [_readable(word) for word in _positional(arguments, "report", "a directory", ())]
    options = flags.parse(ReportOptions, arguments, command="report")
    from purectrl.report.page import write_page

    with signals.unwinding():
        written = write_page(directories, options.out)
    for note in written.notes:
        print(f"note: {printable(note)}", file=sys.stderr)
    for problem in written.problems:
        print(f"left out: {printable(problem)}", file=sys.stderr)
    size = options.out.stat().st_size / 1e6
    print(f"wrote {options.out}: {written.runs} run{'' if written.runs == 1 else 's'}, {size:.1f} MB")
    return 1 if written.problems else 0


def paper_command(words: Sequence[str]) -> int:
    """`purectrl paper`."""
    from purectrl.paper import ITEMS, describe_items, load_item, make_item

    arguments = flags.split(words)
    if not words:
        print(describe_items())
        return 0
    if arguments.help:
        print(f"usage: purectrl paper ITEM --out DIR [options]\n\nitems: {', '.join(ITEMS)}\n")
        print(flags.describe_command(PaperOptions))
        return 0
    (name,) = _positional(arguments, "paper", "an item", ITEMS, most=1)
    choose("item", name, ITEMS)
    options = flags.parse(PaperOptions, arguments, command=f"paper {name}")
    if (given := arguments.flags.keys() & {"engine", "workers", "quick"}) and not load_item(name).groups:
        raise InputError(f"--{min(given)} has no effect: {name} has no runs")
    engine = _engine(options.engine, options.workers, batch=True)
    return make_item(name, options.out, options.quick, engine, options.quiet, follow)


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


def _positional(
    arguments: Arguments, command: str, what: str, known: Iterable[str], most: int | None = None
) -> list[str]:
    if not arguments.positional:
        names = ", ".join(known)
        raise InputError(f"{command} needs {what} first{f', one of: {names}' if names else ''}")
    if most is not None and len(arguments.positional) > most:
        raise InputError(f"{command} takes {what}, got another word: {arguments.positional[most]!r:.60}")
    return list(arguments.positional)


def _require_algorithms(arguments: Arguments, flag: str, references: Sequence[str]) -> None:
    """Raises unless problems have known names and an algorithm is named; says which ones would work."""
    shipped = [choose("problem", name, PROBLEMS) for name in references if ":" not in name]
    if not arguments.repeated.get(flag):
        works = [name for name in ALGORITHMS if all(compatible(name, PROBLEMS[one].offers) for one in shipped)]
        where = f" that work on {' and '.join(shipped)}" if shipped else ""
        raise InputError(f"--{flag} is missing: name one of those{where}: {', '.join(works or ALGORITHMS)}")


def _directory(command: str, kind: type[Any], words: Sequence[str]) -> tuple[Path, Any]:
    arguments = flags.split(words)
    if arguments.help:
        print(f"usage: purectrl {command} DIR [options]\n\n{flags.describe_command(kind)}")
        raise SystemExit(0)
    (directory,) = _positional(arguments, command, "the directory of a run", (), most=1)
    return _readable(directory), flags.parse(kind, arguments, command=command)


def _readable(word: str) -> Path:
    """The path of something to read; whether it is there is found out later, but what cannot be there is refused now."""
    try:
        Path(word).exists()
    except OSError as error:
        raise InputError(f"{word!r:.60} cannot be read: {error.strerror}") from None
    return Path(word)


def _source(reference: str, arguments: Arguments, config_arguments: Mapping[str, Any]) -> "Source":
    """The problem with the arguments given as --problem.NAME; those of a --config file are replaced by typed ones."""
    from purectrl import problems
    from purectrl.core.problem import Source
    from purectrl.core.references import is_reference, normalized

    reference = normalized(reference) if is_reference(reference) else choose("problem", reference, PROBLEMS)
    typed = {}
    for flag, words in arguments.flags.items():
        path = SHORT.get(flag, flag)
        if path.startswith("problem."):
            name = path.removeprefix("problem.").replace("-", "_")
            typed[name] = problems.parse_argument(reference, name, words)
    return Source(reference, {**config_arguments, **typed})


def _spec(reference: str, algorithm: str, options: Any, arguments: Arguments, seed: int) -> "RunSpec":
    """What to run: the named algorithm on the problem, then a --config file, then flags."""
    from purectrl.core.ledger import Budget
    from purectrl.core.problem import Source
    from purectrl.runs.spec import RunSpec, check_trust, problem_arguments

    config = _read_config(options.config)
    source = _source(reference, arguments, problem_arguments(config))
    if options.config is not None:
        flagged = {SHORT.get(flag, flag).removeprefix("problem.").replace("-", "_") for flag in arguments.flags}
        kept = {name: value for name, value in problem_arguments(config).items() if name not in flagged}
        recorded = Source(source.reference, kept)
        check_trust(config, recorded, options.config, options.trust, typed=source.reference)
    spec = RunSpec(source, _algorithm(algorithm, source, arguments, config, options.preset), Budget(1), seed)
    budget = config.get("budget", {})
    given = [options.measurements, budget.get("measurements"), spec.load_problem().measurements]
    measurements = next(number for number in given if number is not None)
    rollouts = budget.get("rollouts") if options.rollouts is None else options.rollouts
    return RunSpec(source, spec.algorithm, Budget(measurements, rollouts), seed)


def _algorithm(
    name: str, source: "Source", arguments: Arguments, config: Mapping[str, Any], preset: str | None
) -> "Algorithm":
    from purectrl import problems
    from purectrl.algorithms import named
    from purectrl.runs.spec import PARTS, Draft, algorithm_from_plain

    choose("algorithm", name, ALGORITHMS)
    problem = problems.build(source)
    if config and preset is not None:
        raise InputError("--preset and --config both give all settings; use one of them")
    base = algorithm_from_plain(config["algorithm"]) if config else named(name, problem, preset)
    if base.name != name:
        raise InputError(f"--config is of a run with {base.name!r}, not with {name!r}; use the same algorithm")
    draft = Draft(base)
    for part in PARTS:
        if (chosen := arguments.one(part)) is not None:
            draft.choose(part, chosen)
    typed = [path for path in (SHORT.get(flag, flag) for flag in arguments.flags) if "." in path]
    for flag, words in arguments.flags.items():
        path = SHORT.get(flag, flag)
        if path in typed and not path.startswith("problem."):
            draft.set_text(path, words)
    built = draft.build()
    for path, reason in built.learner.unused(problem, built.sampler).items():
        if f"learner.{path}" in [one.replace("-", "_") for one in typed]:
            raise InputError(f"--learner.{path.replace('_', '-')} has no effect: {reason}")
    return built


def _read_config(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    from purectrl.core.io import read_json

    config = read_json(file, follow=True)
    objects = ("problem", "algorithm", "budget")
    if not isinstance(config, dict) or not all(isinstance(config.get(name), dict) for name in objects):
        raise InputError(f"--config {file}: expected the config.json of a run")
    return config


def _describe_run(reference: str, arguments: Arguments) -> str:
    """Every setting of a problem and, if one is named, of an algorithm on it."""
    from purectrl import problems
    from purectrl.runs.spec import PARTS, component_name

    lines = [
        f"usage: purectrl run {reference} --algorithm A --out DIR [options]",
        "",
        flags.describe_command(RunOptions),
    ]
    lines += ["", "problem", flags.describe_function("problem", problems.function(reference))]
    name = arguments.one("algorithm")
    if name is None:
        return "\n".join([*lines, "", "Name an algorithm to see its settings: --algorithm A --help"])
    source = _source(reference, arguments, {})
    algorithm = _algorithm(name, source, arguments, {}, arguments.one("preset"))
    for part in PARTS:
        value = getattr(algorithm, part)
        choices = ", ".join(PARTS[part].names)
        lines += ["", f"{part}: {component_name(part, type(value))} (--{part} NAME: {choices}, or file.py:Class)"]
        lines += [flags.describe_settings(part, value)]
    return "\n".join(lines)


def _engine(name: str, workers: int | None, batch: bool) -> "Engine":
    from purectrl.runs.sweep import local, on_ray

    return {"local": local, "ray": on_ray}[name](workers, batch)


def _trackers(names: Sequence[str]) -> "tuple[TrackerKind, ...]":
    """The trackers called `names`, each once; one that is not installed is refused before anything runs."""
    from purectrl.runs.tracking import TRACKERS

    return tuple(TRACKERS[name]() for name in dict.fromkeys(names))


def follow(outcomes: "Iterable[Outcome]", total: int, out: Path, quiet: bool) -> int:
    """Prints how each run ended, and returns how many finished."""
    finished = 0
    for outcome in outcomes:
        name = os.path.relpath(outcome.job.out, out)
        if outcome.summary is None:
            print(f"failed {printable(f'{name}: {outcome.error}')}", file=sys.stderr, flush=True)
            continue
        finished += 1
        if not quiet:
            print(f"[{finished}/{total}] {name}: {_metrics(outcome.summary['metrics'])}", flush=True)
    return finished


def _metrics(metrics: Mapping[str, Any]) -> str:
    """The metrics that fit on a line."""
    shown = ((name, value) for name, value in metrics.items() if isinstance(value, bool | int | float))
    texts = (f"{name} {value}" if isinstance(value, bool | int) else f"{name} {value:.4g}" for name, value in shown)
    return printable(", ".join(printable(text, VALUE) for text in texts))


def _show(summary: Mapping[str, Any], out: Path) -> None:
    """Prints what a user wants to know at the end of a run."""
    from purectrl.core.ledger import Ledger
    from purectrl.runs.progress import ledger_line

    ledger = Ledger.from_dict(summary["ledger"])
    status, problem, algorithm, seed = (
        printable(summary[name], VALUE) for name in ("status", "experiment", "algorithm", "seed")
    )
    print(f"{status}: {problem}, {algorithm}, seed {seed}")
    print(f"spent: {ledger_line(ledger)}, {ledger.seconds.total:.1f} s (compiling: {ledger.seconds.compile:.1f} s)")
    print(f"result: {_metrics(summary['metrics'])}")
    files = sorted(
        f"{path.name}{'/' if path.is_dir() else ''}" for path in out.iterdir() if not path.name.startswith(".")
    )
    print(f"wrote {out}: {printable(', '.join(files))}")
    print(f"next: purectrl evaluate {out}")


COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "list": list_command,
    "run": run_command,
    "resume": resume_command,
    "evaluate": evaluate_command,
    "label": label_command,
    "export": export_command,
    "sweep": sweep_command,
    "report": report_command,
    "paper": paper_command,
}


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
