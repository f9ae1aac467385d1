"""JAX: compiled functions, gradients, the libraries below it."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

from cases import case, expect, hash_of, losses, main, need  # noqa: E402

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
