//! The page about the paper, made of the results that are kept: every figure and table with its command,
//! every claim with its verdict. No number of theirs is typed by hand.
use crate::claims::{BOUNDS, JUDGES};
use crate::kept::{End, Kept};
use dibo_report::report::words::number;

/// A figure or table of the paper, the experiment that makes it, and what that shows.
type Part = (&'static str, &'static str, &'static str);

const PARTS: &[Part] = &[
    ("network", "topology", "one graph of each phase, and how agents come to agree"),
    ("Table 1 of the appendix", "sensitivity", "iterations to 1 % for 21 settings of λ, ηx, ηy, ηz"),
    ("figure RLNOISE", "rlnoise", "FAB against double loops, two densities and noise levels"),
    ("the same, in short", "policy", "FAB, push-sum and two double loops on ten agents"),
    ("noise study", "noise-sensitivity", "the same with ω = 1, 2, 3, in two readings of the noise"),
    ("connectivity study", "connectivity", "the same with ν = 0.5, 0.3, 0.1"),
    ("figure RLBO", "rlbo", "centralised, static, push-sum and second-order variants"),
    ("text on RLBO", "rlbo-steps", "the largest step that FAB and PushSum_FAB bear"),
    ("figure THAS (a)", "ring-size", "more agents on a ring"),
    ("figure THAS (b)", "ring-weights", "smaller weights on a ring"),
    ("figure RLn100, n = 100", "rl-n100", "100 agents"),
    ("figure RLn100, n = 1000", "rl-n1000", "1000 agents"),
    (
        "figures 1 and 6",
        "tuning",
        "a regulariser learned on MNIST, as printed, learned and frozen, against grids",
    ),
    ("why its τ does not settle", "tuning-why", "the same for many λ and τ"),
    ("figure FMCR", "fmcr", "label cleaning on Fashion-MNIST with an MLP (needs the data)"),
    ("beside figure FMCR", "fmcr-simple", "simple ways of cleaning on its setting (needs the data)"),
    ("figure FMHETER", "fmheter", "the same over unlike agents"),
    ("figure FMnet", "fmnet", "the same over sparse networks"),
    ("figure BERTSUM", "imdb", "ten BERTs on IMDB with wrong labels (needs the data and a GPU)"),
    ("figure BERTSUM (a), 20 epochs", "imdb-long", "its first panel for as long as printed"),
    ("figure BERTSUM (b), 20 epochs", "imdb-long-cr", "its second panel, cr = 0.4, for as long as printed"),
    ("figure BERTSUM (c), 20 epochs", "imdb-long-nu", "its third panel, ν = 0.1, for as long as printed"),
    ("figure BERTSUM (d), 20 epochs", "imdb-long-rho", "its fourth panel, ρ = 1, for as long as printed"),
    (
        "figure on BERT's runtime",
        "imdb-cr",
        "the same by time at small and large corruption rates (three runs at a time on one GPU)",
    ),
    (
        "figure on the model size",
        "model-size",
        "bytes, peak memory and time against the hidden layer (needs the data)",
    ),
    (
        "the rate",
        "rate",
        "hypergradient and consensus against K, bias against λ, from 0 and with a warm start",
    ),
    ("the rate, nonconvex", "rate-nonconvex", "the same on a nonconvex problem"),
    ("the rate of AB/Push-Pull", "rate-push-pull", "its mean squared gradient on a nonconvex problem"),
    ("beyond the assumption", "windows", "agents that send in turn: connected over windows only"),
    ("open end", "growing-penalty", "schedules λ_k against the best fixed penalty"),
    ("open end, cleaning", "growing-penalty-cleaning", "the same in test accuracy"),
    (
        "published by others",
        "benchmark-bilevel",
        "test errors of MNIST cleaning beside ours (needs the data)",
    ),
    ("published by others", "bome", "linear baselines at 50 % noise beside ours (needs the data)"),
    ("claimed by others", "authors-policy", "SPARKLE's and D-SOBA's claims on policy evaluation"),
    ("claimed by others", "authors-cleaning", "the same on cleaning wrong labels"),
];

/// Said where nothing is kept.
const NOT_KEPT: &str = "not kept yet";

/// A cell of a table: no bars, no line ends.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

pub(crate) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(head.iter().map(|h| cell(h)).collect());
    text += &line(vec!["---".into(); head.len()]);
    rows.into_iter().for_each(|row| text += &line(row.iter().map(|c| cell(c)).collect()));
    text
}

/// A claim in plain words.
pub(crate) fn statement(id: &str) -> &'static str {
    JUDGES.iter().find(|judge| judge.id == id).map_or("", |judge| judge.statement)
}

fn count(seeds: usize) -> String {
    if seeds == 1 { "1 seed".into() } else { format!("{seeds} seeds") }
}

fn seconds(s: f64) -> String {
    if s < 90.0 { format!("{s:.0} s") } else { format!("{:.0} min", s / 60.0) }
}

/// The whole page.
pub fn page(kept: &[Kept]) -> String {
    let of = |name: &str| kept.iter().find(|k| k.name == name);
    let parts = PARTS.iter().map(|(what, name, shows)| {
        let found =
            of(name).map_or(NOT_KEPT.into(), |k| format!("{}, {}", count(k.seeds), seconds(k.seconds)));
        vec![what.to_string(), format!("`dibo run {name}`"), shows.to_string(), found]
    });
    let mut text = format!(
        "{}\n{}\n{}",
        include_str!("page/head.md"),
        table(&["of the paper", "command", "shows", "kept"], parts),
        include_str!("page/claims.md")
    );
    text += "\n";
    text += &claims(kept);
    text += "\n## How to read the numbers\n\n";
    for k in kept {
        for claim in k.claims.iter().filter(|c| !c.reading.is_empty()) {
            text += &format!("- **{}** (`{}`): {}\n", claim.id, k.name, claim.reading.replace('\n', " "));
        }
    }
    text +=
        "\n## Bounds\n\nWhere a judge needs a bound, it is one of these; T5's was set after a first run.\n\n";
    let bounds = BOUNDS.iter().map(|(claim, what, value, why)| {
        vec![claim.to_string(), what.to_string(), number(*value), why.to_string()]
    });
    text += &table(&["claim", "what is bounded", "bound", "why"], bounds);
    for k in kept {
        text += &results(k);
    }
    text + "\n" + include_str!("page/notes.md")
}

/// Every claim, with each kept experiment that judges it.
fn claims(kept: &[Kept]) -> String {
    let mut rows = Vec::new();
    for judge in JUDGES {
        let found: Vec<_> = kept
            .iter()
            .flat_map(|k| k.claims.iter().filter(|c| c.id == judge.id).map(move |c| (k, c)))
            .collect();
        if found.is_empty() {
            rows.push(vec![judge.id.into(), judge.statement.into(), NOT_KEPT.into(), "–".into(), "–".into()]);
        }
        for (k, claim) in found {
            rows.push(vec![
                judge.id.into(),
                judge.statement.into(),
                format!("**{}**", claim.verdict),
                if claim.number.is_empty() { claim.reading.clone() } else { claim.number.clone() },
                format!("`{}`", k.name),
            ]);
        }
    }
    table(&["", "claim", "verdict", "number", "from"], rows)
}

/// The ends of an experiment's series, and its tables.
fn results(k: &Kept) -> String {
    let ends = k.ends.iter().map(|e| {
        let last = e.last.map_or("–".into(), |(mean, sd)| format!("{} ± {}", number(mean), number(sd)));
        vec![e.label.clone(), e.outcomes.clone(), number(e.iterations), last]
    });
    let mut text = format!(
        "\n## {}\n\n{}. `{}`, {}, dibo {}, {}, {}.\n\n",
        k.name,
        k.title,
        k.command,
        seconds(k.seconds),
        k.version,
        k.date,
        k.machine
    );
    text += &table(&["", "runs", "iterations", &format!("{} at the end", k.metric)], ends);
    for (title, rows) in &k.tables {
        let head: Vec<&str> = rows.first().map_or(Vec::new(), |h| h.iter().map(String::as_str).collect());
        text += &format!("\n{title}:\n\n{}", table(&head, rows.iter().skip(1).cloned()));
    }
    text
}

/// What README says of the quick start, in the kept result's own numbers: the sites together and alone, and
/// cleanlab with all rows in one place.
pub fn labels_in_short(kept: &[Kept]) -> Option<[String; 4]> {
    let k = kept.iter().find(|k| k.name == "quickstart")?;
    let of = |metric: &'static str| move |e: &End| e.others.get(metric).copied();
    let (accuracy, auc) = (of("test_accuracy"), of("auc"));
    let shown = |(mean, sd): (f64, f64), digits: usize| format!("{mean:.digits$} ± {sd:.digits$}");
    let together = k.ends.iter().find(|e| e.label.starts_with("noise matrix graph=cycle"))?;
    let alone = k.ends.iter().filter(|e| e.label.contains("graph=none")).filter_map(accuracy);
    let best = alone.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let peer =
        k.tables.iter().find_map(|(_, rows)| rows.iter().find(|row| row[0].starts_with("cleanlab")))?;
    Some([
        format!("an AUC of {} and classify {} %", shown(auc(together)?, 3), shown(accuracy(together)?, 1)),
        format!("alone at most {} %", shown(best, 1)),
        format!("{} % of the labels are right", shown(of("right_after")(together)?, 1)),
        format!("{} and {} %", peer.get(1)?, peer.get(2)?),
    ])
}

/// What README says of the paper's table, in the kept result's own numbers.
pub fn table_in_short(kept: &[Kept]) -> Option<String> {
    let k = kept.iter().find(|k| k.name == "sensitivity")?;
    let claim = k.claims.iter().find(|c| c.id == "TABLE")?;
    let number = claim.number.split("; margin").next()?;
    Some(format!("{number}, {} seeds", k.seeds))
}
