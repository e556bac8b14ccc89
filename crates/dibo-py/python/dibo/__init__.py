"""dibo: distributed bilevel optimisation over directed networks that change at every step.

Many agents, each with private data, minimise F(x, y*(x)) where y*(x) minimises G(x, ·). Write two losses in
PyTorch or JAX, or two gradients in NumPy:

>>> import dibo, numpy as np
>>> targets = [np.array([[float(i)]]) for i in range(4)]
>>> upper = lambda x, y, t: (np.zeros(1), y - t[0])          # f_i = ½ (y − t_i)²
>>> lower = lambda x, y, t: (x - y, y - x)                   # g_i = ½ (y − x)²
>>> problem = dibo.GradientProblem(upper, lower, x=np.zeros(1), y=np.zeros(1), train=targets, val=targets)
>>> run = dibo.solve(problem, dibo.FAB(lam=10, eta=0.02), dibo.Ring(4), iterations=2000)
>>> run.status, round(float(run.x[0]), 3)
('finished', 1.5)

`solve` runs one algorithm, `compare` several, `plot` draws; `run`, `check`, `tune` and `clean` are the
command's own, and ``python -m dibo`` is the command. pandas, PyTorch and JAX are imported when they are
needed.
"""

from typing import TYPE_CHECKING, Any

from ._algorithms import (
    FAB,
    Algorithm,
    CentralizedFAB,
    DoubleLoop,
    PushASGD,
    PushDIGing,
    PushPull,
    PushPullSOBA,
    PushSAGA,
    PushSGD,
    PushSumFAB,
    RunningSumFAB,
    StaticFAB,
    SubgradientPush,
    algorithms,
)
from ._core import __version__
from ._graphs import (
    Alone,
    Complete,
    Cycle,
    ErdosRenyi,
    Exponential,
    Graph,
    Links,
    Matrices,
    OnePeerExponential,
    Ring,
)

if TYPE_CHECKING:
    from ._agent import Agent, certificates
    from ._experiments import Cleaned, LabelCleaner, Picture, Results, check, clean, command, plot, run, tune
    from ._problem import GradientProblem, PolicyEvaluation, Problem, Quadratic, Robust
    from ._run import Run, compare, solve

# All but algorithms and graphs is loaded when it is asked for.
_LATER: dict[str, tuple[str, ...]] = {
    "_problem": ("GradientProblem", "PolicyEvaluation", "Problem", "Quadratic", "Robust"),
    "_run": ("Run", "compare", "solve"),
    "_agent": ("Agent", "certificates"),
    "_experiments": (
        "Cleaned",
        "LabelCleaner",
        "Picture",
        "Results",
        "check",
        "clean",
        "command",
        "plot",
        "run",
        "tune",
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            import importlib

            return getattr(importlib.import_module(f".{module}", __name__), name)
    raise AttributeError(f"module 'dibo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "FAB",
    "Agent",
    "Algorithm",
    "Alone",
    "CentralizedFAB",
    "Cleaned",
    "Complete",
    "Cycle",
    "DoubleLoop",
    "ErdosRenyi",
    "Exponential",
    "GradientProblem",
    "Graph",
    "LabelCleaner",
    "Links",
    "Matrices",
    "OnePeerExponential",
    "Picture",
    "PolicyEvaluation",
    "Problem",
    "PushASGD",
    "PushDIGing",
    "PushPull",
    "PushPullSOBA",
    "PushSAGA",
    "PushSGD",
    "PushSumFAB",
    "Quadratic",
    "Results",
    "Ring",
    "Robust",
    "Run",
    "RunningSumFAB",
    "StaticFAB",
    "SubgradientPush",
    "__version__",
    "algorithms",
    "certificates",
    "check",
    "clean",
    "command",
    "compare",
    "plot",
    "run",
    "solve",
    "tune",
]
