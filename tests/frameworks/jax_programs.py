# SPDX-License-Identifier: Apache-2.0
"""JAX: compiled functions, gradients, the libraries below it."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

from cases import case, expect, hash_of, losses, main, need  # noqa: E402
from xla_flags import xla_flags  # noqa: E402

# Before JAX reads them.
os.environ.setdefault("XLA_FLAGS", xla_flags(os.environ.get("GPULOOM_TEST_COMMAND_BUFFERS", "")))

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = jnp = None


def numbers(*shape, seed=0, dtype="float32"):
    import numpy
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape).astype("float32")).astype(dtype)


@case("devices")
def _():
    need("jax")
    kinds = [device.platform for device in jax.devices()]
    expect(kinds and kinds[0] in ("gpu", "cuda"), f"the devices are {kinds}")
    return len(kinds)


@case("jit")
def _():
    need("jax")
    body = jax.jit(lambda x, y: jnp.tanh(x @ y).sum(0) + jnp.exp(-x[:, :5]).mean())
    return hash_of(body(numbers(300, 200), numbers(200, 100, seed=1)))


@case("grad of a network, training")
def _():
    need("jax")

    def loss(weights, x, y):
        h = jnp.tanh(x @ weights[0] + weights[1])
        return jnp.mean((h @ weights[2] - y) ** 2)

    weights = [numbers(32, 64) * 0.1, jnp.zeros(64), numbers(64, 1, seed=2) * 0.1]
    x, y = numbers(128, 32, seed=3), numbers(128, 1, seed=4)

    @jax.jit
    def step(weights):
        value, grads = jax.value_and_grad(loss)(weights, x, y)
        return value, [w - 0.1 * g for w, g in zip(weights, grads)]

    seen = []
    for _ in range(20):
        value, weights = step(weights)
        seen.append(value)
    return f"{losses(seen)} {hash_of(weights)}"


@case("convolutional network, bf16")
def _():
    need("jax")

    @jax.jit
    def body(x, w):
        y = jax.lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jax.nn.relu(y).mean((1, 2))

    return hash_of(body(numbers(8, 32, 32, 3, dtype="bfloat16"), numbers(3, 3, 3, 16, seed=1, dtype="bfloat16"))
                   .astype("float32"))


@case("attention, fp16")
def _():
    need("jax")

    @jax.jit
    def body(q, k, v):
        weights = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8.0, -1)
        return jnp.einsum("bhqk,bhkd->bhqd", weights, v)

    q, k, v = (numbers(2, 4, 64, 32, seed=i, dtype="float16") for i in range(3))
    return hash_of(body(q, k, v))


@case("vmap and pmap on one device")
def _():
    need("jax")
    one = lambda x: jnp.sort(jnp.sin(x))[::-1]  # noqa: E731
    a = jax.vmap(one)(numbers(16, 100))
    b = jax.pmap(lambda x: jax.lax.psum(x * 2, "i"), axis_name="i")(numbers(1, 50))
    return hash_of(a, b)


@case("scan and while_loop")
def _():
    need("jax")

    @jax.jit
    def body(x):
        last, all_of = jax.lax.scan(lambda c, v: (c * 0.9 + v, c.sum()), x[0], x)
        count = jax.lax.while_loop(lambda s: s[0] > 1e-3, lambda s: (s[0] * 0.5, s[1] + 1), (jnp.float32(1), 0))
        return last, all_of, count[1]

    return hash_of(*body(numbers(100, 32)))


# ---- loops and branches

def runs(body, *inputs, times=4):
    """Hash of what `body`, compiled, gives for several inputs. All arrays live on, so that each run has others: what was
    made for the first run's addresses must be renewed."""
    compiled = jax.jit(body)
    kept = []
    for i in range(times):
        changed = jax.tree.map(lambda x, i=i: x * (1 + i) if jnp.issubdtype(x.dtype, jnp.floating) else x + i, inputs)
        kept.append((changed, compiled(*changed)))
    return hash_of(jax.tree.leaves([result for _, result in kept]))


def recurrence(weights, rows):
    """A recurrent layer over `rows`; the last state and all of them."""
    def step(state, row):
        state = jnp.tanh(state @ weights + row)
        return state, state
    return jax.lax.scan(step, jnp.zeros(rows.shape[1:]), rows)


def squared_error(weights, rows):
    return jnp.mean((recurrence(weights, rows)[1] - 0.5) ** 2)


@case("scan, forward")
def _():
    need("jax")
    return runs(recurrence, numbers(64, 64) * 0.1, numbers(30, 8, 64, seed=1))


@case("scan under grad")
def _():
    need("jax")
    return runs(jax.value_and_grad(squared_error), numbers(64, 64) * 0.1, numbers(30, 8, 64, seed=1))


@case("scan under grad, with checkpoints")
def _():
    need("jax")

    def loss(weights, rows):
        @jax.checkpoint
        def step(state, row):
            state = jnp.tanh(state @ weights + row)
            return jnp.sin(state @ weights), state.sum()
        last, sums = jax.lax.scan(step, jnp.zeros(rows.shape[1:]), rows)
        return (last ** 2).mean() + sums.mean()

    return runs(jax.value_and_grad(loss), numbers(48, 48) * 0.1, numbers(20, 4, 48, seed=1))


@case("scan in scan, under grad")
def _():
    need("jax")

    def loss(weights, blocks):
        def block(total, rows):
            last, _ = recurrence(weights, rows)
            return total + last, last.mean()
        total, means = jax.lax.scan(block, jnp.zeros(blocks.shape[2:]), blocks)
        return (total ** 2).mean() + means.sum()

    return runs(jax.value_and_grad(loss), numbers(32, 32) * 0.1, numbers(5, 7, 4, 32, seed=1))


@case("scan backwards, unrolled, of no rows, over a tree")
def _():
    need("jax")

    def body(x):
        add = lambda c, v: (c * 0.5 + v["a"], {"sum": c.sum(), "row": v["b"] * 2})  # noqa: E731
        rows = {"a": x, "b": x[:, :3]}
        zero = jnp.zeros(x.shape[1:])
        return (jax.lax.scan(add, zero, rows, reverse=True), jax.lax.scan(add, zero, rows, unroll=4),
                jax.lax.scan(add, zero, jax.tree.map(lambda v: v[:0], rows)))

    return runs(body, numbers(18, 40))


@case("scan over the layers of a network, training")
def _():
    need("jax")

    def loss(layers, x, y):
        def layer(h, weights):
            q, k, v = (h @ weights[name] for name in "qkv")
            h = h + jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8.0, -1) @ v
            return h + jax.nn.relu(h @ weights["up"]) @ weights["down"], None
        h, _ = jax.lax.scan(jax.checkpoint(layer), x, layers)
        return jnp.mean((h - y) ** 2)

    shapes = {"q": (64, 64), "k": (64, 64), "v": (64, 64), "up": (64, 128), "down": (128, 64)}
    layers = {name: numbers(6, *shape, seed=i) * 0.05 for i, (name, shape) in enumerate(shapes.items())}
    x, y = numbers(4, 16, 64, seed=8), numbers(4, 16, 64, seed=9)

    @jax.jit
    def step(layers):
        value, grads = jax.value_and_grad(loss)(layers, x, y)
        return value, jax.tree.map(lambda w, g: w - 0.05 * g, layers, grads)

    seen = []
    for _ in range(10):
        value, layers = step(layers)
        seen.append(value)
    return f"{losses(seen)} {hash_of(jax.tree.leaves(layers))}"


@case("fori_loop, of a known and of an unknown count")
def _():
    need("jax")

    def body(x, count):
        known = jax.lax.fori_loop(0, 12, lambda i, v: jnp.sin(v) + i, x)
        unknown = jax.lax.fori_loop(0, count, lambda i, v: v * 0.5 + jnp.float32(i), x)
        none = jax.lax.fori_loop(count, 0, lambda i, v: v + 1, x)
        return known, unknown, none

    return runs(body, numbers(33, 20), jnp.int32(5))


@case("fori_loop under grad, with matrix products")
def _():
    need("jax")
    loss = lambda w, x: jnp.mean(jax.lax.fori_loop(0, 9, lambda i, v: jnp.tanh(v @ w), x) ** 2)  # noqa: E731
    return runs(jax.value_and_grad(loss), numbers(96, 96) * 0.1, numbers(16, 96, seed=1))


@case("while_loop until it converges")
def _():
    need("jax")

    def root(x):
        going_on = lambda s: (jnp.abs(s[0] * s[0] - x).max() > 1e-3) & (s[1] < 60)  # noqa: E731
        return jax.lax.while_loop(going_on, lambda s: (0.5 * (s[0] + x / s[0]), s[1] + 1), (x, jnp.int32(0)))

    return runs(root, jnp.abs(numbers(500)) + 1)


@case("while_loop that never runs; in scan; in while_loop")
def _():
    need("jax")

    def body(x):
        never = jax.lax.while_loop(lambda v: v.sum() > 1e9, lambda v: v * 2, x)

        def row(total, v):
            halved, steps = jax.lax.while_loop(lambda s: jnp.abs(s[0]).max() > 0.01, lambda s: (s[0] * 0.5, s[1] + 1),
                                               (v, jnp.int32(0)))
            return total + halved, steps
        outer = jax.lax.while_loop(
            lambda s: s[0] < 4,
            lambda s: (s[0] + 1, jax.lax.while_loop(lambda t: t[0] < s[0], lambda t: (t[0] + 1, t[1] + 0.25),
                                                    (jnp.int32(0), s[1]))[1]), (jnp.int32(0), x))
        return never, jax.lax.scan(row, jnp.zeros(x.shape[1:]), x), outer

    return runs(body, numbers(9, 50))


@case("cond, both ways, under grad")
def _():
    need("jax")

    def loss(x, w, up):
        y = jax.lax.cond(up > 1, lambda v: jnp.tanh(v @ w), lambda v: (v * 2) @ w.T, x)
        return (y ** 2).mean()

    return runs(jax.value_and_grad(loss, argnums=(0, 1)), numbers(20, 32), numbers(32, 32, seed=1) * 0.1, jnp.int32(0))


@case("switch over branches, under grad")
def _():
    need("jax")

    def loss(x, w, which):
        branches = [lambda v: v @ w, jnp.sin, lambda v: v * 3 - 1, lambda v: jnp.sort(v, -1)]
        return (jax.lax.switch(which, branches, x) ** 2).mean()

    # One above the last branch is taken for the last one.
    return runs(jax.value_and_grad(loss, argnums=(0, 1)), numbers(20, 32), numbers(32, 32, seed=1) * 0.1, jnp.int32(0),
                times=6)


@case("cond and switch in loops, under grad")
def _():
    need("jax")

    def loss(w, rows):
        def step(state, row):
            state = jax.lax.cond(state.mean() > 0, lambda s: jnp.tanh(s @ w), lambda s: s - row, state)
            which = jnp.abs(row.sum() * 10).astype("int32") % 3
            return jax.lax.switch(which, [lambda s: s + row, lambda s: s * 0.9, jnp.cos], state), which
        last, taken = jax.lax.scan(step, jnp.ones(rows.shape[1:]), rows)
        return (last ** 2).mean(), taken

    return runs(jax.value_and_grad(loss, has_aux=True), numbers(24, 24) * 0.2, numbers(25, 5, 24, seed=1))


@case("a loop that a branch holds")
def _():
    need("jax")

    def body(x, up):
        loop = lambda v: jax.lax.fori_loop(0, 6, lambda i, a: jnp.sin(a) * 1.1, v)  # noqa: E731
        until = lambda v: jax.lax.while_loop(lambda a: jnp.abs(a).max() > 0.1, lambda a: a * 0.7, v)  # noqa: E731
        return jax.lax.cond(up > 1, loop, until, x)

    return runs(body, numbers(40, 40), jnp.int32(0))


@case("vmap of loops and branches")
def _():
    need("jax")

    def one(x, n):
        total, all_of = jax.lax.scan(lambda c, v: (c * 0.8 + v, c), jnp.float32(0), x)
        halved = jax.lax.while_loop(lambda s: (s[0] > 0.01) & (s[1] < n), lambda s: (s[0] * 0.5, s[1] + 1),
                                    (jnp.abs(total), jnp.int32(0)))
        return jax.lax.cond(total > 0, jnp.sin, jnp.cos, x), all_of, halved, jax.lax.switch(n % 3, [jnp.sin, jnp.cos, jnp.exp],
                                                                                            x)

    return runs(jax.vmap(one), numbers(12, 30), jnp.arange(12, dtype="int32"))


@case("pmap of scan under grad, on one device")
def _():
    need("jax")

    def step(weights, rows):
        value, grad = jax.value_and_grad(squared_error)(weights, rows)
        return jax.lax.pmean(value, "i"), weights - 0.1 * jax.lax.pmean(grad, "i")

    body = jax.pmap(step, axis_name="i", devices=jax.devices()[:1])
    weights, rows = numbers(1, 32, 32) * 0.1, numbers(1, 20, 4, 32, seed=1)
    seen = []
    for _ in range(4):
        value, weights = body(weights, rows)
        seen.append(value[0])
    return f"{losses(seen)} {hash_of(weights)}"


@case("custom_vjp in scan")
def _():
    need("jax")

    @jax.custom_vjp
    def clipped(x):
        return jnp.tanh(x)

    clipped.defvjp(lambda x: (jnp.tanh(x), x), lambda x, g: (jnp.clip(g, -0.01, 0.01) * (1 + 0 * x),))

    def loss(w, rows):
        last, _ = jax.lax.scan(lambda s, row: (clipped(s @ w + row), None), jnp.zeros(rows.shape[1:]), rows)
        return (last ** 2).sum()

    return runs(jax.value_and_grad(loss), numbers(32, 32) * 0.2, numbers(15, 6, 32, seed=1))


@case("slices of a loop's counter: read, written")
def _():
    need("jax")

    def body(stack, x):
        def step(i, carried):
            h, out = carried
            h = jnp.tanh(h @ jax.lax.dynamic_index_in_dim(stack, i, keepdims=False))
            return h, jax.lax.dynamic_update_index_in_dim(out, h, i, 0)
        return jax.lax.fori_loop(0, stack.shape[0], step, (x, jnp.zeros((stack.shape[0], *x.shape))))

    return runs(body, numbers(10, 128, 128) * 0.05, numbers(128, 128, seed=1))


@case("libraries in loops: products in fp16 and bf16, convolutions, sorting, decompositions, fft")
def _():
    need("jax")

    def body(a, image, kernel):
        def step(carried, i):
            x, y = carried
            half = (x.astype("float16") @ a.astype("float16")).astype("float32")
            brain = (x.astype("bfloat16") @ a.astype("bfloat16")).astype("float32")
            y = jnp.tanh(jax.lax.conv_general_dilated(y, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
            positive = a @ a.T + (48.0 + i) * jnp.eye(a.shape[0])
            found = (jnp.linalg.cholesky(positive).sum(), jax.lax.top_k(half, 3)[0].sum(), jnp.sort(brain).std(),
                     jnp.abs(jnp.fft.rfft(x)).mean(), jnp.linalg.solve(positive, x.T).mean())
            return (jnp.tanh(half + brain), y), found
        return jax.lax.scan(step, (a, image), jnp.arange(4.0))

    return runs(body, numbers(48, 48) * 0.2, numbers(2, 16, 16, 8, seed=1), numbers(3, 3, 8, 8, seed=2) * 0.1, times=3)


@case("associative_scan, map, cumulative products")
def _():
    need("jax")
    combine = lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])  # noqa: E731
    body = lambda x: (jax.lax.associative_scan(combine, (jnp.tanh(x), x)), jax.lax.map(jnp.sin, x),  # noqa: E731
                      jax.lax.map(lambda v: v * 2, x, batch_size=8), jnp.cumprod(x, 0))
    return runs(body, numbers(50, 30))


@case("a function of the host inside a loop")
def _():
    need("jax")
    import numpy

    def body(x):
        def step(carried, row):
            doubled = jax.pure_callback(lambda v: (numpy.asarray(v) * 2).astype("float32"),
                                        jax.ShapeDtypeStruct(row.shape, row.dtype), row)
            return carried + doubled, doubled.sum()
        return jax.lax.scan(step, jnp.zeros(x.shape[1:]), x)

    return runs(body, numbers(6, 40))


@case("many compiled functions in turn, many times")
def _():
    need("jax")
    functions = [jax.jit(lambda x, k=k: jax.lax.fori_loop(0, 3 + k, lambda i, v: jnp.sin(v) + k, x)) for k in range(8)]
    x = numbers(64, 64)
    for _ in range(40):
        for function in functions:
            x = function(x)
    return hash_of(x)


@case("fft")
def _():
    need("jax")
    x = numbers(4, 1000)
    return hash_of(jnp.fft.fft(x), jnp.fft.irfft(jnp.fft.rfft(x)), jnp.fft.fft2(numbers(64, 48)))


@case("linalg")
def _():
    need("jax")
    a = numbers(48, 48)
    s = a @ a.T + 48 * jnp.eye(48)
    b = numbers(48, 3, seed=1)
    x = jnp.linalg.solve(s, b)
    expect(bool(jnp.allclose(s @ x, b, atol=1e-2)), "the solution is wrong")
    values = jnp.linalg.eigh(s)[0]
    singular = jnp.linalg.svd(a, compute_uv=False)
    return hash_of(x, jnp.linalg.cholesky(s), jnp.linalg.qr(a), values, singular, jnp.linalg.inv(s))


@case("random numbers")
def _():
    need("jax")
    key = jax.random.key(7)
    return hash_of(jax.random.normal(key, (1000,)), jax.random.permutation(key, 1000), jax.random.bernoulli(key, 0.3, (99,)))


@case("a function of the host inside")
def _():
    need("jax")
    import numpy

    @jax.jit
    def body(x):
        y = jax.pure_callback(lambda v: numpy.cumsum(v).astype("float32"), jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        return y * 2

    return hash_of(body(jnp.arange(1000.0)))


@case("donated buffers, copies, large arrays")
def _():
    need("jax")
    add = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.zeros(1 << 24)
    for _ in range(5):
        x = add(x)
    y = jax.device_put(jax.device_get(x))
    return float(y.sum()), hash_of(y[:1000])


@case("sorting, indexing, integers")
def _():
    need("jax")
    x = (numbers(10000) * 1000).astype("int32")
    return hash_of(jnp.sort(x), jnp.argsort(x), jnp.unique(x), x[x > 0], jnp.cumsum(x), jnp.zeros(2000, "int32").at[x % 2000].add(1))


if __name__ == "__main__":
    main()
