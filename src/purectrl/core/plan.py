"""What an episode executes."""

from typing import Any, NamedTuple


class Plan(NamedTuple):
    """The pair (π, q) that an episode executes.

    Both are pytrees that the problem's rollout understands. On problems with states and controls, `policy(x, t)` is the
    control [k] at state x [d] and time t.
    """

    policy: Any
    """π."""
    initial: Any
    """q; the problem's own initial distribution where the learner does not choose one."""
