//! What a run leaves to take home, for whoever looks at it: tables of the report, and the files of the
//! setting that was chosen put in front.
use anyhow::{Context, Result};
use dibo_report::report::{Body, Extra, Place, words};
use dibo_report::results::Manifest;
use std::collections::BTreeMap;
use std::path::Path;

/// Rows that a report shows.
const SHOWN: usize = 20;

/// The file that says which setting was chosen, by its number in the first line, and why.
const CHOSEN: &str = "chosen.txt";

/// The picture of the setting that was chosen, where it was done again.
const PICTURE: &str = "chosen.svg";

/// Where a setting of these results left its files.
pub fn folder(out: &Path, series: usize) -> std::path::PathBuf {
    out.join("taken").join(series.to_string())
}

/// Copies the files of one setting, or those that it left when it was done again, to the top of a results
/// folder; `why` tells readers of the report why this one.
pub fn put_in_front(out: &Path, series: usize, again: Option<&Path>, why: &str) -> Result<()> {
    let folder = again.map_or_else(|| folder(out, series), |again| folder(again, 0));
    let what = || format!("cannot read {}", folder.display());
    for entry in std::fs::read_dir(&folder).with_context(what)? {
        let from = entry.with_context(what)?.path();
        let to = out.join(from.file_name().unwrap_or_default());
        std::fs::copy(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
    }
    let taken = out.join("taken");
    let _ = std::fs::remove_file(taken.join(PICTURE));
    // Only images leave one.
    let _ = again.map(|again| std::fs::copy(again.join("runs").join("0.svg"), taken.join(PICTURE)));
    let file = taken.join(CHOSEN);
    std::fs::write(&file, format!("{series}\n{why}"))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// The setting that was chosen, and why; nothing where none was.
fn chosen(out: &Path) -> Option<(usize, String)> {
    let text = std::fs::read_to_string(out.join("taken").join(CHOSEN)).ok()?;
    let (series, why) = text.split_once('\n').unwrap_or((&text, ""));
    Some((series.trim().parse().ok()?, why.trim().into()))
}

/// The picture of a setting that was chosen and done again.
pub fn picture(out: &Path, series: usize) -> Option<String> {
    chosen(out).filter(|chosen| chosen.0 == series)?;
    std::fs::read_to_string(out.join("taken").join(PICTURE)).ok()
}

type Lines = Vec<Vec<String>>;

/// The head and the lines of a CSV file, if it is there.
fn lines(file: &Path, most: usize) -> Result<Option<Lines>> {
    if !file.exists() {
        return Ok(None);
    }
    let what = || format!("cannot read {}", file.display());
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_path(file).with_context(what)?;
    let lines = reader.records().take(most).map(|r| Ok(r?.iter().map(String::from).collect()));
    lines.collect::<Result<Lines>>().with_context(what).map(Some)
}

fn number(line: &[String], at: usize) -> f64 {
    line.get(at).and_then(|v| v.parse().ok()).unwrap_or(0.0)
}

/// How many labels of all owners are called wrong, in words.
fn in_all(owners: &Lines) -> String {
    let sum = |at: usize| owners.iter().skip(1).map(|line| number(line, at)).sum::<f64>();
    let (rows, suspicious) = (sum(1), sum(3));
    let share = 100.0 * suspicious / f64::max(rows, 1.0);
    format!("{suspicious:.0} of {rows:.0} labels look wrong ({share:.1} %)")
}

/// How many labels are called wrong in all and by owner, in words.
pub fn summary(out: &Path) -> Result<String> {
    let Some(owners) = lines(&out.join("owners.csv"), usize::MAX)? else { return Ok(String::new()) };
    let mut text = in_all(&owners) + ".\n";
    for line in owners.iter().skip(1).take(SHOWN) {
        let share = 100.0 * number(line, 4);
        text += &format!("  {}: {} of {} rows ({share:.1} %)\n", line[0], line[3], line[1]);
    }
    if owners.len() > SHOWN + 1 {
        text += &format!("  … and {} more owners in owners.csv\n", owners.len() - SHOWN - 1);
    }
    Ok(text)
}

/// The setting whose files are shown: the chosen one, else the first that left any.
pub fn shown(out: &Path, manifest: &Manifest) -> Option<usize> {
    let first = || (0..manifest.series.len()).find(|s| folder(out, *s).join("labels.csv").exists());
    chosen(out).map(|chosen| chosen.0).or_else(first)
}

/// Files that whoever looks for wrong labels goes on with.
const FILES: [&str; 5] = ["labels.csv", "cleaned.csv", "owners.csv", "noise.csv", "model.onnx"];

/// What a report opens with where a setting was chosen: how many labels look wrong, and who says so.
fn result(out: &Path, why: &str) -> Result<Option<Extra>> {
    let owners = lines(&out.join("owners.csv"), usize::MAX)?;
    let files = FILES.into_iter().filter(|file| out.join(file).exists()).map(String::from).collect();
    // The words of a terminal, where a line is a paragraph.
    let text = Body::Text(why.lines().collect::<Vec<_>>().join("\n\n"), files);
    Ok(owners.filter(|owners| owners.len() > 1).map(|owners| Extra::new(in_all(&owners), text)))
}

/// The parts of a report that show what was found, `pictures` among them. Where a setting was chosen, they
/// are what the report opens with.
pub fn extras(out: &Path, manifest: &Manifest, pictures: Vec<Extra>) -> Result<Vec<Extra>> {
    let Some(series) = shown(out, manifest) else { return Ok(pictures) };
    // What stands in front is what was taken; it may have been done again with all checked rows.
    let folder = if out.join("labels.csv").exists() { out.to_path_buf() } else { folder(out, series) };
    let why = chosen(out).map(|chosen| chosen.1).filter(|why| !why.is_empty());
    // A report that opens with them says once whose they are.
    let label = manifest.series.get(series).filter(|_| why.is_none());
    let label = label.map_or_else(String::new, |s| format!("{}: ", s.label));
    let table = |title: &str, table: Option<Lines>| {
        let table = table.filter(|t| t.len() > 1)?;
        let title = if label.is_empty() { capital(title) } else { format!("{label}{title}") };
        Some(Extra::new(title, Body::Table(table)))
    };
    let labels = lines(&folder.join("labels.csv"), usize::MAX)?;
    // Results of before have no list of their own.
    let own = lines(&folder.join("suspicious.csv"), SHOWN + 1)?;
    let most = table("the most suspicious rows", own.as_ref().or(labels.as_ref()).map(suspicious));
    let owners = lines(&folder.join("owners.csv"), 201)?;
    let many = owners.as_ref().is_some_and(|owners| owners.len() > SHOWN + 1);
    let owners = table("labels by owner", owners.map(|owners| shares(&owners)));
    let counts = labels.and_then(|l| {
        let (title, counts) = confusion(&l);
        table(title, Some(counts))
    });
    let Some(why) = why else {
        return Ok(pictures.into_iter().chain(most).chain(owners).chain(counts).collect());
    };
    // A long table would hide what comes after it.
    let (few, many) = if many { (None, owners) } else { (owners, None) };
    let found = result(out, &why)?.into_iter().chain(few).chain(pictures).chain(most).chain(many);
    Ok(found.chain(counts).map(|extra| extra.at(Place::First)).collect())
}

fn capital(title: &str) -> String {
    let mut letters = title.chars();
    let first: String = letters.next().iter().flat_map(|letter| letter.to_uppercase()).collect();
    first + letters.as_str()
}

/// Columns of their files that are shown of suspicious rows.
const COLUMNS: usize = 6;

/// Letters of a text that are shown.
const LETTERS: usize = 280;

/// The first letters of a text, up to the end of a word.
fn beginning(text: &str) -> String {
    let Some((end, _)) = text.char_indices().nth(LETTERS) else { return text.to_string() };
    format!("{} …", text[..end].rsplit_once(' ').map_or(&text[..end], |(words, _)| words))
}

/// The first rows of the list, as one reads them: few digits, no column that says nothing new, and of many
/// columns of their files the first.
fn suspicious(labels: &Lines) -> Lines {
    let lines: Lines = labels.iter().take(SHOWN + 1).cloned().collect();
    let cell = |line: &Vec<String>, at: usize| line.get(at).cloned().unwrap_or_default();
    let all = |test: &dyn Fn(&Vec<String>) -> bool| lines.iter().skip(1).all(test);
    let (called, weighed) =
        (!all(&|line| cell(line, 5) == "True"), !all(&|line| cell(line, 6) == cell(line, 4)));
    let heads = ["id", "owner", "given", "suggested", "score", "looks wrong", "weight"];
    let of = lines.first().map_or(0, Vec::len).min(heads.len() + COLUMNS);
    let columns: Vec<usize> = (0..of).filter(|at| (*at != 5 || called) && (*at != 6 || weighed)).collect();
    let short = |line: &Vec<String>, at: usize| match cell(line, at).parse() {
        Ok(value) if at == 4 || at == 6 => words::number(value),
        _ => beginning(&cell(line, at)),
    };
    let name = |at: &usize| heads.get(*at).map_or_else(|| cell(&lines[0], *at), |head| head.to_string());
    let head = columns.iter().map(name).collect();
    let rows = lines.iter().skip(1).map(|line| columns.iter().map(|at| short(line, *at)).collect());
    std::iter::once(head).chain(rows).collect()
}

/// Each owner's share of labels that look wrong.
fn shares(owners: &Lines) -> Lines {
    let head = ["owner", "look wrong", "of", "%", "checked", "mean score"].map(String::from).to_vec();
    let row = |line: &Vec<String>| {
        let cell = |at: usize| line.get(at).cloned().unwrap_or_default();
        vec![cell(0), cell(3), cell(1), format!("{:.1}", 100.0 * number(line, 4)), cell(2), cell(5)]
    };
    std::iter::once(head).chain(owners.iter().skip(1).map(row)).collect()
}

/// How often each label was given where each was suggested; of many classes the pairs that come most often.
fn confusion(labels: &Lines) -> (&'static str, Lines) {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut names = std::collections::BTreeSet::new();
    for line in labels.iter().skip(1).filter(|l| l.len() > 3) {
        *counts.entry((&line[3], &line[2])).or_default() += 1;
        names.extend([line[2].as_str(), line[3].as_str()]);
    }
    if names.len() > SHOWN {
        let mut pairs: Vec<_> =
            counts.into_iter().filter(|((suggested, given), _)| suggested != given).collect();
        pairs.sort_by_key(|pair| std::cmp::Reverse(pair.1));
        let row = |((suggested, given), count): ((&str, &str), usize)| {
            vec![given.to_string(), suggested.to_string(), count.to_string()]
        };
        let head = ["given", "suggested", "rows"].map(String::from).to_vec();
        let rows = pairs.into_iter().take(SHOWN).map(row);
        return (
            "the labels that are mistaken for each other most often",
            std::iter::once(head).chain(rows).collect(),
        );
    }
    let mut table =
        vec![std::iter::once("suggested").chain(names.iter().copied()).map(String::from).collect()];
    for suggested in &names {
        let count = |given: &&str| counts.get(&(*suggested, *given)).copied().unwrap_or(0).to_string();
        table.push(std::iter::once(suggested.to_string()).chain(names.iter().map(count)).collect());
    }
    ("given labels (columns) and suggested ones (rows)", table)
}

#[cfg(test)]
mod tests {
    use super::{Lines, SHOWN, confusion};

    /// A list whose rows have these given and suggested labels.
    fn list(pairs: impl IntoIterator<Item = (usize, usize)>) -> Lines {
        let row = |(given, suggested): (usize, usize)| {
            vec!["id".into(), "owner".into(), format!("c{given:02}"), format!("c{suggested:02}")]
        };
        std::iter::once(vec![String::new(); 4]).chain(pairs.into_iter().map(row)).collect()
    }

    #[test]
    fn few_classes_are_a_square() {
        let (_, table) = confusion(&list([(0, 0), (0, 1), (1, 1), (0, 1)]));
        assert_eq!(table, [["suggested", "c00", "c01"], ["c00", "1", "0"], ["c01", "2", "1"]]);
    }

    #[test]
    fn of_many_classes_the_most_frequent_pairs_are_shown() {
        let right = (0..=SHOWN).flat_map(|c| [(c, c); 9]);
        let wrong = (0..SHOWN).map(|c| (c, c + 1)).chain([(7, 3), (7, 3), (7, 3), (4, 2), (4, 2)]);
        let (_, table) = confusion(&list(right.chain(wrong)));
        assert_eq!(table[..3], [["given", "suggested", "rows"], ["c07", "c03", "3"], ["c04", "c02", "2"]]);
        assert_eq!(table.len(), SHOWN + 1);
    }
}
