#!/usr/bin/env python3
"""Breaks the code in many small ways and asks whether a test notices. cargo-mutants lists the ways; of them
`--number` are drawn with `--seed`, in proportion over the areas below. All are compiled in at once, each as a
copy of its function's body that DIBO_MUTANT=n turns on: one build instead of a hundred. A first run of each
test notes which of these functions it reaches; a mutant then meets the tests that reach it, the shortest
first, until one fails. Works in target/mutants alone."""
import argparse, collections, json, os, pathlib, random, re, subprocess, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "target/mutants"
TREE = WORK / "tree"
AREAS = {
    "algorithms": r"crates/dibo/src/algorithm/",
    "mixing": r"crates/dibo/src/(mixing|network|network/\w+|kernels/(mixing|exchange))\.rs",
    "graphs": r"crates/dibo/src/graph/",
    "problems": r"crates/dibo/src/problem/",
    "judges": r"crates/dibo-paper/src/claims/",
}
JUDGES = 15  # at least
PACKAGES = ["-p", "dibo", "-p", "dibo-paper"]
SWITCH = """
#[doc(hidden)]
pub fn mutant(n: usize) -> bool {
    use std::sync::{LazyLock, atomic::{AtomicBool, Ordering::Relaxed}};
    static ON: LazyLock<Option<usize>> = LazyLock::new(|| std::env::var("DIBO_MUTANT").ok()?.parse().ok());
    static SEEN: [AtomicBool; 4096] = [const { AtomicBool::new(false) }; 4096];
    if !SEEN[n].load(Relaxed) && !SEEN[n].swap(true, Relaxed) {
        if let Ok(file) = std::env::var("DIBO_REACHED") {
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
            std::io::Write::write_all(&mut file, format!("{n}\\n").as_bytes()).unwrap();
        }
    }
    *ON == Some(n)
}
"""


def output(*command, **options):
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True, **options).stdout


def listed():
    """All that cargo-mutants can do to each area."""
    found = json.loads(output("cargo", "mutants", "--list", "--json", *PACKAGES))
    found = [m for m in found if m["function"]]
    of = lambda area: [{**m, "area": area} for m in found if re.match(AREAS[area], m["file"])]
    return {area: of(area) for area in AREAS}


def drawn(seed, number):
    """Mutants in random order, with spare ones for those that do not compile, and each area's share."""
    areas = listed()
    total = sum(map(len, areas.values()))
    share = {a: round(number * len(m) / total) for a, m in areas.items()}
    share["judges"] = max(share["judges"], JUDGES)
    share[max(share, key=share.get)] -= sum(share.values()) - number
    rng, chosen = random.Random(seed), []
    for area, all_of in areas.items():
        rng.shuffle(all_of)
        chosen += all_of[:2 * share[area] + 4]
    print({a: f"{share[a]} of {len(m)}" for a, m in areas.items()})
    return chosen, share


def again(logs):
    """Those that survived in earlier runs, which wrote these."""
    names = {name for log in logs for name in re.findall(r"^SURVIVED .*? - (.*)$", log.read_text(), re.M)}
    left = [m for all_of in listed().values() for m in all_of if m["name"] in names]
    print(f"{len(left)} of {len(names)} that survived are still there")
    return left, collections.Counter(m["area"] for m in left)


def write_tree(mutants):
    """The working tree with all these mutants in it. Returns which lines of which file are whose."""
    files = {name: (ROOT / name).read_bytes() for name in output("git", "ls-files").split()}
    for crate in ("dibo", "dibo-paper"):
        files[f"crates/{crate}/src/lib.rs"] += SWITCH.encode()
    lines = {}
    for file in {m["file"] for m in mutants}:
        text = mutated(files[file].decode(), [m for m in mutants if m["file"] == file])
        files[file], owner = text.encode(), None
        for number, line in enumerate(text.split("\n"), 1):
            begins = re.search(r"/\*(\d+)\*/$", line)
            owner = int(begins[1]) if begins else None if line.startswith("/*end*/") else owner
            lines[file, number] = owner
    for name, content in files.items():
        path = TREE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
    return lines


def mutated(text, mutants):
    """A file in which the bodies of functions begin with copies, one for each mutant."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    ends = lambda s: tuple(starts[s[e]["line"] - 1] + s[e]["column"] - 1 for e in ("start", "end"))
    functions = {ends(m["function"]["span"]) for m in mutants}
    bodies = collections.defaultdict(list)
    for m in mutants:  # of functions within one another the outermost is copied
        (a, b) = ends(m["span"])
        bodies[min(f for f in functions if f[0] <= a and b <= f[1])].append((a, b, m))
    for (start, end), here in sorted(bodies.items(), reverse=True):
        depth = 0  # the body begins after attributes, comments and parameters
        while depth or text[start] != "{":
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(text[start], 0)
            start = text.index("\n", start) if text.startswith("//", start) else start + 1
        copies = ""
        for a, b, m in here:
            copies += f"if crate::mutant({m['id']}) {{ /*{m['id']}*/\n"
            copies += f"{text[start + 1:a]}{m['replacement']}{text[b:end - 1]}\n/*end*/}} else "
        text = text[:start + 1] + copies + text[start:end] + text[end - 1:]
    return text


def built(left):
    """The mutants that compile, and the test programs with them inside."""
    env = {**os.environ, "CARGO_TARGET_DIR": str(WORK), "CARGO_PROFILE_DEV_DEBUG": "0"}
    verbs = [["build", "-p", "dibo"], ["build", "-p", "dibo-paper"], ["test", "--no-run", *PACKAGES]]
    while verbs:
        lines, bad, outside, programs = write_tree(left), set(), set(), []
        command = ["cargo", *verbs[0], "--message-format=json"]
        run = subprocess.run(command, cwd=TREE, env=env, capture_output=True, text=True)
        for message in map(json.loads, run.stdout.splitlines()):
            if message.get("executable") and message["profile"]["test"]:
                programs.append((message["executable"], pathlib.Path(message["manifest_path"]).parent))
            if message["reason"] == "compiler-message" and message["message"]["level"] == "error":
                for span in message["message"]["spans"]:
                    while span:  # out of macros
                        outside.add((span["file_name"], span["line_start"]))
                        bad.add(lines.get((span["file_name"], span["line_start"])))
                        span = (span["expansion"] or {}).get("span")
        bad.discard(None)
        # A copy that gives another type than `impl Trait` is not at fault where the compiler says so.
        for file, number in outside if run.returncode and not bad else []:
            above = [lines[file, n] for n in range(number) if lines.get((file, n))]
            ours = {m["function"]["function_name"] for m in left if above and m["id"] == above[-1]}
            bad |= {m["id"] for m in left if m["file"] == file and m["function"]["function_name"] in ours}
        if run.returncode and not bad:
            raise SystemExit(run.stderr)
        for m in left:
            if m["id"] in bad:
                print("does not compile:", m["name"], flush=True)
        left = [m for m in left if m["id"] not in bad]
        verbs = verbs if bad else verbs[1:]
    return left, programs


def passes(program, folder, test, limit, **env):
    command, env = [program, "--exact", test], {**os.environ, **env}
    try:
        return not subprocess.run(command, cwd=folder, env=env, capture_output=True, timeout=limit).returncode
    except subprocess.TimeoutExpired:
        return False


def reach(programs):
    """Every test, with its time and the mutants whose functions it reaches, the shortest first."""
    tests, note = [], WORK / "reached"
    for program, folder in programs:
        for test in re.findall(r"^(.*): test$", output(program, "--list", "--format", "terse"), re.M):
            note.write_text("")
            began = time.monotonic()
            if passes(program, folder, test, 600, DIBO_REACHED=str(note)):
                reached = set(map(int, note.read_text().split()))
                tests.append((time.monotonic() - began, program, folder, test, reached))
            else:
                print("fails without a mutant and is left out:", test, flush=True)
    return sorted(tests, key=lambda t: t[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--again", nargs="+", type=pathlib.Path, metavar="LOG", help="those that survived")
    options = parser.parse_args()
    mutants, share = again(options.again) if options.again else drawn(options.seed, options.number)
    mutants = [{**m, "id": n} for n, m in enumerate(mutants, 1)]
    mutants, programs = built(mutants)
    mutants = [m for a in AREAS for m in [m for m in mutants if m["area"] == a][:share[a]]]
    tests, count = reach(programs), collections.Counter()
    print(f"{len(mutants)} mutants, {len(tests)} tests of {sum(t[0] for t in tests):.0f} s", flush=True)
    random.Random(options.seed).shuffle(mutants)
    for m in mutants:
        facing = [t for t in tests if m["id"] in t[4]]
        by = next((t for t in facing if not passes(*t[1:4], 20 + 10 * t[0], DIBO_MUTANT=str(m["id"]))), None)
        count[m["area"], bool(by)] += 1
        print(f"caught by {by[3]}" if by else f"SURVIVED {len(facing)} tests", "-", m["name"], flush=True)
    for area in AREAS:
        print(f"{area}: {count[area, True]} of {count[area, True] + count[area, False]} caught")


if __name__ == "__main__":
    main()
