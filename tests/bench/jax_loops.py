# SPDX-License-Identifier: Apache-2.0
"""A loop in JAX: one compiled training step of a network with Adam, waited for."""

import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import numpy  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import loop  # noqa: E402

SIZES = (256, 512, 512, 512, 1)


def numbers(*shape, seed):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape).astype("float32"))


def loss_of(weights, x, y):
    for w, b in weights[:-1]:
        x = jax.nn.gelu(x @ w + b)
    w, b = weights[-1]
    return jnp.mean((x @ w + b - y) ** 2)


@jax.jit
def advance(weights, mean, square, count, x, y):
    loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
    count = count + 1
    mean = jax.tree_util.tree_map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradients)
    square = jax.tree_util.tree_map(lambda s, g: 0.999 * s + 0.001 * g * g, square, gradients)
    weights = jax.tree_util.tree_map(
        lambda w, m, s: w - 1e-3 * (m / (1 - 0.9**count)) / (jnp.sqrt(s / (1 - 0.999**count)) + 1e-8),
        weights, mean, square)
    return loss, (weights, mean, square, count)


class Training:
    """Four layers of 512, 128 rows a step; the loss is read after each."""

    def __init__(self):
        self.x, self.y = numbers(128, SIZES[0], seed=8), numbers(128, 1, seed=9)

    def start(self):
        weights = [(numbers(SIZES[i], SIZES[i + 1], seed=i) / SIZES[i] ** 0.5, jnp.zeros(SIZES[i + 1]))
                   for i in range(len(SIZES) - 1)]
        nothing = jax.tree_util.tree_map(jnp.zeros_like, weights)
        self.state = (weights, nothing, nothing, jnp.zeros(()))

    def issue(self):
        loss, self.state = advance(*self.state, self.x, self.y)
        return loss

    def finish(self, loss):
        return float(loss)

    def check(self):
        self.start()
        losses = [self.finish(self.issue()) for _ in range(10)]
        leaves = jax.tree_util.tree_leaves(self.state)
        return f"{losses[-1]:.6f} {loop.hash_of(*losses, *(numpy.asarray(leaf).tobytes() for leaf in leaves))}"


if __name__ == "__main__":
    sys.exit(loop.main({"jax_training": Training}))
