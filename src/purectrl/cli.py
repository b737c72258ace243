"""The command line. Each command is a thin layer over `purectrl.experiments`.

Exit status: 0 done, 1 something failed on the way, 2 the call, a file or the answer of a reward was wrong, 130 stopped by
the user.
"""

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from purectrl import __version__
from purectrl.core.errors import InputError, PurectrlError, choose
from purectrl.core.ledger import Ledger, Seconds
from purectrl.experiments.config import LoopConfig
from purectrl.experiments.progress import ledger_line
from purectrl.experiments.registry import ABOUT, EXPERIMENTS, Experiment, experiment
from purectrl.experiments.settings import from_json, parse

if TYPE_CHECKING:  # what these modules import is not needed to list things or to refuse a mistyped name
    from purectrl.experiments.paper import Item
    from purectrl.experiments.sweep import Outcome
    from purectrl.experiments.tracking import Tracking

USAGE = """usage: purectrl COMMAND ...

  purectrl list                                    experiments and algorithms
  purectrl run EXPERIMENT --algorithm A --out DIR  one run; --seed S, and any setting as --setting value;
                                                   --track tensorboard or wandb to watch it
  purectrl resume DIR                              goes on where the run stopped, bit for bit
  purectrl evaluate DIR                            the learned policy on fresh episodes
  purectrl sweep EXPERIMENT --algorithms A B --seeds 0:5 --out DIR
                                                   many runs, on all cores or with --engine ray on a cluster
  purectrl report DIR... [--out report.html]       one page that shows and compares all runs in and below DIR
  purectrl paper                                   the paper's figures and tables: what each shows and costs
  purectrl paper ITEM --out DIR                    runs what is missing of one, then draws it; --quick: fewer seeds

`purectrl COMMAND --help` tells more, `purectrl run EXPERIMENT --help` lists every setting.
"""

Track = tyro.conf.UseAppendAction[tuple[Literal["tensorboard", "wandb"], ...]]


@dataclasses.dataclass(frozen=True)
class RunArguments:
    """One run of an experiment."""

    algorithm: str
    """The algorithm; `purectrl list` shows them."""
    out: Path
    """Directory of the run, new or empty."""
    seed: int = 0
    """One seed gives the same numbers again."""
    config: Path | None = None
    """JSON file with settings, or the config.json of another run; flags override it."""
    quiet: bool = False
    """Show no progress."""
    track: Track = ()
    """Live view of the run, may be given more than once; needs the extra of that name."""


@dataclasses.dataclass(frozen=True)
class SweepArguments:
    """Every algorithm with every seed. Started again, it goes on with what is missing."""

    algorithms: tuple[str, ...]
    """The algorithms; `purectrl list` shows them."""
    out: Path
    """Directory of the sweep; each run gets its own inside."""
    seeds: str = "0:5"
    """A range such as 0:5 (without its end), or numbers with commas."""
    engine: Literal["local", "ray"] = "local"
    """local: this machine's cores. ray: the cluster that RAY_ADDRESS names, else a local Ray."""
    workers: int | None = None
    """Runs at the same time; by default one a core."""
    config: Path | None = None
    """JSON file with settings, or the config.json of another run; flags override it."""
    quiet: bool = False
    """Show no progress."""
    track: Track = ()
    """Live view of the run, may be given more than once; needs the extra of that name."""


@dataclasses.dataclass(frozen=True)
class PaperArguments:
    """Runs what is missing of a figure of the paper, then draws it. Started again, it goes on."""

    out: Path
    """Directory; the item gets its own inside."""
    quick: bool = False
    """Fewer seeds; each run is the same."""
    engine: Literal["local", "ray"] = "local"
    """local: this machine's cores. ray: the cluster that RAY_ADDRESS names, else a local Ray."""
    workers: int | None = None
    """Runs at the same time; by default one a core."""
    quiet: bool = False
    """Show no progress."""


@dataclasses.dataclass(frozen=True)
class ReportArguments:
    """One HTML page that shows and compares runs. It needs no network and no other file."""

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Directories of runs, of sweeps, or of anything that has runs below it."""
    out: Path = Path("report.html")
    """The page; an earlier report there is replaced."""


@dataclasses.dataclass(frozen=True)
class ResumeArguments:
    """Goes on where the run stopped, bit for bit."""

    directory: tyro.conf.Positional[Path]
    """Directory of the run."""
    quiet: bool = False
    """Show no progress."""
    track: Track = ()
    """Live view of the run, may be given more than once; needs the extra of that name."""


@dataclasses.dataclass(frozen=True)
class EvaluateArguments:
    """The learned policy of a finished run on fresh episodes, counted on their own account."""

    directory: tyro.conf.Positional[Path]
    """Directory of the run."""
    episodes: int | None = None
    """Number of fresh episodes; by default as many as the experiment takes for its own tests."""
    seed: int = 0
    """Seed of those episodes."""
    video: bool = False
    """Write a film of the policy at work to DIR/media."""


def list_command(arguments: Sequence[str]) -> int:
    """`purectrl list`."""
    if arguments:
        raise InputError(f"list takes no arguments, got {arguments[0]!r}")
    print("experiments")
    for found in EXPERIMENTS.values():
        print(f"  {found.name:18}{found.about} ({', '.join(found.algorithms)})")
    print("\nalgorithms")
    for name, about in ABOUT.items():
        print(f"  {name:18}{about}")
    print("\n`purectrl run EXPERIMENT --help` lists samplers, schedules and every other setting.")
    return 0


def run_command(arguments: Sequence[str]) -> int:
    """`purectrl run`."""
    from purectrl.experiments.runner import Spec, run

    chosen, rest = _experiment("run", arguments)
    algorithm = _peek(rest, "--algorithm")
    parsed = _parse(RunArguments, chosen, algorithm, "run", rest)
    choose(f"algorithm for {chosen.name!r}", parsed.algorithm, chosen.algorithms)
    spec = Spec(chosen.name, parsed.algorithm, parsed.seed, parsed.settings)
    _show(run(spec, parsed.out, parsed.quiet, _tracked(parsed.track)), parsed.out)
    return 0


def resume_command(arguments: Sequence[str]) -> int:
    """`purectrl resume`."""
    from purectrl.experiments.runner import resume

    parsed = parse(ResumeArguments, arguments, "purectrl resume")
    _show(resume(parsed.directory, parsed.quiet, _tracked(parsed.track)), parsed.directory)
    return 0


def evaluate_command(arguments: Sequence[str]) -> int:
    """`purectrl evaluate`."""
    from purectrl.experiments.runner import evaluate

    parsed = parse(EvaluateArguments, arguments, "purectrl evaluate")
    result = evaluate(parsed.directory, parsed.episodes, parsed.seed, parsed.video)
    print(f"{result['episodes']} fresh episodes (seed {result['seed']}): {_metrics(result['metrics'])}")
    print("wrote", ", ".join(str(parsed.directory / name) for name in ("evaluation.json", *result.get("media", ()))))
    return 0


def sweep_command(arguments: Sequence[str]) -> int:
    """`purectrl sweep`."""
    from purectrl.experiments.runner import Spec
    from purectrl.experiments.sweep import local, on_ray, parse_seeds, sweep

    chosen, rest = _experiment("sweep", arguments)
    parsed = _parse(SweepArguments, chosen, None, "sweep", rest)
    specs = []
    for algorithm in parsed.algorithms:
        choose(f"algorithm for {chosen.name!r}", algorithm, chosen.algorithms)
        settings = _parse(SweepArguments, chosen, algorithm, "sweep", rest).settings
        specs += [Spec(chosen.name, algorithm, seed, settings) for seed in parse_seeds(parsed.seeds)]
    if len(set(specs)) < len(specs):
        raise InputError("algorithms: one of them is named twice")
    engine = {"local": local, "ray": on_ray}[parsed.engine](parsed.workers)
    finished = _follow(sweep(specs, parsed.out, engine, _tracked(parsed.track)), len(specs), parsed.out, parsed.quiet)
    print(f"{finished} of {len(specs)} runs finished in {parsed.out}")
    return 0 if finished == len(specs) else 1


def report_command(arguments: Sequence[str]) -> int:
    """`purectrl report`."""
    from purectrl.report.page import write_page

    parsed = parse(ReportArguments, arguments, "purectrl report")
    written = write_page(parsed.directories, parsed.out)
    for note in written.notes:
        print(f"note: {note}", file=sys.stderr)
    for problem in written.problems:
        print(f"left out: {problem}", file=sys.stderr)
    size = parsed.out.stat().st_size / 1e6
    print(f"wrote {parsed.out}: {written.runs} run{'' if written.runs == 1 else 's'}, {size:.1f} MB")
    return 1 if written.problems else 0


def paper_command(arguments: Sequence[str]) -> int:
    """`purectrl paper`."""
    from purectrl.experiments.items import ITEMS, item_called

    if not arguments:
        for item in ITEMS.values():
            runs = [item.count(quick) for quick in (False, True)]
            count = f"{runs[0]} runs ({runs[1]} with --quick)" if item.groups else "no runs"
            print(f"{item.name:20}{item.shows}; {count}, {item.cost}")
        return 0
    if arguments[0] in ("-h", "--help"):
        print(f"usage: purectrl paper ITEM --out DIR [options]\n\nitems: {', '.join(ITEMS)}")
        print("`purectrl paper` says what they show, `purectrl paper ITEM --help` lists the options.")
        return 0
    if arguments[0].startswith("-"):
        raise InputError(f"paper needs an item first, one of: {', '.join(ITEMS)}")
    item = item_called(arguments[0])
    return make_item(item, parse(PaperArguments, arguments[1:], f"purectrl paper {item.name}"))


def make_item(item: "Item", arguments: PaperArguments) -> int:
    """Runs what is missing of `item`, computes what is missing, draws."""
    from purectrl.experiments.paper import compute_missing, run_missing
    from purectrl.experiments.sweep import local, on_ray
    from purectrl.report.paper import write

    folder, seeds = arguments.out / item.name, item.chosen_seeds(arguments.quick)
    engine = {"local": local, "ray": on_ray}[arguments.engine](arguments.workers)
    total = item.count(arguments.quick)
    finished = _follow(run_missing(item, folder, seeds, engine), total, arguments.out, arguments.quiet)
    if finished < total:
        print(f"{finished} of {total} runs finished in {folder}; nothing is drawn: the same command goes on")
        return 1
    for name in compute_missing(item, folder):
        if not arguments.quiet:
            print(f"computed {name}", flush=True)
    command = f"purectrl paper {item.name} --out DIR" + (" --quick" if arguments.quick and item.groups else "")
    for mark in write(item, folder, seeds, command).marks:
        print(f"{'met' if mark.met else 'MISSED'}: {mark.asks}: {mark.found}")
    print(f"wrote {folder}: figure.png, figure.pdf, table.csv, table.md, numbers.json")
    return 0


def _follow(outcomes: "Iterator[Outcome]", total: int, out: Path, quiet: bool) -> int:
    """Says how each run ended, and returns how many finished."""
    finished = 0
    for outcome in outcomes:
        name = outcome.job.out.relative_to(out.absolute())
        if outcome.summary is None:
            print(f"failed {name}: {outcome.error}", file=sys.stderr, flush=True)
            continue
        finished += 1
        if not quiet:
            print(f"[{finished}/{total}] {name}: {_metrics(outcome.summary['metrics'])}", flush=True)
    return finished


COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "list": list_command,
    "run": run_command,
    "resume": resume_command,
    "evaluate": evaluate_command,
    "sweep": sweep_command,
    "report": report_command,
    "paper": paper_command,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The program `purectrl`."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # Greek letters on a terminal that has none
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if arguments[0] == "--version":
        print(f"purectrl {__version__}")
        return 0
    try:
        if "" in arguments:
            raise InputError("an argument is empty")
        status = COMMANDS[choose("command", arguments[0], COMMANDS)](arguments[1:])
        sys.stdout.flush()
        return status
    except PurectrlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "stopped; what was done is saved: `purectrl resume DIR`, or the same command again, goes on",
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains once more at exit
        return 1
    except MemoryError:
        print("error: out of memory; take fewer paths, steps or measurements an episode", file=sys.stderr)
        return 1
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        print(f"error: {error.strerror}{place}", *getattr(error, "__notes__", []), sep="; ", file=sys.stderr)
        return 1


def _experiment(command: str, arguments: Sequence[str]) -> tuple[Experiment, Sequence[str]]:
    if arguments and arguments[0] in ("-h", "--help"):
        print(f"usage: purectrl {command} EXPERIMENT [options]\n\nexperiments: {', '.join(EXPERIMENTS)}")
        print(f"`purectrl {command} EXPERIMENT --help` lists its options.")
        raise SystemExit(0)
    if not arguments or arguments[0].startswith("-"):
        raise InputError(f"{command} needs an experiment first, one of: {', '.join(EXPERIMENTS)}")
    return experiment(arguments[0]), arguments[1:]


def _parse(kind: type[Any], chosen: Experiment, algorithm: str | None, command: str, rest: Sequence[str]) -> Any:
    """`kind` with the settings of the experiment beside it: algorithm's preset, then the --config file, then flags."""
    settings: LoopConfig = chosen.defaults if algorithm not in chosen.algorithms else chosen.config(str(algorithm))
    if (file := _peek(rest, "--config")) is not None:
        from purectrl.experiments.files import read_json

        values = read_json(Path(file))
        if isinstance(values, dict) and "settings" in values:  # the config.json of a run
            if values.get("experiment", chosen.name) != chosen.name:
                raise InputError(f"config: {file} is of the experiment {values['experiment']!r}, not {chosen.name!r}")
            if algorithm is not None and values.get("algorithm", algorithm) != algorithm:
                raise InputError(
                    f"config: {file} is of a run with {values['algorithm']!r}, whose settings are not "
                    f"those of {algorithm!r}; keep only the settings that you want in a file"
                )
            values = values["settings"]
        settings = from_json(settings, values, Path(file))
    field = ("settings", tyro.conf.OmitArgPrefixes[type(settings)], dataclasses.field(default=settings))  # type: ignore[misc]
    whole = dataclasses.make_dataclass(kind.__name__, [field], bases=(kind,), frozen=True, kw_only=True)
    whole.__doc__ = kind.__doc__
    return parse(whole, rest, f"purectrl {command} {chosen.name}")


def _tracked(names: Sequence[str]) -> "tuple[Tracking, ...]":
    """The trackers called `names`, each once; one that is not installed is refused before anything runs."""
    from purectrl.experiments.tracking import TRACKERS

    return tuple(TRACKERS[name]() for name in dict.fromkeys(names))


def _peek(arguments: Sequence[str], flag: str) -> str | None:
    """The value of `flag` before anything is parsed, since it decides what the defaults are."""
    found = None  # given twice, the last one counts, as for every other flag
    for argument, following in zip(arguments, [*arguments[1:], None], strict=True):
        if argument.startswith(flag + "="):
            found = argument.removeprefix(flag + "=")
        elif argument == flag:
            found = following
    return found


def _metrics(metrics: Mapping[str, Any]) -> str:
    """The metrics that fit on a line."""
    shown = ((name, value) for name, value in metrics.items() if isinstance(value, bool | int | float))
    return ", ".join(
        f"{name} {value}" if isinstance(value, bool | int) else f"{name} {value:.4g}" for name, value in shown
    )


def _show(summary: Mapping[str, Any], out: Path) -> None:
    """What a user wants to know at the end of a run."""
    ledger = summary["ledger"]
    seconds = ledger["seconds"]
    spent = ledger_line(Ledger(**{**ledger, "seconds": Seconds(**seconds)}))
    print(f"{summary['status']}: {summary['experiment']}, {summary['algorithm']}, seed {summary['seed']}")
    print(f"spent: {spent}, {seconds['total']:.1f} s (of which {seconds['compile']:.1f} s compiling)")
    print(f"result: {_metrics(summary['metrics'])}")
    files = sorted(
        f"{path.name}{'/' if path.is_dir() else ''}" for path in out.iterdir() if not path.name.startswith(".")
    )
    print(f"wrote {out}: {', '.join(files)}")
    print(f"next: purectrl evaluate {out}")
