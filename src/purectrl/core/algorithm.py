"""An algorithm is a value: when to measure, when to update, how to learn, which policy to return."""

import abc
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from purectrl.core.errors import require
from purectrl.core.first_data import widened
from purectrl.core.learner import Learner, LookaheadMonitor
from purectrl.core.ledger import Budget
from purectrl.core.lookahead import Lookahead
from purectrl.core.loop import Loop
from purectrl.core.oracle import Oracle
from purectrl.core.output_rules import OutputRule, UniformEpisode
from purectrl.core.problem import Problem, SelectiveProblem
from purectrl.core.samplers import Sampler, Windows
from purectrl.core.schedules import Schedule
from purectrl.core.settings import Settings


class LearnerSettings(Settings, abc.ABC):
    """The settings of a learner: a frozen dataclass that builds the learner for a problem."""

    @abc.abstractmethod
    def build(self, problem: Problem, budget: Budget, sampler: Sampler) -> Learner:
        """The learner for `problem`; raises `UnsupportedError` if it cannot work there, before anything runs.

        Budget and sampler tell how many measurements there will be, so that arrays of a fixed size can hold them.
        """

    def memory_bytes(self, problem: Problem, budget: Budget, sampler: Sampler) -> Mapping[str, float]:
        """An estimate of the largest arrays of the learner: bytes by the settings that they depend on, such as
        `learner.width`; several settings are separated by commas."""
        return {}

    def unused(self, problem: Problem, sampler: Sampler) -> Mapping[str, str]:
        """Settings without effect on this problem and with this sampler, by path, and why; a flag for one is refused."""
        return {}


@dataclass(frozen=True)
class Algorithm:
    """Sampler, schedule, learner and output rule. A baseline and its PURE variant differ in the first two alone."""

    sampler: Sampler
    schedule: Schedule
    learner: LearnerSettings
    output: OutputRule = UniformEpisode()
    name: str = "custom"
    """The name in reports and run directories."""

    def with_settings(self, values: Mapping[str, Any]) -> "Algorithm":
        """The same algorithm with other values of some settings, named by their paths as on the command line.

        >>> from purectrl.core.schedules import GrowingBatches
        >>> from purectrl.core.samplers import Final
        >>> from purectrl.diffusion.settings import Seiko
        >>> seiko = Algorithm(Final(), GrowingBatches(), Seiko())
        >>> seiko.with_settings({"learner.finetune.beta": 0.5, "schedule.updates": 2}).learner.finetune.beta
        0.5
        """
        changed = self
        for path, value in values.items():
            changed = _with_setting(changed, path.split("."), value, path)
        return changed

    def build(self, problem: Problem, budget: Budget) -> Loop:
        """The loop of this algorithm on `problem`; raises `InputError` for combinations that cannot work."""
        sampler = self.sampler
        if problem.time_grid is not None:
            if isinstance(sampler, Windows):
                require(
                    sampler.step >= problem.time_grid * (1 - 1e-9),
                    f"sampler.step: must be at least one step of {problem.name}, {problem.time_grid:g} s, "
                    f"not {sampler.step:g}",
                )
            sampler = sampler.on_grid(problem.time_grid)
        sampler = sampler.priced(problem.prices)
        first, room = (None, 0) if problem.logs is None else (widened(problem.logs, sampler.m), problem.logs.total)
        if first is not None:  # the learner must have room for the logs, too, and for as many initial states
            room = max(room, first.episodes * sampler.m)
        learner = self.learner.build(problem, Budget(budget.measurements + room, budget.rollouts), sampler)
        selective = problem if isinstance(problem, SelectiveProblem) else None
        oracle = Oracle(problem.rollout, problem.horizon, budget, selective=selective and selective.selective_rollout)
        schedule = self.schedule.prepare(budget, sampler.m)
        if schedule.needs_excess_loss and isinstance(learner, LookaheadMonitor) and learner.can_look_ahead:
            oracle = Lookahead(oracle, schedule, learner, problem.lookahead)
        return Loop(oracle, sampler, schedule, learner, self.output, first)


def _with_setting(holder: Any, names: list[str], value: Any, path: str) -> Any:
    """`holder` with the setting that `names` lead to replaced by `value`."""
    declared = getattr(holder, "__dataclass_fields__", {})
    require(names[0] in declared, f"{path}: {type(holder).__name__} has no setting {names[0]!r}")
    if len(names) > 1:
        value = _with_setting(getattr(holder, names[0]), names[1:], value, path)
    return dataclasses.replace(holder, **{names[0]: value})
