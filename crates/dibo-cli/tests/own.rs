//! Own files that change, disagree or lack something: nothing old is shown as new, and what makes a result
//! doubtful is said.
use std::path::Path;
use std::process::{Command, Output};

fn dibo(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dibo")).args(arguments).current_dir(folder).output().unwrap()
}

/// What a command says, without the folds of its lines.
fn words(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What a short run of this way says.
fn quick(folder: &Path, way: &str, arguments: &[&str]) -> String {
    let short = ["--ways", way, "--iterations", "40", "--model", "linear", "--quiet"];
    let output = dibo(folder, &["clean"].iter().chain(arguments).chain(&short).copied().collect::<Vec<_>>());
    assert!(output.status.success(), "{}", words(&output));
    words(&output)
}

/// The one line with which a command is refused.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = dibo(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{}", words(&output));
    String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_string()
}

/// A table of this head with forty rows, each made of its number, its class and two numbers that tell it.
fn table(folder: &Path, name: &str, head: &str, row: impl Fn(usize, usize, &str) -> String) {
    let line = |i: usize| {
        let class = i % 2;
        let wave = (i as f64 * 1.7).sin();
        row(i, class, &format!("{:.3},{:.3}", 2.0 * class as f64 + wave, wave - class as f64)) + "\n"
    };
    std::fs::write(folder.join(name), format!("{head}\n") + &(0..40).map(line).collect::<String>()).unwrap();
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Images in one file, their labels in another.
fn idx(folder: &Path, site: &str, turn: u8) {
    let mut images = vec![0, 0, 8, 3, 0, 0, 0, 30, 0, 0, 0, 2, 0, 0, 0, 2];
    images.extend((0..30u8).flat_map(|i| [i % 2 * 200, i, 100, 255 - i]));
    std::fs::write(folder.join(format!("{site}-images-idx3-ubyte")), images).unwrap();
    let mut labels = vec![0, 0, 8, 1, 0, 0, 0, 30];
    labels.extend((0..30u8).map(|i| (i + u8::from(i < turn)) % 2));
    std::fs::write(folder.join(format!("{site}-labels-idx1-ubyte")), labels).unwrap();
}

#[test]
fn changed_labels_beside_images_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    idx(folder, "a", 0);
    idx(folder, "b", 0);
    let files = ["a-images-idx3-ubyte", "b-images-idx3-ubyte"];
    quick(folder, "noisy", &files);
    let before = read(folder, "cleaned/labels.csv");
    assert!(quick(folder, "noisy", &files).contains("found finished"));
    idx(folder, "a", 12);
    let said = quick(folder, "noisy", &files);
    assert!(!said.contains("found finished"), "{said}");
    assert_ne!(read(folder, "cleaned/labels.csv"), before);
}

#[test]
fn tuning_notices_changed_rows() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let put = |factor: usize| {
        table(folder, "a.csv", "x,y,z,label", |i, class, xy| format!("{xy},{},{class}", factor * i))
    };
    put(1);
    quick(folder, "noisy", &["a.csv", "--write", "e.toml"]);
    let tune = || {
        let output = dibo(folder, &["tune", "e.toml", "--out", "o", "--metric", "suspicious", "--quiet"]);
        assert!(output.status.success(), "{}", words(&output));
        words(&output)
    };
    let nothing = "0 iterations run";
    assert!(!tune().contains(&format!(" {nothing}")));
    assert!(tune().contains(nothing), "{}", tune());
    put(3);
    let said = tune();
    assert!(!said.contains(&format!(" {nothing}")) && !said.starts_with(nothing), "{said}");
}

#[test]
fn a_class_without_checked_rows_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["a.csv", "b.csv"] {
        table(folder, name, "x,y,label,ck", |i, class, xy| {
            format!("{xy},{class},{}", u8::from(class == 0 && i < 20))
        });
    }
    let said = quick(folder, "clean-only,noisy", &["a.csv", "b.csv", "--clean", "ck"]);
    let what = "no checked row has class '1': it cannot be judged by checked rows";
    assert!(said.contains(&format!("warning: {what}")), "{said}");
    assert!(said.contains(&format!("Take it with care: {what}")), "{said}");
    assert!(read(folder, "cleaned/report.html").contains("Take it with care: no checked row has class"));
    // Where every class has some, there is nothing to say.
    table(folder, "b.csv", "x,y,label,ck", |i, class, xy| format!("{xy},{class},{}", u8::from(i < 8)));
    let said = quick(folder, "clean-only,noisy", &["a.csv", "b.csv", "--clean", "ck"]);
    assert!(!said.contains("no checked row has"), "{said}");
}

#[test]
fn one_class_in_two_spellings_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let put = |name: &str, of: [&'static str; 2]| {
        table(folder, name, "x,y,label", move |_, class, xy| format!("{xy},{}", of[class]));
    };
    put("int.csv", ["0", "1"]);
    put("float.csv", ["0.0", "1.0"]);
    put("lower.csv", ["false", "true"]);
    put("upper.csv", ["False", "True"]);
    put("codes.csv", ["01", "1"]);
    let line = refused(folder, &["clean", "int.csv", "float.csv", "--ways", "noisy"]);
    for part in ["'0' in int.csv", "'0.0' in float.csv", "write it alike"] {
        assert!(line.contains(part), "{line}");
    }
    let line = refused(folder, &["clean", "lower.csv", "upper.csv", "--ways", "noisy"]);
    assert!(line.contains("'False' in upper.csv") && line.contains("'false' in lower.csv"), "{line}");
    // Checked rows are spelled as the others are.
    let line = refused(folder, &["clean", "int.csv", "--checked", "float.csv", "--ways", "noisy"]);
    assert!(line.contains("'0' in int.csv") && line.contains("'0.0' in float.csv"), "{line}");
    // Codes of one file may be two classes.
    let said = quick(folder, "noisy", &["codes.csv"]);
    assert!(said.contains("warning: noisy: '01' and '1' count as two classes"), "{said}");
}

#[test]
fn words_of_checked_rows_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    table(folder, "a.csv", "x,y,ward,label", |i, class, xy| format!("{xy},w{},{class}", i % 3));
    // The file of checked rows may have the columns of an experiment, too.
    table(folder, "c.csv", "x,y,ward,label,ck,t", |i, class, xy| {
        format!("{xy},only{},{class},1,{i}?", i % 2)
    });
    quick(folder, "noisy", &["a.csv", "--checked", "c.csv"]);
    let model = read(folder, "cleaned/model.json");
    assert!(["w2", "only0", "only1"].iter().all(|w| model.contains(w)), "{model}");
    assert!(!model.contains("\"ck\""), "{model}");
}

#[test]
fn no_method_sees_the_truth() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // One truth is a class that nobody gave, some are missing, the others are numbers with gaps.
    table(folder, "a.csv", "id,x,y,label,t", |i, class, xy| {
        let truth = match i {
            3 => "other".to_string(),
            _ if i > 30 => String::new(),
            _ => format!("{class}.0"),
        };
        format!("{i},{xy},{},{truth}", (class + usize::from(i == 5)) % 2)
    });
    quick(folder, "noisy", &["a.csv", "--id", "id", "--truth", "t", "--out", "with"]);
    quick(folder, "noisy", &["a.csv", "--id", "id", "--features", "x,y", "--out", "without"]);
    assert_eq!(read(folder, "with/labels.csv"), read(folder, "without/labels.csv"));
    let manifest: serde_json::Value = serde_json::from_str(&read(folder, "with/manifest.json")).unwrap();
    // Of 31 known rows at most 30 can become right: nothing makes the other right.
    let right = manifest["runs"][0]["last"]["right_after"].as_f64().unwrap();
    assert!((80.0..=100.0 * 30.0 / 31.0 + 1e-9).contains(&right), "{right}");
}

#[test]
fn a_test_file_may_have_the_columns_of_the_sites() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["a.csv", "test.csv"] {
        table(folder, name, "patient,site,x,y,label,ck,t", |i, class, xy| {
            format!("p{i},s{},{xy},{class},{},{class}", i % 2, u8::from(i < 9))
        });
    }
    let roles = ["--id", "patient", "--owner", "site", "--clean", "ck", "--truth", "t"];
    let files = ["a.csv", "--test", "test.csv", "--categories", "5"];
    quick(folder, "noisy", &[&files[..], &roles[..]].concat());
    let manifest: serde_json::Value = serde_json::from_str(&read(folder, "cleaned/manifest.json")).unwrap();
    assert!(manifest["runs"][0]["last"]["test_accuracy"].as_f64().unwrap() > 80.0, "{manifest}");
}

#[test]
fn messages_name_files_and_owners() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    table(folder, "a.csv", "x,y,label", |_, class, xy| format!("{xy},{class}"));
    table(folder, "b.csv", "x,z,label", |_, class, xy| format!("{xy},{class}"));
    let line = refused(folder, &["clean", "a.csv", "b.csv", "--ways", "noisy"]);
    assert!(line.contains("a.csv has a column 'y' and b.csv has none"), "{line}");
    for (name, owner) in [("n.csv", "north"), ("m.csv", "north"), ("s.csv", "south")] {
        let column = if owner == "south" { "z" } else { "y" };
        table(folder, name, &format!("x,{column},label,who"), |_, class, xy| format!("{xy},{class},{owner}"));
    }
    let line = refused(folder, &["clean", "n.csv", "s.csv", "--owner", "who", "--ways", "noisy"]);
    assert!(line.contains("'north' in n.csv has a column 'y' and 'south' in s.csv has none"), "{line}");
    let line = refused(folder, &["clean", "n.csv", "m.csv", "--owner", "who", "--ways", "noisy"]);
    assert!(line.contains("'north' owns rows in n.csv and in m.csv"), "{line}");
}

/// A peer that scores every row alike.
#[cfg(unix)]
#[test]
fn another_program_may_see_rows_whose_truth_nobody_knows() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    table(folder, "a.csv", "x,y,label", |_, class, xy| format!("{xy},{class}"));
    let script = "#!/bin/sh\n{ echo row,label_score; seq 0 39 | sed 's/$/,0.5/'; } > \"$1/peer.csv\"\n\
        echo '{\"name\": \"a coin\", \"seconds\": 1}' > \"$1/peer.json\"\n";
    std::fs::write(folder.join("peer.sh"), script).unwrap();
    std::fs::set_permissions(folder.join("peer.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let said = quick(folder, "noisy", &["a.csv", "--peer", "./peer.sh"]);
    assert!(said.contains("a coin with all rows in one place: AUC –"), "{said}");
}
