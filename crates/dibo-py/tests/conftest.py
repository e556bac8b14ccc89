"""One quadratic problem in Rust, NumPy, PyTorch and JAX."""

from __future__ import annotations

import importlib.util
import signal
from types import SimpleNamespace

import numpy as np
import pytest

import dibo

# Where this was started in the background of a script, Ctrl-C is ignored, by Python and by what it starts; some tests
# send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

AGENTS, UPPER, LOWER = 3, 2, 3

if importlib.util.find_spec("torch"):
    import torch

    # Small tensors gain nothing from threads, which wait for each other where others use the cores as well.
    torch.set_num_threads(1)


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


needs_torch = pytest.mark.skipif(not installed("torch"), reason="torch is not installed")
needs_jax = pytest.mark.skipif(not installed("jax"), reason="jax is not installed")
FRAMEWORKS = [
    "numpy",
    "numpy-stacked",
    pytest.param("torch", marks=needs_torch),
    pytest.param("jax", marks=needs_jax),
]


def tables(core, agents=AGENTS, dx=UPPER, dy=LOWER):
    """The matrices of the problem, read off its gradients, which are affine: f's and g's gradient is H v +
    h."""
    out = []
    for level in (0, 1):
        hessians, offsets = [], []
        for i in range(agents):

            def gradient(v):
                return np.concatenate(core.gradients(level, i, 0, v[:dx].copy(), v[dx:].copy()))

            h = gradient(np.zeros(dx + dy))
            hessians.append(np.stack([gradient(e) - h for e in np.eye(dx + dy)], axis=1))
            offsets.append(h)
        out.append((np.stack(hessians), np.stack(offsets)))
    return out


def quadratic(framework: str, **options):
    """The problem in a framework: losses ½ vᵀHv + hᵀv with v = (x, y); data are H and h, one sample an agent.

    g's block in x is zero in Rust's problem and its gradient is exact, so H is what Rust has."""
    core = dibo.Quadratic(AGENTS, UPPER, LOWER).core
    (hf, of), (hg, og) = tables(core)
    val, train = (hf[:, None], of[:, None]), (hg[:, None], og[:, None])
    dx = UPPER
    if framework == "rust":
        return dibo.Quadratic(AGENTS, UPPER, LOWER)
    if framework == "numpy":

        def gradient(x, y, data):
            g = data[0][0] @ np.concatenate([x, y]) + data[1][0]
            return g[:dx], g[dx:]

        def products(x, y, v, data):
            p = data[0][0][:, dx:] @ v
            return p[:dx], p[dx:]

        def single(x, data):
            # Rust's single-level objective is f(x, 0); it is val's, which single does not see.
            raise NotImplementedError

        return dibo.GradientProblem(
            gradient,
            gradient,
            x=np.zeros(dx),
            y=np.zeros(LOWER),
            val=val,
            train=train,
            products=products,
            **options,
        )
    if framework == "numpy-stacked":

        def stacked(x, y, data):
            g = np.einsum("nij,nj->ni", data[0][:, 0], np.concatenate([x, y], axis=1)) + data[1][:, 0]
            return g[:, :dx], g[:, dx:]

        return dibo.GradientProblem(
            stacked, stacked, x=np.zeros(dx), y=np.zeros(LOWER), val=val, train=train, stacked=True, **options
        )
    if framework == "torch":
        import torch

        def loss(x, y, data):
            v = torch.cat([x, y])
            return 0.5 * v @ (data[0][0] @ v) + data[1][0] @ v

        zeros = lambda n: torch.zeros(n, dtype=torch.float64)
    else:
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)

        def loss(x, y, data):
            v = jnp.concatenate([x, y])
            return 0.5 * v @ (data[0][0] @ v) + data[1][0] @ v

        zeros = lambda n: jnp.zeros(n)
    return dibo.Problem(loss, loss, x=zeros(dx), y=zeros(LOWER), val=val, train=train, **options)


@pytest.fixture
def small():
    return SimpleNamespace(quadratic=quadratic, agents=AGENTS, dx=UPPER, dy=LOWER)
