"""The fit of an ensemble by Adam, the same loop for every model."""

import functools
from typing import Any, Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

Ensemble = TypeVar("Ensemble", bound=eqx.Module)

LATENT = 2**32 - 1
"""The child of a fit's key from which latent noise is drawn; the other children are the numbers of its steps."""


class Objective(Protocol):
    """What is minimized: a hashable value, since it is a static argument of the compiled fit."""

    @property
    def clip(self) -> float:
        """Limit of the norm of the gradient, per member on average."""
        ...

    def draw(self, key: Array, data: Any, members: int) -> Any:
        """A batch for each member."""
        ...

    def loss(self, model: Any, batch: Any, data: Any) -> Array:
        """The sum over members of their losses on the batch."""
        ...

    def resample(self, model: Any, key: Array) -> Any:
        """The model with latent noise drawn anew, or the model itself if it has none."""
        ...

    def scale_update(self, update: Any) -> Any:
        """The update of the parameters, some of them with another learning rate."""
        ...


@functools.partial(jax.jit, static_argnums=0)
def fit_ensemble(
    objective: Objective,
    model: Ensemble,
    key: Array,
    data: Any,
    steps: int | Array,
    first_learning_rate: float | Array,
    last_learning_rate: float | Array,
) -> tuple[Ensemble, Array]:
    """`steps` steps of Adam whose learning rate decays from the first to the last along a cosine.

    The members differ by their initial weights and by the batches that they see. Latent noise is drawn anew in every step,
    and once more at the end.

    Main arguments:
        objective: the loss, and how batches are drawn.
        model: the ensemble to continue from, with a property `members`.
        key: a JAX key.
        data: all measurements, in arrays of a fixed size.
        steps, first_learning_rate, last_learning_rate: scalars, so that one program serves every update.

    Returns:
        The fitted ensemble and its loss, a mean over members and over the last quarter of the steps.
    """
    members: int = model.members  # pyright: ignore[reportAttributeAccessIssue] (a module with this property)
    optimizer = optax.chain(optax.clip_by_global_norm(objective.clip * members**0.5), optax.scale_by_adam())
    latent_key = jax.random.fold_in(key, LATENT)

    def step(i: Array, carry: tuple[Any, Any, Array]) -> tuple[Any, Any, Array]:
        model, moments, total = carry
        batch = objective.draw(jax.random.fold_in(key, i), data, members)
        model = objective.resample(model, jax.random.fold_in(latent_key, i))
        loss, gradient = jax.value_and_grad(lambda model: objective.loss(model, batch, data))(model)
        update, moments = optimizer.update(gradient, moments)
        rate = cosine_decay(i, steps, first_learning_rate, last_learning_rate)
        model = optax.apply_updates(model, jax.tree.map(lambda u: -rate * u, objective.scale_update(update)))
        return model, moments, total + jnp.where(4 * i >= 3 * steps, loss / members, 0.0)

    # a loop with a traced length: first and later updates of a run share one compiled program
    parameters: Any = model  # a module is a tree of parameters
    begin = parameters, optimizer.init(parameters), jnp.zeros(())
    model, _, total = jax.lax.fori_loop(0, steps, step, begin)
    counted = steps - (3 * steps + 3) // 4
    return objective.resample(model, jax.random.fold_in(latent_key, steps)), total / jnp.maximum(counted, 1)


def cosine_decay(step: Array, steps: int | Array, first: float | Array, last: float | Array) -> Array:
    """The learning rate at `step`, from `first` at step 0 to `last` after `steps` steps.

    >>> [round(float(cosine_decay(jnp.asarray(i), 4, 1.0, 0.0)), 3) for i in (0, 2, 4)]
    [1.0, 0.5, 0.0]
    """
    return last + (first - last) * (1 + jnp.cos(jnp.pi * step / steps)) / 2
