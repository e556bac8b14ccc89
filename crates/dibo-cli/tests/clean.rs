//! Own files: five sites with noisy labels and few checked ones become a list, a model and a report; mistakes
//! are told with their place; over a network every process reads its own file only and gets the same bits.
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output};

fn dibo(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dibo")).args(arguments).current_dir(folder).output().unwrap()
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Numbers between 0 and 1 that look random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

const CLASSES: [&str; 3] = ["benign", "malign", "unclear"];

/// One site's table; every site's true labels are returned by id.
fn site(folder: &Path, site: usize, rows: usize, truth: &mut BTreeMap<String, &'static str>) {
    let mut r = Numbers(site as u64 * 977 + 5);
    let mut text = String::from("patient,age,marker a,marker b,ward,diagnosis,reviewed\n");
    for row in 0..rows {
        let class = (r.next() * 3.0) as usize;
        let centre = [[-1.5, 0.0], [1.5, 0.5], [0.0, 2.5]][class];
        let [a, b] = centre.map(|c| c + 1.2 * (r.next() + r.next() - 1.0));
        let reviewed = row < 6;
        let wrong = !reviewed && r.next() < 0.3;
        let given = if wrong { (class + 1) % 3 } else { class };
        let ward = ["north", "south"][(r.next() < 0.5) as usize];
        let age = if r.next() < 0.1 { String::new() } else { format!("{:.0}", 20.0 + 60.0 * r.next()) };
        let id = format!("s{site}-{row}");
        let (label, reviewed) = (CLASSES[given], if reviewed { "yes" } else { "no" });
        writeln!(text, "{id},{age},{:.3},{b:.3},{ward},{label},{reviewed}", 1000.0 + 10.0 * a).unwrap();
        truth.insert(id, CLASSES[class]);
    }
    std::fs::write(folder.join(format!("site{site}.csv")), text).unwrap();
}

fn sites(folder: &Path, rows: usize) -> BTreeMap<String, &'static str> {
    let mut truth = BTreeMap::new();
    (0..5).for_each(|i| site(folder, i, rows + 10 * i, &mut truth));
    truth
}

const FILES: [&str; 5] = ["site0.csv", "site1.csv", "site2.csv", "site3.csv", "site4.csv"];
const ROLES: [&str; 6] = ["--label", "diagnosis", "--id", "patient", "--clean", "reviewed"];

fn lines(file: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    text.lines().map(|l| l.split(',').map(String::from).collect()).collect()
}

/// The first rows of the list stand beside what their tables have for them, in a file and in the report.
fn suspicious_rows_are_shown(folder: &Path, labels: &[Vec<String>], page: &str) {
    let tables: BTreeMap<String, Vec<String>> =
        FILES.iter().flat_map(|file| lines(&folder.join(file))).map(|line| (line[0].clone(), line)).collect();
    let suspicious = lines(&folder.join("cleaned/suspicious.csv"));
    assert_eq!(suspicious.len(), 21);
    assert_eq!(suspicious[0][7..], ["age", "marker a", "marker b", "ward"]);
    for (line, listed) in suspicious[1..].iter().zip(&labels[1..]) {
        let table = &tables[&line[0]];
        assert_eq!(line[..7], listed[..]);
        let number = |cell: &str| cell.parse::<f32>().ok();
        assert!((0..3).all(|c| number(&line[7 + c]) == number(&table[1 + c])), "{line:?} {table:?}");
        assert_eq!(line[10], table[4]);
        assert!(page.contains(&format!("{}</td>", line[9])), "{line:?}");
    }
}

#[test]
fn five_files_become_a_list_a_model_and_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let truth = sites(folder.path(), 120);
    let command: Vec<&str> = ["clean"].into_iter().chain(FILES).chain(ROLES).collect();
    let output = dibo(folder.path(), &command);
    let said = words(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("Taken: ") && said.contains("labels look wrong") && said.contains("site3:"),
        "{said}"
    );
    assert!(said.lines().all(|l| l.chars().count() <= 80), "{said}");
    let out = folder.path().join("cleaned");
    let labels = lines(&out.join("labels.csv"));
    let head = "id,owner,given_label,predicted_label,label_score,is_label_issue,weight";
    assert_eq!(labels[0].join(","), head);
    assert_eq!(labels.len(), 1 + truth.len() - 5 * 6);
    // The list begins with what is wrong, and most of it is found.
    let wrong = |l: &Vec<String>| truth[&l[0]] != l[2];
    assert!(labels[1..51].iter().filter(|l| wrong(l)).count() >= 45);
    let (all, found): (Vec<_>, Vec<_>) = (
        labels[1..].iter().filter(|l| wrong(l)).collect(),
        labels[1..].iter().filter(|l| wrong(l) && l[5] == "True").collect(),
    );
    assert!(found.len() as f64 > 0.85 * all.len() as f64, "{} of {}", found.len(), all.len());
    let owners = lines(&out.join("owners.csv"));
    assert_eq!((owners.len(), owners[4][0].as_str(), owners[4][1].as_str()), (6, "site3", "144"));
    for file in [
        "model.safetensors",
        "model.json",
        "model.onnx",
        "noise.csv",
        "labels.parquet",
        "cleaned.csv",
        "report.html",
        "checksums.txt",
    ] {
        assert!(out.join(file).exists(), "{file}");
    }
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    suspicious_rows_are_shown(folder.path(), &labels, &page);
    // The report opens with the result: how many, by owner, which way and why, the rows; then the curves.
    let places = [
        "labels look wrong (",
        "Taken: ",
        "Labels by owner",
        "The most suspicious rows",
        "How it was found",
        "Figures",
        "The experiment file as it ran",
        "Time, bytes and gradients",
        "Memory:",
    ];
    let places = places.map(|part| page.find(part).unwrap_or_else(|| panic!("{part} is missing")));
    assert!(places.is_sorted(), "{places:?}");
    // The chosen way was done again with all checked rows; each table comes back with all its columns and
    // better labels, checked rows as they were.
    assert!(said.contains("all checked rows"), "{said}");
    let (before, after) = (lines(&folder.path().join("site3.csv")), lines(&out.join("cleaned_site3.csv")));
    assert_eq!((before.len(), &before[0]), (after.len(), &after[0]));
    for (old, new) in before[1..].iter().zip(&after[1..]) {
        assert!((0..7).filter(|c| *c != 5).all(|c| old[c] == new[c]), "{old:?} {new:?}");
        assert!(old[6] == "no" || old[5] == new[5]);
    }
    let wrong = |rows: &[Vec<String>]| rows[1..].iter().filter(|l| truth[&l[0]] != l[5]).count();
    assert!(2 * wrong(&after) < wrong(&before), "{} of {}", wrong(&after), wrong(&before));
    // The model tells the classes of rows that it has never seen, from a file without labels.
    let mut more = BTreeMap::new();
    site(folder.path(), 9, 200, &mut more);
    let predicted =
        dibo(folder.path(), &["predict", "cleaned", "site9.csv", "--id", "patient", "--out", "p.csv"]);
    assert!(predicted.status.success(), "{}", words(&predicted));
    let predicted = lines(&folder.path().join("p.csv"));
    let right = predicted[1..].iter().filter(|l| more[&l[0]] == l[1]).count();
    assert!(right > 180, "{right} of 200");
    // The same again is found finished, with the same list.
    let before = std::fs::read(out.join("labels.csv")).unwrap();
    let again = dibo(folder.path(), &command);
    assert!(words(&again).contains("found finished"), "{}", words(&again));
    assert_eq!(std::fs::read(out.join("labels.csv")).unwrap(), before);
}

/// Three sites' tables of many numbers, two of five labels wrong, with this many reviewed rows a site; the
/// true labels by id.
fn wide(folder: &Path, reviewed: usize) -> BTreeMap<String, String> {
    let (mut truth, mut r) = (BTreeMap::new(), Numbers(982));
    for site in 0..3 {
        let names: Vec<String> = (0..30).map(|i| format!("f{i}")).collect();
        let mut text = format!("id,{},label,reviewed\n", names.join(","));
        for row in 0..150 {
            let class = (r.next() * 4.0) as usize;
            let number = |i: usize, r: &mut Numbers| {
                let centre = if i % 4 == class { 1.0 } else { 0.0 };
                format!("{:.3}", centre + 2.0 * (r.next() + r.next() - 1.0))
            };
            let numbers: Vec<String> = (0..30).map(|i| number(i, &mut r)).collect();
            let wrong = row >= reviewed && r.next() < 0.4;
            let given = if wrong { (class + 1 + (r.next() * 3.0) as usize) % 4 } else { class };
            let checked = if row < reviewed { "yes" } else { "no" };
            writeln!(text, "{site}-{row},{},c{given},{checked}", numbers.join(",")).unwrap();
            truth.insert(format!("{site}-{row}"), format!("c{class}"));
        }
        std::fs::write(folder.join(format!("wide{site}.csv")), text).unwrap();
    }
    truth
}

const WIDE: [&str; 8] = ["clean", "wide0.csv", "wide1.csv", "wide2.csv", "--id", "id", "--clean", "reviewed"];

/// A model that knows rows by heart, and a noise matrix learned beside it, find nearly every label probable;
/// what is called wrong is still most of what is.
#[test]
fn labels_known_by_heart_are_still_called_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let truth = wide(folder.path(), 6);
    let command: Vec<&str> =
        WIDE.into_iter().chain(["--ways", "joint/given", "--iterations", "150", "--quiet"]).collect();
    let output = dibo(folder.path(), &command);
    assert!(output.status.success(), "{}", words(&output));
    let labels = lines(&folder.path().join("cleaned/labels.csv"));
    let count = |of: &dyn Fn(&Vec<String>) -> bool| labels[1..].iter().filter(|l| of(l)).count() as f64;
    let wrong = |l: &Vec<String>| truth[&l[0]] != l[2];
    // By the posterior of the given label, which the noise matrix enters, few are.
    let improbable = |l: &Vec<String>| l[4].parse::<f64>().unwrap() < 0.5;
    let by_posterior = count(&|l| wrong(l) && improbable(l)) / count(&wrong);
    assert!(by_posterior < 0.5, "{by_posterior}");
    let called = |l: &Vec<String>| l[5] == "True";
    let found = count(&|l| wrong(l) && called(l));
    let (precision, recall) = (found / count(&called), found / count(&wrong));
    assert!(precision > 0.8 && recall > 0.8, "{precision} {recall}");
}

/// Few held-out rows choose a way; where to stop is for them to say only if they are many.
#[test]
fn a_run_ends_at_its_best_where_enough_rows_are_held_out() {
    let folder = tempfile::tempdir().unwrap();
    for (reviewed, best) in [(6, "best = \"\""), (40, "best = \"held_loss\"")] {
        wide(folder.path(), reviewed);
        let command: Vec<&str> = WIDE.into_iter().chain(["--write", "wide.toml"]).collect();
        assert!(dibo(folder.path(), &command).status.success());
        let text = std::fs::read_to_string(folder.path().join("wide.toml")).unwrap();
        assert!(text.contains(best), "{text}");
    }
    let more = ["--ways", "noisy", "--iterations", "400", "--quiet", "--model", "mlp"];
    let command: Vec<&str> = WIDE.into_iter().chain(more).collect();
    let output = dibo(folder.path(), &command);
    assert!(output.status.success(), "{}", words(&output));
    let manifest = |name: &str| -> serde_json::Value {
        let text = std::fs::read_to_string(folder.path().join("cleaned").join(name)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let (first, again) = (manifest("manifest.json"), manifest("all-checked/manifest.json"));
    let best = first["runs"][0]["best"].as_u64().unwrap();
    assert!(best < 400, "the last evaluation is the best: nothing is tested");
    assert_eq!(again["runs"][0]["iterations"].as_u64(), Some(best));
    assert!(words(&output).contains(&format!("after {best} of")), "{}", words(&output));
}

/// The tasks on built-in data leave their models, too, and the weights of the samples.
#[test]
fn models_of_built_in_tasks_come_out() {
    let folder = tempfile::tempdir().unwrap();
    let run = ["run", "weights", "--seeds", "1", "--set", "run.iterations=10", "--out", "out", "--quiet"];
    let output = dibo(folder.path(), &run);
    assert!(output.status.success(), "{}", words(&output));
    let weights = lines(&folder.path().join("out/taken/0/weights.csv"));
    assert_eq!(weights[0].join(","), "id,owner,given_label,weight");
    assert!(
        weights.len() > 1000 && weights[1..].iter().all(|l| (0.0..=1.0).contains(&l[3].parse().unwrap()))
    );
    for file in ["model.safetensors", "model.json", "model.onnx"] {
        assert!(folder.path().join("out/taken/0").join(file).exists(), "{file}");
    }
}

/// Regularisers are learned beside a grid of them, and come out with the model.
#[test]
fn numbers_of_a_training_are_learned() {
    let folder = tempfile::tempdir().unwrap();
    sites(folder.path(), 60);
    let tune = ["--tune", "--iterations", "200", "--model", "linear"];
    let command: Vec<&str> = ["clean"].into_iter().chain(FILES).chain(ROLES).chain(tune).collect();
    let output = dibo(folder.path(), &command);
    let said = words(&output);
    assert!(output.status.success() && said.contains("noisy/tau=0.01"), "{said}");
    let learned = |series: usize| lines(&folder.path().join(format!("cleaned/taken/{series}/learned.csv")));
    assert!(learned(5).iter().any(|l| l[1] == "tau of marker a"), "{:?}", learned(5));
    assert!(learned(6).iter().any(|l| l[1] == "tau of class malign"), "{:?}", learned(6));
    let wrong: Vec<&str> =
        ["clean"].into_iter().chain(FILES).chain(ROLES).chain(["--ways", "em/x"]).collect();
    let refused = words(&dibo(folder.path(), &wrong));
    assert!(refused.contains("'/x' means nothing"), "{refused}");
}

#[test]
fn one_file_with_owners_and_checked_rows_apart() {
    let folder = tempfile::tempdir().unwrap();
    let mut truth = BTreeMap::new();
    (0..3).for_each(|i| site(folder.path(), i, 60, &mut truth));
    let (mut rows, mut checked) = (String::new(), String::new());
    for i in 0..3 {
        let text = std::fs::read_to_string(folder.path().join(format!("site{i}.csv"))).unwrap();
        for (n, line) in text.lines().enumerate() {
            let line = line.rsplit_once(',').unwrap().0;
            match n {
                0 if i > 0 => {}
                0 => {
                    writeln!(rows, "hospital,{line}").unwrap();
                    writeln!(checked, "hospital,{line}").unwrap();
                }
                n if n <= 6 => writeln!(checked, "h{i},{line}").unwrap(),
                _ => writeln!(rows, "h{i},{line}").unwrap(),
            }
        }
    }
    std::fs::write(folder.path().join("all.csv"), rows).unwrap();
    std::fs::write(folder.path().join("checked.csv"), checked).unwrap();
    let command = [
        "clean",
        "all.csv",
        "--owner",
        "hospital",
        "--label",
        "diagnosis",
        "--id",
        "patient",
        "--checked",
        "checked.csv",
        "--ways",
        "em,clean-only",
        "--iterations",
        "300",
        "--quiet",
    ];
    let output = dibo(folder.path(), &command);
    assert!(output.status.success(), "{}", words(&output));
    let owners = lines(&folder.path().join("cleaned/owners.csv"));
    let names: Vec<&str> = owners[1..].iter().map(|l| l[0].as_str()).collect();
    assert_eq!(names, ["h0", "h1", "h2"]);
    assert!(owners[1..].iter().all(|l| l[1] == "54" && l[2] == "6"), "{owners:?}");
}

#[test]
fn mistakes_are_told_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    sites(folder.path(), 30);
    let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    put("number.csv", "a,label\n1,x\n2,y\ninf,x\n");
    put("other.csv", "b,label\n1,x\n2,y\n");
    put("words.csv", "a,label\nred,x\nblue,y\n");
    put("one.csv", "a,label\n1,x\n2,x\n");
    put("two.csv", "a,label\n1,x\n2,y\n");
    let site = |more: &[&'static str]| -> Vec<&'static str> {
        ["clean", "site0.csv", "--label", "diagnosis"].into_iter().chain(more.iter().copied()).collect()
    };
    for (command, what) in [
        (vec!["clean", "none.csv"], "none.csv"),
        (vec!["clean", "site0.csv", "--label", "diagnose"], "did you mean"),
        (vec!["clean", "number.csv"], "row 3"),
        (vec!["clean", "two.csv", "other.csv"], "column 'a'"),
        (vec!["clean", "two.csv", "words.csv"], "column 'a'"),
        (vec!["clean", "one.csv"], "between 2 and 256 classes"),
        (site(&["--id", "patient", "--ways", "emm"]), "there is no way 'emm'"),
        (site(&["--id", "patient", "--ways", "joint/sites"]), "way 'joint/sites': /sites belongs to em"),
        (site(&["--id", "patient", "--ways", "em/often"]), "known are /given, /sites and /tau=NUMBER"),
        (site(&["--id", "patient", "--ways", "em"]), "nobody has a checked row"),
        (site(&["--clean", "ward"]), "column 'ward'"),
        (site(&["--categories", "20"]), "column 'patient'"),
        (site(&["--features", "age,agee"]), "agee"),
        (site(&["--hidden", "0"]), "dibo: --hidden is 0; it must be 1 or more"),
        (site(&["--seed", "18446744073709551615"]), "dibo: --seed is 18446744073709551615; it must be 9223"),
        (
            site(&["--batch", "18446744073709551615"]),
            "dibo: --batch is 18446744073709551615; it must be 1000",
        ),
        (site(&["--model", "tree"]), "dibo: --model is 'tree'; known are linear, mlp"),
        (site(&["--scale", "log"]), "dibo: --scale is 'log'; known are auto"),
        (site(&["--write", "site0.csv"]), "dibo: --write is site0.csv, which is read"),
        (vec!["predict", "nowhere", "site0.csv"], "nowhere"),
    ] {
        let output = dibo(folder.path(), &command);
        let said = words(&output);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.starts_with("dibo: ") && last.contains(what), "{command:?}: {said}");
    }
}

/// Every file below a folder with its content.
fn snapshot(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(snapshot(&path));
        } else {
            all.insert(path.display().to_string(), std::fs::read(&path).unwrap());
        }
    }
    all
}

/// A training that takes no time.
const QUICK: [&str; 7] = ["--ways", "noisy", "--iterations", "10", "--model", "linear", "--quiet"];

#[test]
fn nothing_of_a_user_s_own_is_written_over() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    sites(folder, 20);
    let at = |name: &str| folder.join(name);
    ["own", "im", "plots"].iter().for_each(|name| std::fs::create_dir(at(name)).unwrap());
    std::fs::write(at("own/labels.csv"), "mine").unwrap();
    std::fs::write(at("im/labels.csv"), "file,label\n").unwrap();
    std::fs::copy(at("site0.csv"), at("labels.csv")).unwrap();
    std::fs::copy(at("site1.csv"), at("cleaned.csv")).unwrap();
    std::fs::copy(at("site2.csv"), at("plots/site2.csv")).unwrap();
    let run = |files: &[&str], more: &[&str]| {
        let command: Vec<&str> = [&["clean"], files, &ROLES, &QUICK, more].concat();
        dibo(folder, &command)
    };
    let before = snapshot(folder);
    for (files, out, what) in [
        (&["labels.csv", "cleaned.csv"][..], ".", "labels.csv would be written over by results"),
        (&["site0.csv", "plots/site2.csv"], ".", "plots/site2.csv would be written over by results"),
        (&["site0.csv", "site1.csv"], ".", "has a cleaned.csv that dibo did not write"),
        (&["site0.csv", "site1.csv"], "own", "own has a labels.csv that dibo did not write"),
        (&["site0.csv", "im"], "im", "im would be written over by results"),
    ] {
        for more in [&["--out", out][..], &["--out", out, "--fresh"]] {
            let output = run(files, more);
            let said = words(&output);
            assert_eq!(output.status.code(), Some(2), "{files:?} {more:?}: {said}");
            let last = said.lines().last().unwrap_or_default();
            assert!(last.contains(what) && last.ends_with("give another folder with --out"), "{said}");
            assert!(snapshot(folder) == before, "{files:?} {more:?}: files have changed");
        }
    }
    // What came out goes in again, but not into the same folder.
    let first = run(&["site0.csv", "site1.csv"], &["--out", "o"]);
    assert!(first.status.success(), "{}", words(&first));
    let again = run(&["o/cleaned_site0.csv", "o/cleaned_site1.csv"], &["--out", "o", "--fresh"]);
    assert!(words(&again).contains("o/cleaned_site0.csv would be written over"), "{}", words(&again));
    assert!(at("o/cleaned_site0.csv").exists());
    for (model, out) in
        [("o", "site3.csv"), ("o", "./site3.csv"), ("o/model.safetensors", "o/model.safetensors")]
    {
        let output = dibo(folder, &["predict", model, "site3.csv", "--id", "patient", "--out", out]);
        assert_eq!(output.status.code(), Some(2), "{out}: {}", words(&output));
        assert!(words(&output).contains("which is read; give another file"), "{}", words(&output));
    }
    assert!(before.iter().all(|(file, content)| std::fs::read(file).unwrap() == *content));
}

/// Old results beside new ones would be taken for new.
#[test]
fn fresh_leaves_nothing_of_other_data() {
    let folder = tempfile::tempdir().unwrap();
    sites(folder.path(), 20);
    let run = |files: &[&str], more: &[&str]| {
        let command: Vec<&str> = [&["clean"], files, &ROLES, &QUICK[2..], more].concat();
        dibo(folder.path(), &command)
    };
    assert!(run(&FILES[..3], &["--ways", "noisy,rounds"]).status.success());
    let at = |name: &str| folder.path().join("cleaned").join(name);
    let old = ["cleaned_site0.csv", "taken/1/labels.parquet", "all-checked/manifest.json", "labels.parquet"];
    assert!(old.iter().all(|name| at(name).exists()));
    let fresh = run(&FILES[3..], &["--ways", "noisy", "--fresh"]);
    assert!(fresh.status.success(), "{}", words(&fresh));
    assert!(at("cleaned_site3.csv").exists() && !at("cleaned_site0.csv").exists() && !at("taken/1").exists());
    let sums = std::fs::read_to_string(at("checksums.txt")).unwrap();
    assert!(sums.contains("cleaned_site3.csv") && !sums.contains("site0"), "{sums}");
    // A run that fails leaves no results of the one before.
    let failed = run(&FILES[..3], &["--ways", "noisy", "--fresh", "--step", "1e30"]);
    assert!(!failed.status.success(), "{}", words(&failed));
    assert!(["labels.parquet", "cleaned_site3.csv", "all-checked"].iter().all(|name| !at(name).exists()));
}

/// Tables of one name, an ending in capitals, and a name of a column between spaces that are not ASCII.
#[test]
fn every_table_comes_back_under_a_name_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    sites(folder.path(), 20);
    let files = ["x1/data.csv", "x2/data.csv", "x2/y/DATA.CSV", "S3.TSV"];
    std::fs::create_dir_all(folder.path().join("x2/y")).unwrap();
    std::fs::create_dir(folder.path().join("x1")).unwrap();
    for (i, file) in files.iter().enumerate() {
        let text = std::fs::read_to_string(folder.path().join(FILES[i])).unwrap();
        let row = |(n, line): (usize, &str)| match n {
            0 => format!("site,{line}\n").replace("diagnosis", "\u{a0}diagnosis\u{a0}"),
            _ => format!("h{i},{line}\n"),
        };
        let text: String = text.lines().enumerate().map(row).collect();
        let text = if file.ends_with("TSV") { text.replace(',', "\t") } else { text };
        std::fs::write(folder.path().join(file), text).unwrap();
    }
    let command: Vec<&str> = [&["clean"], &files[..], &ROLES, &QUICK, &["--owner", "site"]].concat();
    let output = dibo(folder.path(), &command);
    assert!(output.status.success(), "{}", words(&output));
    let names = ["cleaned_x1_data.csv", "cleaned_x2_data.csv", "cleaned_y_DATA.CSV", "cleaned_S3.TSV"];
    for (i, name) in names.into_iter().enumerate() {
        let text = std::fs::read_to_string(folder.path().join("cleaned").join(name)).unwrap();
        assert!(text.contains("\u{a0}diagnosis\u{a0}"), "{name}: {text}");
        assert_eq!(text.lines().count(), 1 + 20 + 10 * i, "{name}");
        assert!(text.lines().skip(1).all(|line| line.starts_with(&format!("h{i}"))), "{name}: {text}");
    }
}

#[test]
fn a_written_experiment_finds_its_files_from_its_own_folder() {
    let folder = tempfile::tempdir().unwrap();
    sites(folder.path(), 20);
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    for (file, relative) in [("sub/clean.toml", false), ("clean.toml", true), ("./clean.toml", true)] {
        let more = ["--checked", "site2.csv,site3.csv", "--test", "site4.csv", "--write", file];
        let command: Vec<&str> =
            [&["clean"], &FILES[..2], &ROLES[..4], &["--features", "marker a"], &QUICK, &more].concat();
        let output = dibo(folder.path(), &command);
        assert!(output.status.success(), "{}", words(&output));
        let text = std::fs::read_to_string(folder.path().join(file)).unwrap();
        assert_eq!(text.contains("files = [\"site0.csv\""), relative, "{text}");
        let run = dibo(folder.path(), &["run", file, "--out", file.trim_end_matches(".toml"), "--quiet"]);
        assert!(run.status.success(), "{}", words(&run));
        std::fs::remove_dir_all(folder.path().join(file.trim_end_matches(".toml"))).unwrap();
    }
}

const SHORT: [&str; 8] = ["--ways", "noisy", "--iterations", "60", "--model", "linear", "--quiet", "--fresh"];

/// Two sites whose class hangs on ward and age; wards and smokers look like numbers in most rows.
fn wards(folder: &Path) {
    let mut r = Numbers(77);
    for site in 0..2 {
        let mut text = String::from("id,age,ward,smoker,label\n");
        for row in 0..80 {
            let ward = ["1", "2", "3", "ICU"][(r.next() * 4.0) as usize];
            let smoker = ["True", "False", "unknown"][(r.next() * 3.0) as usize];
            let age = (20.0 + 60.0 * r.next()) as usize;
            let sick = (ward == "ICU" || ward == "3") as usize + (age > 50) as usize > 0;
            writeln!(text, "{site}-{row},{age},{ward},{smoker},{}", ["well", "sick"][sick as usize]).unwrap();
        }
        std::fs::write(folder.join(format!("ward{site}.csv")), text).unwrap();
    }
}

/// What a few rows look like is no matter: the model knows which columns are words.
#[test]
fn one_row_at_a_time_is_predicted_as_among_others() {
    let folder = tempfile::tempdir().unwrap();
    wards(folder.path());
    let command: Vec<&str> =
        ["clean", "ward0.csv", "ward1.csv", "--id", "id"].into_iter().chain(SHORT).collect();
    let output = dibo(folder.path(), &command);
    assert!(output.status.success(), "{}", words(&output));
    let predict = |name: &str, text: &str| -> Vec<Vec<String>> {
        std::fs::write(folder.path().join(name), text).unwrap();
        let output = dibo(folder.path(), &["predict", "cleaned", name, "--id", "id", "--out", "p.csv"]);
        assert!(output.status.success(), "{name}: {}", words(&output));
        lines(&folder.path().join("p.csv")).split_off(1)
    };
    let head = "id,age,ward,smoker";
    let rows = ["a,41,2,True", "b,55,ICU,unknown", "c,55,3,False", "d,41,,True", "e,,2,True", "f,41,2,"];
    let all = predict("all.csv", &format!("{head}\n{}\n", rows.join("\n")));
    assert!(all.iter().map(|l| &l[2]).collect::<std::collections::BTreeSet<_>>().len() > 3, "{all:?}");
    for (row, among) in rows.iter().zip(&all) {
        assert_eq!(predict("one.csv", &format!("{head}\n{row}\n")), std::slice::from_ref(among), "{row}");
    }
    assert_eq!(
        predict("two.csv", &format!("{head}\n{}\n{}\n", rows[0], rows[2])),
        [&all[0], &all[2]].map(|l| l.clone())
    );
    let json = [
        r#"{"id": "a", "age": 41, "ward": 2, "smoker": true}"#,
        r#"{"id": "b", "age": 55, "ward": "ICU", "smoker": "unknown"}"#,
        r#"{"id": "c", "age": 55, "ward": 3.0, "smoker": false}"#,
        r#"{"id": "d", "age": 41, "ward": null, "smoker": true}"#,
        r#"{"id": "e", "age": null, "ward": 2, "smoker": true}"#,
    ];
    for (row, among) in json.iter().zip(&all) {
        assert_eq!(predict("one.jsonl", row), std::slice::from_ref(among), "{row}");
    }
    // A test file and a file of checked rows are read by what the others have, too.
    std::fs::write(
        folder.path().join("few.csv"),
        "id,age,ward,smoker,label\nx,41,2,True,well\ny,60,3,,sick\n",
    )
    .unwrap();
    let command: Vec<&str> =
        ["clean", "ward0.csv", "--id", "id", "--test", "few.csv", "--checked", "few.csv"]
            .into_iter()
            .chain(SHORT)
            .collect();
    let output = dibo(folder.path(), &command);
    assert!(output.status.success(), "{}", words(&output));
}

/// A column without values is what the others have; one that is numbers at one site and words at another is
/// what the flag says.
#[test]
fn sites_need_not_show_what_a_column_is() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let clean = |files: &[&str], more: &[&str]| {
        let start = ["clean"].iter().chain(files).copied();
        let command: Vec<&str> = start.chain(more.iter().copied()).chain(SHORT).collect();
        dibo(folder.path(), &command)
    };
    let columns = || -> serde_json::Value {
        let text = std::fs::read_to_string(folder.path().join("cleaned/model.json")).unwrap();
        let model: serde_json::Value = serde_json::from_str(&text).unwrap();
        model["encoding"]["columns"].clone()
    };
    put("numbers.csv", "age,ward,label\n41,0,x\n50,1,y\n44,2,x\n61,0,y\n");
    put("words.csv", "age,ward,label\n42,ICU,x\n52,1,y\n43,2,x\n64,0,y\n");
    put("empty.csv", "age,ward,label\n,,x\n,,y\n,,x\n,NA,y\n");
    for files in [["empty.csv", "words.csv"], ["words.csv", "empty.csv"]] {
        let output = clean(&files, &[]);
        assert!(output.status.success(), "{}", words(&output));
        assert_eq!(columns()[1]["one-hot"]["words"], serde_json::json!(["0", "1", "2", "ICU"]));
        assert!(columns()[0]["numbers"]["factor"][0].as_f64().unwrap() > 0.0);
    }
    let output = clean(&["empty.csv", "numbers.csv", "words.csv"], &[]);
    let said = words(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("column 'ward': a number in numbers.csv and words in words.csv; --words 'ward'"),
        "{said}"
    );
    let output = clean(&["empty.csv", "numbers.csv", "words.csv"], &["--words", "ward"]);
    assert!(output.status.success(), "{}", words(&output));
    assert_eq!(columns()[1]["one-hot"]["words"], serde_json::json!(["0", "1", "2", "ICU"]));
    let said = words(&clean(&["numbers.csv", "words.csv"], &["--words", "wrad"]));
    assert!(said.contains("did you mean 'ward'"), "{said}");
}

/// Images of random bytes, brighter in the first row for the second class, with their labels.
fn images(folder: &Path, name: &str, (width, height, channels): (usize, usize, usize)) {
    let mut r = Numbers(4);
    let (mut bytes, mut labels) = (vec![0, 0, 8, 3], vec![0, 0, 8, 1, 0, 0, 0, 20]);
    let mut shape = vec![20, height, width];
    if channels > 1 {
        (bytes[3], shape) = (4, vec![20, height, width, channels]);
    }
    bytes.extend(shape.iter().flat_map(|d| (*d as u32).to_be_bytes()));
    for image in 0..20 {
        let bright = |i: usize| if image % 2 == 1 && i < width * channels { 100.0 } else { 0.0 };
        bytes.extend((0..width * height * channels).map(|i| (100.0 * r.next() + bright(i)) as u8));
        labels.push(image as u8 % 2);
    }
    let dimensions = if channels > 1 { 4 } else { 3 };
    std::fs::write(folder.join(format!("{name}-images-idx{dimensions}-ubyte")), bytes).unwrap();
    std::fs::write(folder.join(format!("{name}-labels-idx1-ubyte")), labels).unwrap();
}

/// As many pixels in another shape are another image.
#[test]
fn images_must_have_one_shape() {
    let folder = tempfile::tempdir().unwrap();
    images(folder.path(), "wide", (8, 4, 1));
    images(folder.path(), "high", (4, 8, 1));
    images(folder.path(), "colour", (8, 4, 3));
    let [wide, high, colour] =
        ["wide-images-idx3-ubyte", "high-images-idx3-ubyte", "colour-images-idx4-ubyte"];
    let clean = |files: &[&str], more: &[&str]| {
        let start = ["clean"].iter().chain(files).copied();
        let command: Vec<&str> = start.chain(more.iter().copied()).chain(SHORT).collect();
        let output = dibo(folder.path(), &command);
        (output.status.code(), words(&output).split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let (code, said) = clean(&[wide, high], &[]);
    let what =
        "images of 8x4 pixels in grey in wide-images-idx3-ubyte and images of 4x8 pixels in grey in high";
    assert!(code == Some(2) && said.contains(what) && said.contains("--image-size 8x4"), "{said}");
    let (code, said) = clean(&[colour, wide], &[]);
    let what =
        "images of 8x4 pixels in colour in colour-images-idx4-ubyte and images of 8x4 pixels in grey in wide";
    assert!(code == Some(2) && said.contains(what) && said.contains("or all in grey"), "{said}");
    let (code, said) = clean(&[wide], &["--test", high]);
    assert!(code == Some(2) && said.contains("--image-size 8x4"), "{said}");
    let (code, said) = clean(&[wide, high], &["--image-size", "8x4"]);
    assert!(code == Some(0), "{said}");
    let predict = |more: &[&str]| {
        let output = dibo(folder.path(), &[&["predict", "cleaned"], more].concat());
        (output.status.code(), words(&output))
    };
    assert_eq!(predict(&[wide]).0, Some(0));
    let (code, said) = predict(&[high]);
    let what = "images of 4x8 pixels in grey; the model needs images of 8x4 pixels in grey: --image-size 8x4";
    assert!(code == Some(2) && said.contains(what), "{said}");
    assert_eq!(predict(&[high, "--image-size", "8x4"]).0, Some(0));
    // A model of before does not say.
    let file = folder.path().join("cleaned/model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    let (header, data) = bytes[8..].split_at(u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize);
    let text = String::from_utf8(header.to_vec()).unwrap().replace(r#",\"image\":[8,4,1]"#, "");
    assert!(text.len() < header.len(), "{text}");
    let text = format!("{text:<width$}", width = header.len());
    std::fs::write(&file, [&bytes[..8], text.as_bytes(), data].concat()).unwrap();
    std::fs::remove_file(folder.path().join("cleaned/model.json")).unwrap();
    assert_eq!(predict(&[high]).0, Some(0));
}

/// 32 bits do not tell times of one minute apart: that is said as all warnings are, and of no column that
/// never changes.
#[test]
fn columns_that_are_lost_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut r = Numbers(3);
    for site in 0..2 {
        let mut text = String::from("ts,same,x,label\n");
        for row in 0..30 {
            let time = 1_700_000_000 + 50 * (row % 2);
            writeln!(text, "{time},1700000077,{:.3},{}", r.next(), row % 2).unwrap();
        }
        std::fs::write(folder.path().join(format!("time{site}.csv")), text).unwrap();
    }
    let command: Vec<&str> = ["clean", "time0.csv", "time1.csv"].into_iter().chain(SHORT).collect();
    let output = dibo(folder.path(), &command);
    assert!(output.status.success(), "{}", words(&output));
    let said = words(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    let what = "its numbers differ too little beside their size (1.7e9)";
    // Before the run and beside what was found.
    assert!(said.contains(&format!("care: column 'ts': {what}")), "{said}");
    assert_eq!((said.matches(what).count(), said.matches("warning: ").count()), (2, 1), "{said}");
    assert_eq!(said.matches("its numbers differ").count(), 2, "{said}");
    let page = std::fs::read_to_string(folder.path().join("cleaned/report.html")).unwrap();
    assert!(page.contains(what));
    let manifest = std::fs::read_to_string(folder.path().join("cleaned/manifest.json")).unwrap();
    assert!(manifest.contains(what), "{manifest}");
}

/// Five processes, each with its own file in a folder of its own, against one that has all five.
#[cfg(feature = "net")]
#[test]
fn every_process_reads_its_own_file_and_the_bits_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    sites(folder.path(), 60);
    let more = ["--ways", "em,bilevel-own,noisy", "--iterations", "120", "--write", "clean.toml"];
    let command: Vec<&str> = ["clean"].into_iter().chain(FILES).chain(ROLES).chain(more).collect();
    assert!(dibo(folder.path(), &command).status.success());
    let file = folder.path().join("clean.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("best = \"\"", "best = \"held_loss\"")).unwrap();
    let launched =
        dibo(folder.path(), &["launch", "clean.toml", "--processes", "5", "--verify", "--out", "net"]);
    assert!(launched.status.success(), "{}", words(&launched));
    assert!(words(&launched).contains("every bit"), "{}", words(&launched));
    let run = dibo(folder.path(), &["run", "clean.toml", "--out", "one", "--quiet"]);
    assert!(run.status.success(), "{}", words(&run));
    let manifest = std::fs::read_to_string(folder.path().join("one/manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let best = |s: usize| manifest["runs"][s]["best"].as_u64().unwrap();
    assert!((0..3).any(|s| best(s) < 120), "no way did better before its end: nothing is tested");
    // Each process wrote the list of its own rows; together they are the one list.
    for s in 0..3 {
        let mut apart = Vec::new();
        for i in 0..5 {
            let own = lines(&folder.path().join(format!("net/agents/{i}/taken/{s}-0/labels.csv")));
            assert!(own[1..].iter().all(|l| l[1] == format!("site{i}")));
            apart.extend(own.into_iter().skip(1));
        }
        let mut together = lines(&folder.path().join(format!("one/taken/{s}/labels.csv"))).split_off(1);
        apart.sort();
        together.sort();
        assert_eq!(apart, together, "way {s}");
    }
}

/// What working together is worth, on own files: without links every site learns alone, and classes and
/// scaling are the same as with links.
#[test]
fn own_files_show_what_each_site_does_alone() {
    let folder = tempfile::tempdir().unwrap();
    sites(folder.path(), 60);
    let more = ["--ways", "em", "--iterations", "150", "--write", "clean.toml"];
    let command: Vec<&str> = ["clean"].into_iter().chain(FILES).chain(ROLES).chain(more).collect();
    assert!(dibo(folder.path(), &command).status.success());
    let file = folder.path().join("clean.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, graph) = text.split_once("[graph]").unwrap();
    let (graph, after) = graph.split_once("\n\n").unwrap();
    let together = graph.trim().lines().map(|line| format!("graph.{line}\n")).collect::<String>();
    let cases = format!("[[case]]\n{together}\n[[case]]\ngraph.kind = \"none\"\n\n");
    let (run, algorithms) = after.split_once("[[algorithm]]").unwrap();
    std::fs::write(&file, format!("{before}{run}{cases}[[algorithm]]{algorithms}")).unwrap();
    let run = dibo(folder.path(), &["run", "clean.toml", "--out", "o", "--quiet"]);
    assert!(run.status.success(), "{}", words(&run));
    let model = |s: usize| {
        let text = std::fs::read_to_string(folder.path().join(format!("o/taken/{s}/model.json"))).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let (together, alone) = (model(0), model(1));
    assert_eq!(together["classes"], alone["classes"]);
    let sent = |s: &str| {
        let last = lines(&folder.path().join("o/curves.csv")).into_iter().rfind(|l| l[0] == s).unwrap();
        last[4].parse::<f64>().unwrap()
    };
    assert!(sent("0") > 0.0 && sent("1") == 0.0);
}

/// A peer that scores every row alike.
#[cfg(unix)]
const PEER: &str = r#"#!/bin/sh
rows=$(($(wc -c < "$1/given.npy") - 128))
{ echo row,label_score; seq 0 $((rows - 1)) | sed 's/$/,0.5/'; } > "$1/peer.csv"
echo '{"name": "a coin", "test_accuracy": 0.5, "seconds": 1}' > "$1/peer.json"
"#;

#[cfg(unix)]
#[test]
fn another_program_sees_the_rows_of_every_case() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let peer = folder.path().join("peer.sh");
    std::fs::write(&peer, PEER).unwrap();
    std::fs::set_permissions(&peer, std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = "seeds = 2\n[problem]\nkind = \"labels\"\ndata = \"mnist-2500\"\nagents = 5\ncr = 0.4\n\
        checked = [2, 4]\nmodel = \"linear\"\n[graph]\nkind = \"ring\"\n[run]\niterations = 2\n\
        [[algorithm]]\nname = \"push-pull\"\nway = \"clean-only\"\neta = [0.01, 0.02]\n";
    std::fs::write(folder.path().join("e.toml"), text).unwrap();
    // A folder of the user's own stays.
    std::fs::create_dir_all(folder.path().join("out/peer")).unwrap();
    std::fs::write(folder.path().join("out/peer/notes.txt"), "mine").unwrap();
    let run = ["run", "e.toml", "--quiet", "--out", "out", "--peer", "./peer.sh"];
    // Lines are folded.
    let said = words(&dibo(folder.path(), &run)).split_whitespace().collect::<Vec<_>>().join(" ");
    // Two numbers of checked rows are two sets of rows; the two steps share them.
    assert_eq!(said.matches("a coin (checked = ").count(), 2, "{said}");
    assert!(said.contains("AUC 0.5000 ± 0.0000, test accuracy 50.00 ± 0.00 %"), "{said}");
    let peers = std::fs::read_to_string(folder.path().join("out/peers.json")).unwrap();
    assert!(peers.contains("checked = 2") && peers.contains("checked = 4"), "{peers}");
    let report = std::fs::read_to_string(folder.path().join("out/report.html")).unwrap();
    assert!(report.contains("checked = 4") && report.contains("a coin"));
    assert_eq!(std::fs::read(folder.path().join("out/peer/notes.txt")).unwrap(), b"mine");
    let left = std::fs::read_dir(folder.path().join("out")).unwrap().map(|e| e.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with(".peer")), "rows are left");
}
