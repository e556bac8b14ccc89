#!/usr/bin/env python3
"""Tunes every method of the zoo on one task, all with the same budget, and writes the task's experiment
file: `scripts/zoo.py policy` writes crates/dibo-paper/experiments/zoo.toml. Every pair of method and network
gets its own `dibo tune` with seeds 0 to 2 (learning takes longer: there by a coarser grid); the file then runs
with seeds 100 to 104. What dibo refuses is left out, with the reason in a comment. `--dibo` names the command,
`--only` single methods, `--networks` single networks (to try), `--jobs` how many are tuned at a time."""
import argparse, concurrent.futures, pathlib, re, subprocess, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TUNING_SEEDS, SEEDS = 3, [100, 101, 102, 103, 104]

NETWORKS = {
    "static": "kind = \"ring\"\nundirected = true",
    "changing": "kind = \"cycle\"\nnu = 0.3\nundirected = true",
    "directed": "kind = \"erdos-renyi\"\nnu = 0.3\nconnected = true\nredraw = \"never\"",
    "changing-directed": "kind = \"cycle\"\nnu = 0.3",
    "lossy": "kind = \"ring\"\nundirected = true\nloss = 0.2",
}

LEARNING = """data = "mnist-2500"
agents = 10
train = 10
validation = 10
test = 300
noise = "uniform"
cr = 0.4
model = "linear"
scaling = "unit"
"""

TASKS = {
    "policy": dict(
        file="zoo", title="policy evaluation", iterations=2000, every=10, metric="relative_error",
        problem="""kind = "policy-evaluation"
agents = 10
states = 20
features = 5
feature_patterns = 10
f_weight = 1.0
g_weight = 0.5
""",
        x=0.03, y=0.1, fab_x=1.0, penalty=(0.003, 0.0005), curvature=1.2, alpha=0.5, radius=20.0,
        inner=10, double=20),
    "quadratic": dict(
        file="zoo-quadratic", title="the quadratic problem", iterations=1000, every=10,
        metric="relative_error",
        problem="kind = \"quadratic\"\nagents = 10\ndim_x = 5\ndim_y = 10\n",
        x=0.03, y=0.1, fab_x=1.0, penalty=(0.01, 0.001), curvature=3.0, alpha=0.3, radius=20.0,
        inner=6, double=10),
    "cleaning": dict(
        file="zoo-cleaning", title="finding wrong labels", iterations=80, every=5, shown=10, metric="loss",
        problem="kind = \"cleaning\"\n" + LEARNING + "tau = 0.01\n",
        x=30.0, y=0.1, fab_x=300.0, penalty=(10.0, 0.01), curvature=20.0, alpha=0.05, radius=1000.0,
        inner=2, double=3),
    "tuning": dict(
        file="zoo-tuning", title="learning a regulariser", iterations=80, every=5, shown=10, metric="loss",
        problem="kind = \"tuning\"\n" + LEARNING + "tau_form = \"exp\"\ntau = 0.1\n",
        x=0.1, y=0.1, fab_x=0.1, penalty=(0.01, 0.01), curvature=20.0, alpha=0.05, radius=1000.0,
        inner=2, double=3),
}

ONE_LEVEL = ["push-pull", "subgradient-push", "push-sgd", "push-diging", "push-saga", "push-asgd", "dgd",
             "diffusion", "diging", "atc-tracking", "aug-dgm", "exact-diffusion", "extra"]


def methods(task):
    """Each method's parameters; `dibo tune` looks around the steps and over its own values of λ and μ."""
    t = TASKS[task]
    x, y = t["x"], t["y"]
    steps = f"eta_x = {x}\neta_y = {y}\n"
    # Where something is learned, λ is one of two values, the same for all; elsewhere `dibo tune` looks further.
    first = 10.0 if "noise" in t["problem"] else 30.0
    fab = f"penalty_form = \"normalised\"\nlambda = {first}\neta_x = {t['fab_x']}\neta_y = {y}\n"
    late = "theta = 0.3\n" + steps
    px, py = t["penalty"]
    written = f"lambda = 10.0\neta_x = {px}\neta_y = {py}\n"
    neumann = f"curvature = {t['curvature']}\nterms = 10\n"
    damped = f"eta = 0.5\nalpha_1 = 1.0\nalpha_2 = 1.0\nbeta_1 = {2 * x}\nbeta_2 = {2 * y}\n" + neumann
    moreau = "mu = 0.1\ngamma = 1.0\n" + steps
    double = f"inner = {t['double']}\ninner_start = \"kept\"\neta = 0.001\n"
    all_of = {
        "fab": fab, "centralized-fab": fab, "static-fab": fab, "running-sum-fab": fab, "push-sum-fab": fab,
        "push-pull-soba": steps, "push-soba": steps, "d-soba": late, "d-soba-fo": "delta = 0.001\n" + late,
        "sparkle-gt": late, "sparkle-ed": late, "sparkle-extra": late, "sparkle-ed-gt": late,
        "sldbo": f"radius_z = {t['radius']}\n" + steps, "mdbo": damped, "vrdbo": damped,
        "dsgda-gt": written, "penalty-storm": "a = 0.1\n" + written,
        "sun-dsbo-gt": moreau, "sun-dsbo-se": moreau,
        "ma-dsbo": f"inner = {t['inner'] // 2}\ninner_z = {3 * t['inner']}\n" + late,
        "c2dfb": "inner = 4\ngossip_in = 0.5\ngossip_out = 0.5\n" + written,
        "hgp": f"alpha = {t['alpha']}\ninner = {t['inner']}\nterms = {t['inner']}\npushes = 3\n" + steps,
        "dl-push-pull": double, "dl-push-sgd": double, "dl-push-saga": double,
        "dl-push-asgd": "beta = 0.5\n" + double,
    }
    if task in ["cleaning", "tuning"]:
        # Learning takes longer: a coarser grid for everyone, as lists.
        all_of = {name: coarser(keys) for name, keys in all_of.items()}
        for name in ONE_LEVEL:
            all_of[name] = ("beta = 0.5\n" if name == "push-asgd" else "") + \
                "eta = [0.03, 0.1, 0.3, 1.0]\ntau = [0.001, 0.01]\n"
    return all_of


def coarser(keys):
    """Three steps of x, two of y, two penalties."""
    wide, narrow = [0.1, 1.0, 10.0], [1.0, 4.0]
    factors = {"eta_x": wide, "beta_1": wide, "eta_y": narrow, "beta_2": narrow,
               "lambda": [0.1, 1.0], "mu": [1.0, 10.0], "eta": [1.0, 10.0, 100.0]}
    lines = []
    for line in keys.splitlines():
        key, value = line.split(" = ")
        listed = key in factors and not (key == "eta" and "beta_1" in keys)
        values = [float(f"{f * float(value):.3g}") for f in factors[key]] if listed else value
        lines.append(f"{key} = {values}")
    return "\n".join(lines) + "\n"


def found(text, best):
    """The parameters with what was found in the place of what was there."""
    for pair in best.split(", "):
        key, value = pair.split(" = ")
        value = value if re.search(r"[.e]", value) else value + ".0"
        line = re.compile(rf"^{key} = .*$", re.M)
        text = line.sub(f"{key} = {value}", text) if line.search(text) else text + f"{key} = {value}\n"
    return text


def tune(dibo, folder, task, network, name, keys):
    """What the experiment file says of a method over one network: the parameters that `dibo tune` finds, or
    why it does not run."""
    if name == "centralized-fab" and network != "static":
        return f"# {name}, {network}: uses no links\n\n"
    t, began = TASKS[task], time.time()
    # Steps are chosen by the validation loss: test images would only cost time.
    problem = t["problem"].replace("test = 300", "test = 10")
    file = folder / f"{task}-{network}-{name}.toml"
    file.write_text(f"[problem]\n{problem}\n[graph]\n{NETWORKS[network]}\n\n[run]\n"
                    f"iterations = {t['iterations']}\nevery = {t['every']}\nmetric = \"{t['metric']}\"\n\n"
                    f"[[algorithm]]\nname = \"{name}\"\n{keys}")
    asked = [str(file), "--seeds", str(TUNING_SEEDS), "--quiet", "--threads", "1", "--out", str(folder / file.stem)]
    done = subprocess.run([dibo, "tune", *asked], capture_output=True, text=True)
    why = (done.stderr.strip().splitlines() or [""])[-1] if done.returncode else ""
    why = "diverges at every step of the grid" if "diverged" in why else why
    why = re.sub(r".*(needs [^;]*).*", r"\1", why)
    best = re.search(r"^best: (.*)$", done.stdout, re.M)
    print(f"{task} {network} {name}: {best[1] if best else why} ({time.time() - began:.1f} s)", flush=True)
    if not best:
        return f"# {name}, {network}: {why}\n\n"
    keys = re.sub(r"^(\w+) = \[([^,]*),.*$", r"\1 = \2", keys, flags=re.M)
    return f"[[algorithm]]\nname = \"{name}\"\ncase = \"{network}\"\n{found(keys, best[1])}\n"


def head(task):
    t = TASKS[task]
    cases = ""
    for name, graph in NETWORKS.items():
        keys = "".join(f"graph.{line}\n" for line in graph.splitlines())
        cases += f"[[case]]\nname = \"{name}\"\n{keys}\n"
    command = f"scripts/zoo.py {task}, which tunes each method by `dibo tune`"
    return f"""# Steps: {command} on seeds 0 to {TUNING_SEEDS - 1}.
title = "The field's methods on {t['title']}, over five networks"
about = \"\"\"
Every method of dibo on {t['title']}, ten agents, over five networks. A block belongs to the network that its
`case` names; its steps were found there by `dibo tune`, all with the same budget: the method's own axes,
{TUNING_SEEDS} seeds, {t['iterations']:,} iterations, {t['metric'].replace('_', ' ')} at the end. The runs have
other seeds. docs/zoo.md has the tables.
\"\"\"
seeds = {SEEDS}

[problem]
{t['problem']}
[graph]
kind = "ring"

[run]
iterations = {t['iterations']}
every = {t.get('shown', t['every'])}
metric = "{t['metric']}"

{cases}"""


def figures(task):
    y, log, what = "test_accuracy", "x", "Test accuracy of the averaged model"
    if task in ["policy", "quadratic"]:
        y, log, what = "relative_error", "xy", "Relative error of the mean x"
    text = ""
    for words in ["iterations", "bytes", "gradients", "seconds"]:
        name, axis = ("error", "") if words == "iterations" else (words, f"x = \"{words}\"\n")
        title = f"{what} against {words}"
        text += f"\n[[figure]]\nname = \"{name}\"\ntitle = \"{title}\"\n{axis}y = \"{y}\"\nlog = \"{log}\"\n"
        text += "panels = \"algorithm.case\"\n"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--dibo", default=str(ROOT / "target/release/dibo"))
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "crates/dibo-paper/experiments")
    asked = parser.parse_args()
    text = head(asked.task)
    began = time.time()
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        place = [asked.dibo, pathlib.Path(folder), asked.task]
        blocks = [pool.submit(tune, *place, network, name, keys)
                  for name, keys in methods(asked.task).items() if not asked.only or name in asked.only
                  for network in asked.networks]
        text += "".join(block.result() for block in blocks)
    text += "# cell, everywhere: any cell by hand; those with a name stand here\n"
    text += "# single-cell, everywhere: any cell by hand; those with a name stand here\n"
    if asked.task in ["policy", "quadratic"]:
        text += "".join(f"# {name}, everywhere: one level, which is not this problem\n" for name in ONE_LEVEL)
    file = asked.out / f"{TASKS[asked.task]['file']}.toml"
    file.write_text(text.rstrip("\n") + "\n" + figures(asked.task))
    print(f"{time.time() - began:.0f} s")


main()
