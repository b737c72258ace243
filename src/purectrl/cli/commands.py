"""The commands. Each is a thin layer over `purectrl.runs`, `purectrl.report` and `purectrl.paper`, which it imports late."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from purectrl import signals
from purectrl.algorithms import ALGORITHMS, PRESETS, compatible
from purectrl.cli import output, specs
from purectrl.cli.options import (
    SHORT,
    EvaluateOptions,
    ExportOptions,
    LabelOptions,
    LeagueOptions,
    PaperOptions,
    ReportOptions,
    ResumeOptions,
    RunOptions,
    SweepOptions,
)
from purectrl.core.errors import InputError, choose
from purectrl.core.output_paths import require_creatable
from purectrl.core.text import printable
from purectrl.problems import PROBLEMS
from purectrl.runs import flags
from purectrl.runs.flags import Arguments

if TYPE_CHECKING:
    from purectrl.runs.sweep import Engine
    from purectrl.runs.tracking import TrackerKind


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
        print(specs.describe_run(reference, arguments))
        return 0
    specs.require_algorithms(arguments, "algorithm", [reference])
    options = flags.parse(RunOptions, arguments, SHORT, f"run {reference}", nested=True)
    from purectrl.runs.progress import log
    from purectrl.runs.runner import run

    spec = specs.spec_of(reference, options.algorithm, options, arguments, options.seed)
    if options.algorithm is None and not options.quiet:
        log(f"algorithm: {spec.algorithm.name}")
    finished = run(spec, options.out, options.quiet, _trackers(options.track), options.force, options.max_seconds)
    output.show(finished.summary, options.out)
    return 0


def sweep_command(words: Sequence[str]) -> int:
    """`purectrl sweep`."""
    arguments = flags.split(words)
    if arguments.help:
        print("usage: purectrl sweep PROBLEM... --algorithms A B --seeds 0:5 --out DIR [options]\n")
        print(flags.describe_command(SweepOptions))
        return 0
    references = _positional(arguments, "sweep", "a problem", PROBLEMS)
    specs.require_algorithms(arguments, "algorithms", references)
    options = flags.parse(SweepOptions, arguments, SHORT, "sweep", nested=True)
    from purectrl.runs.memory import require_memory
    from purectrl.runs.sweep import parse_seeds, sweep

    seeds = parse_seeds(options.seeds)
    require_creatable(options.out)
    pairs = [
        specs.spec_of(problem, algorithm, options, arguments, 0)
        for problem in references
        for algorithm in options.algorithms
    ]
    workers = min(options.workers or os.cpu_count() or 1, len(pairs) * len(seeds)) if options.engine == "local" else 1
    for spec in pairs:
        require_memory(spec, options.force, copies=workers)
        spec.compose()  # what cannot work is refused before anything runs
    wanted = [spec.with_seed(seed) for spec in pairs for seed in seeds]
    engine = _engine(options.engine, options.workers, options.batch)
    outcomes = sweep(wanted, options.out, engine, _trackers(options.track))
    finished = output.follow(outcomes, len(wanted), options.out, options.quiet)
    print(f"{finished} of {len(wanted)} runs finished in {options.out}")
    return 0 if finished == len(wanted) else 1


def resume_command(words: Sequence[str]) -> int:
    """`purectrl resume`."""
    directory, options = _directory("resume", ResumeOptions, words)
    from purectrl.runs.runner import resume

    limits = {"force": options.force, "max_seconds": options.max_seconds}
    output.show(resume(directory, options.quiet, _trackers(options.track), options.trust, **limits), directory)
    return 0


def evaluate_command(words: Sequence[str]) -> int:
    """`purectrl evaluate`."""
    directory, options = _directory("evaluate", EvaluateOptions, words)
    from purectrl.runs.runner import evaluate

    result = evaluate(directory, options.episodes, options.seed, options.video, options.trust, update=options.update)
    print(f"{result['episodes']} new episodes (seed {result['seed']}): {output.metrics_line(result['metrics'])}")
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
    return make_item(name, options.out, options.quick, engine, options.quiet, output.follow)


def league_command(words: Sequence[str]) -> int:
    """`purectrl league`."""
    arguments = flags.split(words)
    if arguments.help:
        print("usage: purectrl league PROBLEM... --algorithms A B --seeds 0:5 --out DIR [options]\n")
        print(flags.describe_command(LeagueOptions))
        return 0
    references = _positional(arguments, "league", "a problem", PROBLEMS)
    specs.require_algorithms(arguments, "algorithms", references)
    options = flags.parse(LeagueOptions, arguments, command="league")
    from purectrl.core.io import MAX_JSON, read_bytes
    from purectrl.core.prices import Prices
    from purectrl.paper import league, make_item
    from purectrl.report.page import write_page
    from purectrl.runs.sweep import parse_seeds

    given = (options.measurement_price, options.rollout_price, options.update_price)
    prices = None if given == (None, None, None) else Prices(*(price or 0.0 for price in given))
    problems = {name: specs.offers_equations(name) for name in references}
    seeds = parse_seeds(options.seeds)
    item = league.item(problems, options.algorithms, len(seeds), options.measurements, options.share, prices)
    for group in item.groups:
        group.spec().compose()  # what cannot work is refused before anything runs
    engine = _engine(options.engine, options.workers, batch=False)
    command = " ".join(["purectrl league", *words])
    status = make_item(item, options.out, False, engine, options.quiet, output.follow, seeds, command)
    if status == 0:
        folder = options.out / item.name
        print(read_bytes(folder / "table.md", MAX_JSON).decode(), end="")
        with signals.unwinding():
            write_page([folder / "runs"], folder / "report.html")
        print(f"wrote {folder / 'report.html'}")
    return status


COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "list": list_command,
    "run": run_command,
    "resume": resume_command,
    "evaluate": evaluate_command,
    "label": label_command,
    "export": export_command,
    "sweep": sweep_command,
    "report": report_command,
    "league": league_command,
    "paper": paper_command,
}


def _positional(
    arguments: Arguments, command: str, what: str, known: Iterable[str], most: int | None = None
) -> list[str]:
    if not arguments.positional:
        names = ", ".join(known)
        own = ", or your own: path/to/file.py:function" if what == "a problem" else ""
        raise InputError(f"{command} needs {what} first{f', one of: {names}{own}' if names else ''}")
    if most is not None and len(arguments.positional) > most:
        raise InputError(f"{command} takes {what}, got another word: {arguments.positional[most]!r:.60}")
    return list(arguments.positional)


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


def _engine(name: str, workers: int | None, batch: bool) -> "Engine":
    from purectrl.runs.submitted import on_submitit
    from purectrl.runs.sweep import local, on_ray

    return {"local": local, "ray": on_ray, "submitit": on_submitit}[name](workers, batch)


def _trackers(names: Sequence[str]) -> "tuple[TrackerKind, ...]":
    """The trackers called `names`, each once; one that is not installed is refused before anything runs."""
    from purectrl.runs.tracking import TRACKERS

    return tuple(TRACKERS[name]() for name in dict.fromkeys(names))
