"""Own problems on a GPU: agreement with the processor, manners, and what an iteration costs beside its own
function and beside a loop in PyTorch. Needs an NVIDIA GPU, PyTorch and a dibo that was built with the feature
`cuda`; BERT needs transformers, JAX's part a JAX that finds the GPU, and nothing is downloaded.

    python check.py                 # all; JAX's part comes last, and compiles much
    python check.py --only mlp      # agreement, manners, mlp, bert or jax
    python check.py --device cpu    # the script itself, without a GPU, on small sizes
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
import time
import traceback

import numpy as np
import torch
from torch.func import functional_call, grad, vmap

import dibo

# JAX would take three quarters of the GPU's memory for itself.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

DEVICE = "cuda"
SMALL = False
#: Iterations after which runs are compared.
COUNT = 60
#: Lines of the table at the end: what, value, bar, whether it holds.
TABLE: list[tuple[str, str, str, str]] = []


def line(what: str, value: str, bar: str = "", good: bool | None = None) -> None:
    word = "" if good is None else "ok" if good else "MISSED"
    TABLE.append((what, value, bar, word))
    print(f"   {what}: {value} {bar} {word}", flush=True)


def wait() -> None:
    if DEVICE != "cpu":
        torch.cuda.synchronize()


def per_step(step, count: int) -> float:
    """Milliseconds of one call, of so many in a row."""
    for k in range(3):
        step(k)
    wait()
    began = time.perf_counter()
    for k in range(count):
        step(k)
    wait()
    return 1e3 * (time.perf_counter() - began) / count


def per_iteration(problem, algorithm, graph, count: int) -> tuple[float, dibo.Run]:
    """Milliseconds of one iteration of dibo's, after as many to get warm."""
    run = dibo.solve(problem, algorithm, graph, iterations=2 * count, every=count, device=DEVICE)
    seconds = run.columns["seconds"]
    return 1e3 * float(seconds[2] - seconds[1]) / count, run


def callback(problem):
    """The function that dibo calls once an iteration, on tensors of PyTorch's that lie as dibo's rows."""
    placed = problem if DEVICE == "cpu" else problem.on(problem.framework.place(DEVICE))
    n, width = placed.agents, placed.y.width
    rows = [torch.zeros(n, 2 * width, device=DEVICE) for _ in range(2)]
    rows[0][:, :width] = rows[0][:, width:] = torch.as_tensor(placed.y0, dtype=torch.float32)
    private = [torch.zeros(n, max(placed.widths), device=DEVICE) for _ in range(2)]
    stacks = [[x, row[:, :width], row[:, width:]] for x, row in zip(private, rows)]
    if DEVICE == "cpu":
        stacks = [[part.numpy() for part in stack] for stack in stacks]
    call = placed.oracle().bind(list(range(n)), *stacks, tuple(rows))
    return lambda k: call(k + 1, 1.0, 1.0)


# Agreement.


def mlp_losses(w, d):
    out = torch.tanh(d["a"] @ w["w1"] + w["b1"]) @ w["w2"] + w["b2"]
    return torch.nn.functional.cross_entropy(out, d["c"], reduction="none")


def small_data(agents: int, x: str):
    """Where a small MLP starts, and the agents' train and val data."""
    g = torch.Generator().manual_seed(1)
    counts = [20 + (i % 3 if x == "ragged" else 0) for i in range(agents)]

    def samples(count):
        a = torch.randn(count, 6, generator=g)
        return {"a": a, "c": torch.randint(0, 3, (count,), generator=g), "place": torch.arange(count)}

    w = {"w1": torch.randn(6, 9, generator=g) / 3, "b1": torch.zeros(9)}
    w |= {"w2": torch.randn(9, 3, generator=g) / 3, "b2": torch.zeros(3)}
    return counts, w, [samples(count) for count in counts], [samples(8) for _ in counts]


def small_mlp(agents: int, x: str, batch: int | None, device: str = "cpu"):
    """A small MLP: a shared regulariser, or weights of an agent's own samples, as many each or not."""
    counts, *given = small_data(agents, x)
    move = lambda tree: {name: part.to(device) for name, part in tree.items()}
    w, train, val = (move(part) if isinstance(part, dict) else [move(own) for own in part] for part in given)

    def upper(x, y, d):
        return mlp_losses(y, d).mean()

    def lower(v, y, d):
        decay = 0.01 * sum((p * p).sum() for p in y.values())
        if x == "shared":
            return mlp_losses(y, d).mean() + torch.nn.functional.softplus(v[0]) * decay
        return (torch.sigmoid(v[d["place"]]) * mlp_losses(y, d)).mean() + decay

    start = torch.zeros(1, device=device)
    if x != "shared":
        start = [torch.zeros(count, device=device) for count in counts]
    return dibo.Problem(
        upper,
        lower,
        x=start,
        y=w,
        private=x != "shared",
        train=train,
        val=val,
        batch=batch,
        metrics={"norm": (lambda x, y: y["w1"].norm(), "neither")},
        single=lambda y, d: mlp_losses(y, d).mean(),
    )


def leaves(tree):
    if isinstance(tree, dict):
        return [leaf for part in tree.values() for leaf in leaves(part)]
    of = lambda leaf: leaf if isinstance(leaf, torch.Tensor) else torch.as_tensor(np.array(leaf))
    return [of(leaf) for leaf in tree] if isinstance(tree, list) else [of(tree)]


def gap(a, b) -> float:
    """The largest difference of two runs, relative to the largest number."""
    worst = 0.0
    for name in ("x", "y"):
        if getattr(a, name) is not None:
            for p, q in zip(leaves(getattr(a, name)), leaves(getattr(b, name))):
                p, q = p.double().cpu(), q.double().cpu()
                worst = max(worst, float((p - q).abs().max() / (1e-3 + q.abs().max())))
    return worst


def agreement() -> None:
    print(f"agreement with the processor, {COUNT} iterations in float32", flush=True)
    fab = dict(lam=2, eta=0.02)
    bilevel = [dibo.FAB(**fab), dibo.StaticFAB(**fab), dibo.RunningSumFAB(**fab), dibo.PushSumFAB(**fab)]
    alone = [dibo.PushPull(eta=0.02), dibo.SubgradientPush(eta=0.02), dibo.PushSGD(eta=0.02)]
    alone.append(dibo.PushDIGing(eta=0.02))
    cases = [(a, 4, "shared", None) for a in [*bilevel, *alone]]
    cases += [(bilevel[0], 4, x, b) for x in ("shared", "private", "ragged") for b in (5, None)]
    # So many agents are mixed by another kernel.
    cases += [(bilevel[0], 40, x, 5) for x in ("shared", "private")]
    worst: dict[str, float] = {}
    for algorithm, agents, x, batch in cases:
        graph = dibo.Cycle(agents, nu=0.3)
        label = f"{algorithm.name}, {agents} agents, {x} x, batch {batch}"
        try:
            host, there = (
                dibo.solve(
                    small_mlp(agents, x, batch), algorithm, graph, iterations=COUNT, every=COUNT, device=where
                )
                for where in ("cpu", DEVICE)
            )
            off = gap(there, host)
            off = max(off, abs(there.last["upper_loss"] - host.last["upper_loss"]))
            kind = f"agreement, {'bilevel' if 'x' in host.variables and 'y' in host.variables else 'single'}"
            worst[kind] = max(worst.get(kind, 0.0), off)
            print(f"   {label}: {off:.1e}{'' if off < 2e-3 else '  <-- too far'}", flush=True)
        except Exception as error:
            worst["agreement, failed"] = float("inf")
            print(f"   {label}: {type(error).__name__}: {error}", flush=True)
            traceback.print_exc()
    for kind, off in worst.items():
        line(kind, f"{off:.1e}", "< 2e-3", off < 2e-3)


# Manners.


def manners() -> None:
    print("manners", flush=True)
    other = "cpu" if DEVICE != "cpu" else "meta"
    wrong = {
        "None": (lambda x, y, d: None, (TypeError, ValueError)),
        "a number": (lambda x, y, d: 3.0, (TypeError, ValueError)),
        "a vector": (lambda x, y, d: y, ValueError),
        "whole numbers": (lambda x, y, d: y.sum().long(), (TypeError, ValueError)),
        "another device": (lambda x, y, d: y.sum().to(other), (TypeError, RuntimeError)),
        "nan": (lambda x, y, d: y.sum() * float("nan"), ValueError),
        "cut off": (lambda x, y, d: (y.sum() + x.sum()).detach(), ValueError),
        "an exception": (lambda x, y, d: 1 / 0, ZeroDivisionError),
        "a wrong shape": (lambda x, y, d: (y.reshape(7, 7) ** 2).sum(), RuntimeError),
    }
    t = [torch.zeros(1, 1) for _ in range(3)]
    good = 0
    for name, (loss, kinds) in wrong.items():
        problem = dibo.Problem(loss, loss, x=torch.zeros(1), y=torch.zeros(2), train=t, val=t)
        try:
            dibo.solve(problem, dibo.FAB(lam=5, eta=0.02), iterations=5, device=DEVICE)
            print(f"   {name}: no error  <-- wrong")
        except kinds as error:
            good += 1
            print(f"   {name}: {type(error).__name__}: {str(error).splitlines()[0]} {error.__notes__[:1]}"
                  if hasattr(error, "__notes__") else f"   {name}: {type(error).__name__}: {error}")
        except BaseException as error:
            print(f"   {name}: {type(error).__name__}: {error}  <-- wrong kind")
    refused = {
        "second-order": lambda p: dibo.solve(p, dibo.PushPullSOBA(0.01, 0.01), iterations=2, device=DEVICE),
        "lost messages": lambda p: dibo.solve(
            p, dibo.FAB(lam=2, eta=0.02), dibo.Cycle(4, nu=0.3, loss=0.1), iterations=2, device=DEVICE
        ),
        "no such GPU": lambda p: dibo.solve(p, dibo.FAB(lam=2, eta=0.02), iterations=2, device="cuda:99"),
    }
    for name, call in refused.items() if DEVICE != "cpu" else ():
        try:
            call(small_mlp(4, "shared", 5))
            print(f"   {name}: not refused  <-- wrong")
        except Exception as error:
            good += 1
            print(f"   {name}: {type(error).__name__}: {error}")
    born = dibo.solve(small_mlp(4, "private", 5, DEVICE), dibo.FAB(lam=2, eta=0.02), iterations=50)
    rows = born.variables["y"]
    where = str(getattr(rows, "device", "cpu"))
    good += where.startswith(DEVICE)
    print(f"   a problem born on {DEVICE}: rows on {where}, {born!r}")
    kept = rows[0, 0].item()
    del born
    dibo.solve(small_mlp(4, "private", 5), dibo.FAB(lam=2, eta=0.02), iterations=50, device=DEVICE)
    good += rows[0, 0].item() == kept
    total = len(wrong) + (len(refused) if DEVICE != "cpu" else 0) + 2
    line("manners", f"{good} of {total}", f"= {total}", good == total)


# An MLP's cleaning.


def mlp() -> None:
    n, hidden, batch, train, val = (10, 256, 64, 5400, 600) if not SMALL else (4, 8, 5, 30, 10)
    print(f"an MLP's cleaning: {n} agents, {hidden} hidden units, batches of {batch}", flush=True)
    g = torch.Generator().manual_seed(0)
    shapes = [(784, hidden), (1, hidden), (hidden, 10), (1, 10)]
    start = [0.03 * torch.randn(*shape, generator=g).to(DEVICE) for shape in shapes]

    def losses(w, d):
        out = torch.relu(d["x"] @ w[0] + w[1]) @ w[2] + w[3]
        return torch.nn.functional.cross_entropy(out, d["y"], reduction="none")

    def lower(psi, w, d):
        decay = 0.001 * sum((p * p).sum() for p in w)
        return (torch.sigmoid(psi[d["place"]]) * losses(w, d)).mean() + decay

    def samples(count):
        x = torch.rand(count, 784, generator=g).to(DEVICE)
        y = torch.randint(0, 10, (count,), generator=g).to(DEVICE)
        return {"x": x, "y": y, "place": torch.arange(count, device=DEVICE)}

    problem = dibo.Problem(
        lambda psi, w, d: losses(w, d).mean(),
        lower,
        x=[torch.zeros(train, device=DEVICE) for _ in range(n)],
        y=start,
        private=True,
        train=[samples(train) for _ in range(n)],
        val=[samples(val) for _ in range(n)],
        batch=batch,
    )
    graph = dibo.ErdosRenyi(n, nu=0.5)
    count = 300 if not SMALL else 3
    # In turn, twice: whoever is first pays for what both use.
    fab = dibo.FAB(lam=1.0, eta_x=1e-3, eta_y=0.03, eta_z=0.03)
    alone, dibos = [], []
    for _ in range(2):
        alone.append(per_step(callback(problem), count))
        dibos.append(per_iteration(problem, fab, graph, count)[0])
    line("mlp: dibo, ms an iteration", f"{min(dibos):.3f}", f"runs {[round(v, 3) for v in dibos]}")
    line("mlp: its function alone, ms", f"{min(alone):.3f}", f"runs {[round(v, 3) for v in alone]}")
    ratio = min(dibos) / min(alone)
    line("mlp: dibo / its function", f"{ratio:.3f}", "<= 1.15", ratio <= 1.15)


# BERT.


def bert_model():
    from transformers import BertConfig, BertForSequenceClassification

    sizes = dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    if SMALL:
        sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
        sizes["vocab_size"] = 100
    config = BertConfig(
        **sizes, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = BertForSequenceClassification(config).to(DEVICE).eval()
    return model, config.vocab_size


def bert() -> None:
    n, batch, length = (10, 4, 128) if not SMALL else (3, 2, 8)
    torch.set_float32_matmul_precision("high")
    model, words = bert_model()
    width = sum(p.numel() for p in model.parameters())
    print(f"BERT: {width} parameters, {n} agents, batches of {batch} texts of {length} tokens", flush=True)

    def losses(y, d):
        logits = functional_call(model, y, (d["ids"],)).logits
        return torch.nn.functional.cross_entropy(logits.float(), d["label"], reduction="none")

    def samples(count):
        ids = torch.randint(0, words, (count, length), device=DEVICE)
        label = torch.randint(0, 2, (count,), device=DEVICE)
        return {"ids": ids, "label": label, "place": torch.arange(count, device=DEVICE)}

    problem = dibo.Problem(
        lambda psi, y, d: losses(y, d).mean(),
        lambda psi, y, d: (torch.sigmoid(psi[d["place"]]) * losses(y, d)).mean(),
        x=[torch.zeros(256, device=DEVICE) for _ in range(n)],
        y=model,
        private=True,
        train=[samples(256) for _ in range(n)],
        val=[samples(16) for _ in range(n)],
        batch=batch,
    )
    count = 30 if not SMALL else 2
    graph = dibo.ErdosRenyi(n, nu=0.5)
    ours, run = per_iteration(problem, dibo.FAB(lam=1.0, eta_x=0.01, eta_y=0.005, eta_z=0.005), graph, count)
    line("bert: dibo, ms an iteration", f"{ours:.2f}", f"state {run.state_bytes / 2**30:.2f} GiB")
    del run
    alone = per_step(callback(problem), count)
    line("bert: its function alone, ms", f"{alone:.2f}")
    line("bert: dibo / its function", f"{ours / alone:.3f}", "<= 1.15", ours / alone <= 1.15)
    if DEVICE != "cpu":
        torch.cuda.empty_cache()
    loop = per_step(vmap_loop(model, n, batch, length, words), max(2, count // 3))
    line("bert: a loop with vmap in PyTorch, ms", f"{loop:.2f}")
    line("bert: the loop / dibo", f"{loop / ours:.2f}", ">= 1.5", loop / ours >= 1.5)
    if DEVICE != "cpu":
        peak = torch.cuda.max_memory_allocated() / 2**30
        line("bert: most memory of PyTorch's", f"{peak:.1f} GiB")


def vmap_loop(model, n: int, batch: int, length: int, words: int):
    """FAB in PyTorch as one would write it well: per-agent gradients by vmap, mixing array by array."""
    names, values = zip(*((name, p.detach()) for name, p in model.named_parameters()))
    stacked = lambda: [v.expand(n, *v.shape).clone() for v in values]

    def losses(params, ids, label):
        logits = functional_call(model, dict(zip(names, params)), (ids,)).logits
        return torch.nn.functional.cross_entropy(logits.float(), label, reduction="none")

    def penalty(y, z, psi, ids, label, val_ids, val_label):
        s = torch.sigmoid(psi)
        lower = (s * losses(y, ids, label)).mean() - (s * losses(z, ids, label)).mean()
        return losses(y, val_ids, val_label).mean() + lower

    def draw():
        ids = torch.randint(0, words, (n, batch, length), device=DEVICE)
        return ids, torch.randint(0, 2, (n, batch), device=DEVICE)

    gradients = vmap(grad(penalty, argnums=(0, 1, 2)))
    links = (torch.rand(n, n) < 0.5).float()
    links.fill_diagonal_(1)
    for i in range(n):
        links[(i + 1) % n, i] = 1
    a, b = ((links / links.sum(axis, keepdim=True)).to(DEVICE) for axis in (1, 0))
    mix = lambda m, v: (m @ v.reshape(n, -1)).view_as(v)
    psi, eta = torch.zeros(n, batch, device=DEVICE), 0.005
    s = {"y": stacked(), "z": stacked()}
    dy, dz, _ = gradients(tuple(s["y"]), tuple(s["z"]), psi, *draw(), *draw())
    s |= {"dy": dy, "dz": dz, "ty": [v.clone() for v in dy], "tz": [v.clone() for v in dz]}

    def step(_k):
        for v in "yz":
            s[v] = [mix(a, w) - eta * t for w, t in zip(s[v], s["t" + v])]
        new = gradients(tuple(s["y"]), tuple(s["z"]), psi, *draw(), *draw())
        for v, d in zip("yz", new):
            s["t" + v] = [mix(b, t) + p - q for t, p, q in zip(s["t" + v], d, s["d" + v])]
            s["d" + v] = d

    return step


# JAX.


def jax_mlp(agents: int, x: str, batch: int | None):
    """`small_mlp` in JAX."""
    import jax
    import jax.numpy as jnp

    counts, *given = small_data(agents, x)
    move = lambda tree: {name: jnp.asarray(part.numpy()) for name, part in tree.items()}
    w, train, val = (move(part) if isinstance(part, dict) else [move(own) for own in part] for part in given)

    def losses(w, d):
        out = jax.nn.log_softmax(jnp.tanh(d["a"] @ w["w1"] + w["b1"]) @ w["w2"] + w["b2"])
        return -jnp.take_along_axis(out, d["c"][:, None], axis=1)[:, 0]

    def lower(v, y, d):
        decay = 0.01 * sum((p * p).sum() for p in y.values())
        if x == "shared":
            return losses(y, d).mean() + jax.nn.softplus(v[0]) * decay
        return (jax.nn.sigmoid(v[d["place"]]) * losses(y, d)).mean() + decay

    return dibo.Problem(
        lambda x, y, d: losses(y, d).mean(),
        lower,
        x=jnp.zeros(1) if x == "shared" else [jnp.zeros(count) for count in counts],
        y=w,
        private=x != "shared",
        train=train,
        val=val,
        batch=batch,
        metrics={"norm": (lambda x, y: jnp.linalg.norm(y["w1"]), "neither")},
        single=lambda y, d: losses(y, d).mean(),
    )


def jax_agreement() -> None:
    import jax

    host = jax.devices("cpu")[0]
    fab = dict(lam=2, eta=0.02)
    bilevel = [dibo.FAB(**fab), dibo.StaticFAB(**fab), dibo.RunningSumFAB(**fab), dibo.PushSumFAB(**fab)]
    alone = [dibo.PushPull(eta=0.02), dibo.SubgradientPush(eta=0.02), dibo.PushSGD(eta=0.02)]
    cases = [(4, "shared", None, [*bilevel, *alone, dibo.PushDIGing(eta=0.02)])]
    cases += [(4, x, b, bilevel[:1]) for x, b in (("private", 5), ("ragged", 5), ("ragged", None))]
    cases += [(40, "private", 5, bilevel[:1])]
    worst = 0.0
    # Products as exact as the processor's: by default JAX rounds them to TF32 on a GPU.
    with jax.default_matmul_precision("highest"):
        for agents, x, batch, algorithms in cases:
            with jax.default_device(host):
                problem = jax_mlp(agents, x, batch)
            for algorithm in algorithms:
                label = f"{algorithm.name}, {agents} agents, {x} x, batch {batch}"
                options = dict(iterations=COUNT, every=COUNT)
                try:
                    graph = dibo.Cycle(agents, nu=0.3)
                    with jax.default_device(host):
                        want = dibo.solve(problem, algorithm, graph, device="cpu", **options)
                    found = dibo.solve(problem, algorithm, graph, device=DEVICE, **options)
                    off = max(gap(found, want), abs(found.last["upper_loss"] - want.last["upper_loss"]))
                    off = max(off, abs(found.last["norm"] / want.last["norm"] - 1))
                    print(f"   {label}: {off:.1e}{'' if off < 2e-3 else '  <-- too far'}", flush=True)
                except Exception as error:
                    off = float("inf")
                    print(f"   {label}: {type(error).__name__}: {error}", flush=True)
                    traceback.print_exc()
                worst = max(worst, off)
    line("jax: agreement", f"{worst:.1e}", "< 2e-3", worst < 2e-3)


def jax_manners() -> None:
    import jax
    import jax.numpy as jnp

    wrong = {
        "None": (lambda x, y, d: None, TypeError),
        "a vector": (lambda x, y, d: y, ValueError),
        "whole numbers": (lambda x, y, d: y.sum().astype(int), TypeError),
        "nan": (lambda x, y, d: y.sum() * jnp.nan, ValueError),
        "an exception": (lambda x, y, d: 1 / 0, ZeroDivisionError),
        "a wrong shape": (lambda x, y, d: (y.reshape(7, 7) ** 2).sum(), TypeError),
    }
    t, good, fab = [np.zeros((1, 1), np.float32) for _ in range(3)], 0, dibo.FAB(lam=2, eta=0.02)
    tries = {}
    for name, (loss, kind) in wrong.items():
        problem = dibo.Problem(loss, loss, x=jnp.zeros(1), y=jnp.zeros(2), train=t, val=t)
        tries[name] = (kind, lambda problem=problem: dibo.solve(problem, fab, iterations=5, device=DEVICE))
    if DEVICE != "cpu":
        small, there = jax_mlp(4, "shared", 5), dict(iterations=2, device=DEVICE)
        lossy = dibo.Cycle(4, nu=0.3, loss=0.1)
        tries["second-order"] = ValueError, lambda: dibo.solve(small, dibo.PushPullSOBA(0.01, 0.01), **there)
        tries["lost messages"] = ValueError, lambda: dibo.solve(small, fab, lossy, **there)
        tries["no such GPU"] = RuntimeError, lambda: dibo.solve(small, fab, iterations=2, device="cuda:99")
    for name, (kind, call) in tries.items():
        try:
            call()
            print(f"   {name}: no error  <-- wrong")
        except kind as error:
            good += 1
            print(f"   {name}: {type(error).__name__}: {str(error).splitlines()[0]}")
        except BaseException as error:
            print(f"   {name}: {type(error).__name__}: {error}  <-- wrong kind")
        # What a failed run lent is let go, with Python's lock let go as well.
        gc.collect()
    run = dibo.solve(jax_mlp(4, "ragged", 5), fab, iterations=50, device=DEVICE)
    rows = run.variables["y"]
    where = {device.platform for device in rows.devices()} if isinstance(rows, jax.Array) else {"cpu"}
    good += (where == {"cpu"}) == (DEVICE == "cpu")
    kept = np.array(rows)
    del run
    dibo.solve(jax_mlp(4, "ragged", 5), fab, iterations=50, device=DEVICE)
    good += np.array_equal(np.array(rows), kept)
    total = len(tries) + 2
    line("jax: manners", f"{good} of {total}", f"= {total}", good == total)


def jax_time() -> None:
    """The MLP's cleaning in JAX, beside its compiled function alone, whose result is waited for, too."""
    import jax
    import jax.numpy as jnp

    n, hidden, batch, train, val = (10, 256, 64, 5400, 600) if not SMALL else (4, 8, 5, 30, 10)
    g = np.random.default_rng(0)
    shapes = [(784, hidden), (1, hidden), (hidden, 10), (1, 10)]
    start = [jnp.asarray(0.03 * g.standard_normal(shape), jnp.float32) for shape in shapes]

    def losses(w, d):
        out = jax.nn.log_softmax(jax.nn.relu(d["x"] @ w[0] + w[1]) @ w[2] + w[3])
        return -jnp.take_along_axis(out, d["y"][:, None], axis=1)[:, 0]

    def lower(psi, w, d):
        decay = 0.001 * sum((p * p).sum() for p in w)
        return (jax.nn.sigmoid(psi[d["place"]]) * losses(w, d)).mean() + decay

    def samples(count):
        x, y = g.random((count, 784), np.float32), g.integers(0, 10, count)
        return {"x": x, "y": y, "place": np.arange(count)}

    problem = dibo.Problem(
        lambda psi, w, d: losses(w, d).mean(),
        lower,
        x=[jnp.zeros(train) for _ in range(n)],
        y=start,
        private=True,
        train=[samples(train) for _ in range(n)],
        val=[samples(val) for _ in range(n)],
        batch=batch,
    )
    placed = problem if DEVICE == "cpu" else problem.on(problem.framework.place(DEVICE))
    oracle, owned = placed.oracle(), list(range(n))
    put = lambda tree: jax.device_put(tree, oracle.at)
    y = np.broadcast_to(placed.y0.astype(np.float32), (n, placed.y.width))
    points, factors = put([np.zeros((n, train), np.float32), y, y]), put([np.float32(1)] * 2)
    places = [oracle._fixed(which, owned) for which in (0, 1)]
    compiled, data = jax.jit(oracle._directions(owned)), [placed.val.leaves, placed.train.leaves]

    def step(k):
        jax.block_until_ready(compiled(*points, *factors, data, [at(k) for at in places]))

    graph, count = dibo.ErdosRenyi(n, nu=0.5), 300 if not SMALL else 3
    fab = dibo.FAB(lam=1.0, eta_x=1e-3, eta_y=0.03, eta_z=0.03)
    alone, dibos = [], []
    for _ in range(2):
        alone.append(per_step(step, count))
        dibos.append(per_iteration(problem, fab, graph, count)[0])
    line("jax: dibo, ms an iteration", f"{min(dibos):.3f}", f"runs {[round(v, 3) for v in dibos]}")
    line("jax: its function alone, ms", f"{min(alone):.3f}", f"runs {[round(v, 3) for v in alone]}")
    ratio = min(dibos) / min(alone)
    line("jax: dibo / its function", f"{ratio:.3f}", "<= 1.5", ratio <= 1.5 if not SMALL else None)


def in_jax() -> None:
    try:
        import jax
    except ImportError:
        return line("jax", "left out", "JAX is not installed")
    if DEVICE != "cpu":
        try:
            jax.devices("cuda")
        except RuntimeError:
            return line("jax", "left out", "JAX finds no GPU")
    print(f"JAX {jax.__version__}, {jax.devices()[0].device_kind}", flush=True)
    with jax.default_device(jax.devices("cpu")[0]) if DEVICE == "cpu" else contextlib.nullcontext():
        for part in (jax_agreement, jax_manners, jax_time):
            part()


PARTS = {"agreement": agreement, "manners": manners, "mlp": mlp, "bert": bert, "jax": in_jax}


def main() -> int:
    global DEVICE, SMALL
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(PARTS), nargs="*")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    arguments = parser.parse_args()
    DEVICE, SMALL = arguments.device, arguments.device == "cpu"
    began = time.perf_counter()
    name = torch.cuda.get_device_name() if DEVICE != "cpu" else "the processor"
    print(f"dibo {dibo.__version__}, PyTorch {torch.__version__}, {name}", flush=True)
    for name, part in PARTS.items():
        if arguments.only and name not in arguments.only:
            continue
        at = time.perf_counter()
        try:
            part()
        except Exception as error:
            traceback.print_exc()
            line(name, f"{type(error).__name__}", str(error).splitlines()[0][:60], False)
        print(f"   ({time.perf_counter() - at:.1f} s)", flush=True)
    print(f"\n{'what':42} {'measured':>12}  bar")
    for what, value, bar, word in TABLE:
        print(f"{what:42} {value:>12}  {bar} {word}")
    print(f"{time.perf_counter() - began:.0f} s in all")
    return int(any(word == "MISSED" for *_, word in TABLE))


if __name__ == "__main__":
    sys.exit(main())
