"""What the arguments of `continuous` mean: checks, and the parts of a problem that they describe."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.errors import TracerArrayConversionError, TracerBoolConversionError

from purectrl.core.errors import InputError, require
from purectrl.systems.device import Device
from purectrl.systems.spec import StateSpec

Function = Callable[[Array, Array], Array]
"""(x [d], u [k]) -> [d] or a scalar."""
LIMIT_STATES = 16
"""Initial states around which the smallest reward at the limits is searched."""
PERIODS, LONGEST_PERIOD = 100, 0.05
"""Without a control period, traits of a digital controller take an episode divided by the first, at most the second."""


def exponential(log_reward: Function) -> Function:
    """The reward with this logarithm."""
    return lambda x, u: jnp.exp(log_reward(x, u))


def relative(reward: Function, offset: float) -> Function:
    """The reward less `offset`."""
    return lambda x, u: reward(x, u) - offset


def numbers(argument: str, values: Any) -> tuple[float, ...]:
    """A sequence of numbers; raises with the name of the argument if it is none."""
    try:
        return tuple(map(float, values))
    except TypeError:
        raise InputError(f"{argument}: must be a list of numbers, one for each control, not {values!r}") from None


def coordinates(argument: str, values: Any) -> tuple[int, ...]:
    """A sequence of coordinates; raises with the name of the argument if it is none."""
    try:
        return tuple(map(int, values))
    except TypeError:
        raise InputError(f"{argument}: must be a list of coordinates of the state, not {values!r}") from None


def reward_after_abort(
    given: float | None,
    reward: Function | None,
    log_reward: Function | None,
    limits: Mapping[int, tuple[float, float]] | None,
    initial: Callable[[Array], Array] | None,
    sizes: tuple[int, tuple[float, ...], tuple[float, ...]],
) -> float:
    """The reward rate after the end of an episode: as given, else the smallest at the limits, but not above zero.

    It is searched at initial states of which one coordinate is at a limit, with all controls at a limit, in the middle or at
    the other one.
    """
    if log_reward is not None or given is not None:
        require(not (given and log_reward), "abort_reward: a reward given by its logarithm is positive; leave it out")
        return float(given or 0.0)
    if not limits or reward is None:
        return 0.0
    d, low, high = sizes
    x, u = (jax.ShapeDtypeStruct((size,), jnp.float32) for size in (d, len(low)))
    try:
        scalar = jnp.shape(jax.eval_shape(reward, x, u)) == ()
    except (TypeError, ValueError, IndexError):  # `check_functions` says what is wrong
        return 0.0
    if not scalar:
        return 0.0
    keys = jax.random.split(jax.random.key(0), LIMIT_STATES)
    starts = jnp.zeros((1, d)) if initial is None else jax.vmap(lambda key: jnp.asarray(initial(key)))(keys)
    corners = jnp.stack(
        [jnp.asarray(low) + share * (jnp.asarray(high) - jnp.asarray(low)) for share in (0.0, 0.5, 1.0)]
    )
    states = jnp.concatenate([starts.at[:, i].set(bound) for i, bounds in limits.items() for bound in bounds])
    values = jax.vmap(lambda x: jax.vmap(lambda u: reward(x, u))(corners))(states)
    return min(0.0, float(jnp.nan_to_num(values).min()))


def per_coordinate(std: float | Sequence[float], count: int) -> tuple[float, ...]:
    """The standard deviation of each measured coordinate; empty if all are zero."""
    numbers = (float(std),) * count if isinstance(std, int | float) else tuple(map(float, std))
    wrong = next((number for number in numbers if not number >= 0), None)
    require(wrong is None, f"observation_std: must not be negative, got {wrong}")
    require(len(numbers) == count, f"observation_std: has {len(numbers)} numbers, expected one per coordinate, {count}")
    return numbers if any(numbers) else ()


def end_function(
    terminated: Callable[[Array], Any] | None, limits: Mapping[int, tuple[float, float]] | None, d: int
) -> Callable[[Array], Array] | None:
    """Whether an episode terminates in a state, by a user's function or by limits."""
    try:
        bounds = {int(i): (float(low), float(high)) for i, (low, high) in dict(limits or {}).items()}
    except (TypeError, ValueError):
        raise InputError(f"limits: must be {{coordinate: (low, high)}}, got {limits!r}") from None
    for i, (low, high) in bounds.items():
        require(0 <= i < d, f"limits: the coordinates are 0 to {d - 1}, got {i}")
        require(low < high, f"limits: must be (low, high) with low < high, got {(low, high)} for coordinate {i}")
    if terminated is None and not bounds:
        return None

    def ends(x: Array) -> Array:
        found = jnp.asarray(False if terminated is None else terminated(x), bool)
        for i, (low, high) in bounds.items():
            found = found | (x[i] < low) | (x[i] > high)
        return found

    shape = jnp.shape(jax.eval_shape(ends, jax.ShapeDtypeStruct((d,), jnp.float32)))
    require(shape == (), f"terminated: returns shape {list(shape)} for x [{d}], expected a scalar")
    return ends


def digital_controller(
    spec: StateSpec,
    horizon: float,
    period: float | None,
    noise: tuple[float, ...],
    delays: tuple[float, float],
    observed: Sequence[int] | None,
    history: int | None,
) -> Device | None:
    """The digital controller that the arguments describe; None for continuous feedback."""
    partly = observed is not None and tuple(observed) != tuple(range(spec.state_dim))
    digital = bool(noise) or any(delays) or partly or (history or 1) > 1 or spec.terminated is not None
    if period is None and not digital:
        return None
    if period is None:
        period = min(horizon / PERIODS, LONGEST_PERIOD)
    require(0 < period < horizon, f"control_period: must be positive and shorter than the horizon, not {period}")
    chosen = tuple(range(spec.state_dim)) if observed is None else tuple(map(int, observed))
    valid = len(set(chosen)) == len(chosen) and all(0 <= i < spec.state_dim for i in chosen)
    require(valid, f"observed: must name different coordinates between 0 and {spec.state_dim - 1}, got {chosen}")
    for argument, delay in zip(("sensor_delay", "actuator_delay"), delays, strict=True):
        require(delay >= 0, f"{argument}: must not be negative, got {delay}")
    if history is None:
        history = 1 + int(np.ceil(sum(delays) / period - 1e-9)) + (2 if partly else 0)
    rest = tuple(min(max(0.0, low), high) for low, high in zip(spec.control_low, spec.control_high, strict=True))
    return Device(period, chosen, rest, history, noise, *delays, spec.terminated)


def behind_device(spec: StateSpec, device: Device) -> StateSpec:
    """What a learner may know of the samples that it sees; `spec` is that of the true state.

    >>> position = Device(0.1, observed=(0,), rest=(0.0,), history=2)
    >>> behind_device(StateSpec(2, 1, (-1.0,), (1.0,), angles=(0,)), position).angles
    (0, 1)
    """
    n, whole = len(device.observed), device.observed == tuple(range(spec.state_dim))
    angles = tuple(s * n + j for s in range(device.history) for j, i in enumerate(device.observed) if i in spec.angles)
    newest = lambda function: None if function is None or not whole else lambda z, *u: function(z[:n], *u)  # noqa: E731
    alone = whole and device.history == 1
    return replace(
        spec,
        state_dim=device.size(spec.control_dim),
        angles=angles,
        velocities=(),
        reward=newest(spec.reward),
        log_reward=newest(spec.log_reward),
        approximate_drift=spec.approximate_drift if alone else None,
        may_terminate=spec.terminated is not None,
        terminated=newest(spec.terminated),
    )


def initial_size(initial: Callable[[Array], Array], state_dim: int | None) -> int:
    """d; raises unless `initial` returns one axis, of `state_dim` numbers if that is given."""
    try:
        shape = jax.eval_shape(lambda key: jnp.asarray(initial(key)), jax.random.key(0)).shape
    except (TypeError, ValueError, IndexError) as error:
        raise InputError(f"initial: must be a function of a JAX key: {str(error).splitlines()[0]}") from error
    expected = "[d]" if state_dim is None else f"[{state_dim}]"
    fits = len(shape) == 1 and state_dim in (None, shape[0])
    require(fits, f"initial: returns shape {list(shape)}, expected {expected}")
    return shape[0]


def check_functions(drift: Function, reward: Function, spec: StateSpec) -> None:
    """Raises unless drift and reward return the right shapes."""
    x, u = (jax.ShapeDtypeStruct((size,), jnp.float32) for size in (spec.state_dim, spec.control_dim))
    for name, function, shape in (
        ("drift", drift, (spec.state_dim,)),
        ("reward", reward, ()),
    ):
        arguments = f"x {list(x.shape)} and u {list(u.shape)}"
        try:
            found = jax.eval_shape(lambda x, u, function=function: jnp.asarray(function(x, u)), x, u).shape
        except TracerArrayConversionError as error:
            raise InputError(f"{name}: calls NumPy on a JAX array; call jax.numpy in its place") from error
        except TracerBoolConversionError as error:
            raise InputError(f"{name}: branches on a JAX array; write jnp.where(condition, a, b)") from error
        except (TypeError, ValueError, IndexError) as error:
            raise InputError(f"{name}: cannot be evaluated on {arguments}: {str(error).splitlines()[0]}") from error
        require(found == shape, f"{name}: returns shape {list(found)} for {arguments}, expected {list(shape)}")


def check_first_states(initial: Callable[[Array], Array], ends: Callable[[Array], Array] | None) -> None:
    """Raises if episodes end in all of several initial states: then nothing could be measured."""
    if ends is None:
        return
    starts = jax.vmap(lambda key: jnp.asarray(initial(key), jnp.float32))(
        jax.random.split(jax.random.key(0), LIMIT_STATES)
    )
    message = (
        f"initial: episodes would end at once, as in x(0) = {np.asarray(starts[0]).tolist()}; see limits, terminated"
    )
    require(not bool(jax.vmap(ends)(starts).all()), message)
