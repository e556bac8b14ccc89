#!/usr/bin/env python3
"""Tunes the methods that SPARKLE's and D-SOBA's authors compare, on tasks like theirs, and writes the experiment
files: `scripts/authors.py policy` writes crates/dibo-paper/experiments/authors-policy.toml, `cleaning` the other.
Every method gets the same seeds (0 to 9, in cleaning 0 to 2), the same grid of steps, all of it to the end, and
about as many gradients and products with second derivatives as the others; the files then run with other seeds.
`--dibo` names the command, `--jobs` how many are tuned at a time."""
import argparse, concurrent.futures, pathlib, re, subprocess, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent

POLICY = """kind = "policy-evaluation"
states = 20
features = 5
f_weight = 1.0
g_weight = 0.5
omega = 0.5
"""

CLEANING = """kind = "cleaning"
data = "mnist-2500"
agents = 10
rho = 0.1
noise = "uniform"
model = "mlp"
hidden = 32
scaling = "unit"
tau = 0.01
batch = 32
"""

# Where a method runs: agents, tables of features, graph.
CASES = {"ring-10": (10, 10, "ring"), "ring-20": (20, 20, "ring"), "alike-20": (20, 1, "ring"),
         "complete-20": (20, 20, "complete")}

# Gradients and products of an agent in an iteration, where they differ from SPARKLE's 5.
WORK = {"d-soba": 4, "fab": 3, "mdbo": 12, "sldbo": 4}


def methods(x, y, fab_x, penalties, mdbo, inner):
    """Each method's keys; a list is an axis of the grid."""
    steps = f"eta_x = {x}\neta_y = {y}\n"
    late = "theta = 0.3\n" + steps
    double = lambda values: [2 * value for value in values]
    return {
        "sparkle-ed": late, "sparkle-extra": late, "sparkle-gt": late, "sparkle-ed-gt": late, "d-soba": late,
        "ma-dsbo": f"inner = {inner[0]}\ninner_z = {inner[1]}\n" + late,
        "mdbo": f"eta = 0.5\nalpha_1 = 1.0\nalpha_2 = 1.0\nbeta_1 = {double(x)}\nbeta_2 = {double(y)}\n"
                f"curvature = {mdbo}\nterms = 10\n",
        "sldbo": "radius_z = 20.0\n" + steps,
        "fab": f"penalty_form = \"normalised\"\nlambda = {penalties}\neta_x = {fab_x}\neta_y = {y}\n",
    }


TASKS = {
    "policy": dict(
        problem=POLICY, iterations=3000, every=30, metric="relative_error", tuning=10,
        methods=methods([0.001, 0.003, 0.01, 0.03], [0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
                        [0.1, 0.3, 1.0, 3.0], [100.0, 300.0], 1.2, (5, 30))),
    "cleaning": dict(
        problem=CLEANING, iterations=300, every=10, metric="loss", tuning=3,
        methods=methods([3.0, 30.0, 300.0], [0.1, 0.3, 0.9], [30.0, 300.0, 3000.0], [1.0, 10.0], 20.0, (1, 6))),
}


def place(case):
    agents, tables, graph = CASES[case]
    return f"agents = {agents}\nfeature_patterns = {tables}\n", graph


def iterations(task, name):
    """As many as take SPARKLE's gradients and products."""
    inner = {"policy": 38, "cleaning": 8}[task]
    work = inner if name == "ma-dsbo" else WORK.get(name, 5)
    return min(TASKS[task]["iterations"] * 5 // work, TASKS[task]["iterations"])


def tune(dibo, folder, task, case, name):
    """The experiment file's block of a method: the steps that `dibo tune` finds, or why it does not run."""
    t, began = TASKS[task], time.time()
    more, graph = place(case) if case else ("cr = 0.2\ntest = 10\n", "ring")
    keys = t["methods"][name]
    file = folder / f"{task}-{case}-{name}.toml"
    file.write_text(f"[problem]\n{t['problem']}{more}\n[graph]\nkind = \"{graph}\"\nundirected = true\n\n[run]\n"
                    f"iterations = {iterations(task, name)}\nevery = {t['every']}\nmetric = \"{t['metric']}\"\n\n"
                    f"[[algorithm]]\nname = \"{name}\"\n{keys}")
    asked = [str(file), "--full", "--seeds", str(t["tuning"]), "--out", str(folder / file.stem)]
    done = subprocess.run([dibo, "tune", *asked, "--quiet", "--threads", "1"], capture_output=True, text=True)
    best = re.search(r"^best: (.*)$", done.stdout, re.M)
    why = (done.stderr.strip().splitlines() or ["nothing was found"])[-1]
    print(f"{task} {case} {name}: {best[1] if best else why} ({time.time() - began:.1f} s)", flush=True)
    if not best:
        return f"# {name}, {case}: {why}\n\n"
    text = re.sub(r"^(\w+) = \[([^,]*),.*$", r"\1 = \2", keys, flags=re.M)
    for pair in best[1].split(", "):
        key, value = pair.split(" = ")
        value = value if re.search(r"[.e]", value) else value + ".0"
        text = re.sub(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.M)
    where = f"case = \"{case}\"\n" if case else ""
    return f"[[algorithm]]\nname = \"{name}\"\n{where}{text}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--dibo", default=str(ROOT / "target/release/dibo"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "crates/dibo-paper/experiments")
    asked = parser.parse_args()
    file = asked.out / f"authors-{asked.task}.toml"
    text = file.read_text()
    # What stands before the first method and after the last was written by hand and stays.
    start, end = text.index("[[algorithm]]"), text.index("[[figure]]")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        blocks = [pool.submit(tune, asked.dibo, pathlib.Path(folder), asked.task, case, name)
                  for case in (CASES if asked.task == "policy" else [None])
                  for name in TASKS[asked.task]["methods"] if case or name != "sldbo"]
        found = "".join(block.result() for block in blocks)
    file.write_text(text[:start] + found + text[end:])


main()
