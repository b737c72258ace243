"""What a run writes about itself: a line of `records.jsonl` per step, and the metrics of `summary.json`."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from purectrl.core.errors import InputError
from purectrl.core.learner import Record, State
from purectrl.core.measurement import Dataset
from purectrl.core.output_rules import same
from purectrl.core.plan import Plan
from purectrl.core.problem import Evaluation, Metrics, Problem

EVALUATED = "evaluation_rollouts"
"""The column of a record that counts the episodes of its evaluation."""


@runtime_checkable
class CoverageTest(Protocol):
    """Optional capability of a learner: whether its confidence sets contain the truth, which only the problem knows."""

    def covers(self, state: Any, data: Dataset, truth: Any) -> bool:
        """Whether both sets contain the truth."""
        ...

    def radius_needed(self, state: Any, data: Dataset, truth: Any) -> float:
        """The smallest multiple of the radii at which both sets, computed from all data, contain the truth."""
        ...

    def check_fit(self, state: Any, data: Dataset) -> None:
        """Warns if the best member of a class does not explain the data."""
        ...


def record_line(
    problem: Problem, learner: Any, state: State, record: Record, previous: Plan
) -> tuple[dict[str, Any], Evaluation | None]:
    """One step as a line of `records.jsonl`, and an evaluation, which the line contains, if the policy may have changed.

    Main arguments:
        state: after the step.
        previous: the policy that the run would have returned before it.
    """
    ledger, block = state.ledger, record.block
    line: dict[str, Any] = {
        "step": record.step,
        "episodes": block.episodes,
        "rollouts": ledger.rollouts,
        "measurements": ledger.measurements,
        "updates": ledger.updates,
        "updated": (record.updated.name or "neither").lower(),
        "reward": None if block.r is None else float((block.r if block.count is None else block.r[block.valid]).mean()),
    }
    if block.count is not None:
        line |= {"terminated": int(block.terminated.sum()), "uninformative": float(block.repeated.sum() / block.total)}
    if record.excess_loss is not None:
        line |= {"excess_drift": record.excess_loss.drift, "excess_reward": record.excess_loss.reward}
    line["seconds"] = round(ledger.seconds.total, 6)
    columns = [record.info, problem.columns(record)]
    if isinstance(learner, CoverageTest) and problem.truth is not None:
        columns.append({"covered": learner.covers(state.learner, state.data, problem.truth)})
        if record.updated:
            columns.append({"radius_needed": learner.radius_needed(state.learner, state.data, problem.truth)})
    found = None
    if problem.eval_episodes and (record.updated or not same(state.output.plan, previous)):
        key = problem.evaluation_key(state.key, state.steps)
        found = problem.evaluate_update(state.output.plan, key, ledger.updates)
        metrics = {f"eval_{name}": value for name, value in found.metrics.items()}
        columns.append({EVALUATED: problem.eval_episodes} | metrics)
    for more in columns:
        if taken := line.keys() & more.keys():
            raise InputError(f"records: {min(taken)!r} is a column of every run; use another name")
        line |= more
    return line, found


def final_metrics(problem: Problem, state: State, last: Plan, records: Sequence[Mapping[str, Any]]) -> Metrics:
    """The metrics of a finished run: the last evaluation, its learning curve, and what the problem adds."""
    metrics: Metrics = {}
    evaluations, failed = [], 0
    for record in records:
        failed += "rolled_back" in record
        evaluations += [record] if EVALUATED in record else []
    if evaluations:
        final = {name[5:]: value for name, value in evaluations[-1].items() if name.startswith("eval_")}
        name = problem.result_metric if problem.result_metric in final else "reward"
        curve = [[record["rollouts"], record[f"eval_{name}"]] for record in evaluations if f"eval_{name}" in record]
        metrics |= final | ({f"{name}_curve": curve} if curve else {})
        if isinstance(final.get(name), float):
            metrics["utility"] = problem.prices.utility(final[name], state.ledger)
        metrics |= criterion_met(problem, final)
    if failed:
        metrics["rolled_back"] = failed
    return metrics | problem.summarize(state.output.plan, last, state.key, records)


def criterion_met(problem: Problem, metrics: Mapping[str, Any]) -> Metrics:
    """Whether an evaluation meets the criterion that the problem states; empty if it states none."""
    met = None if problem.criterion is None else problem.criterion.met(metrics)
    return {} if met is None else {"criterion_met": met}
