//! Every format there and back, and every mistake with its message.
use super::read;
use crate::samples::{Choice, Feature, Ids, Roles, Samples, Words};
use flate2::{Compression, write::GzEncoder};
use std::io::Write;
use std::path::{Path, PathBuf};

pub(super) struct Folder(tempfile::TempDir);

impl Folder {
    pub(super) fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn read(&self, name: &str, bytes: impl AsRef<[u8]>, roles: &Roles) -> Samples {
        read(&self.write(name, bytes), roles).unwrap()
    }

    /// The message without the folder.
    fn error(&self, name: &str, bytes: impl AsRef<[u8]>, roles: &Roles) -> String {
        self.message(&self.write(name, bytes), roles)
    }

    fn message(&self, path: &Path, roles: &Roles) -> String {
        let message = read(path, roles).map(|s| format!("no error but {s:?}")).map_err(|e| e.to_string());
        let message = message.unwrap_or_else(|e| e);
        assert!(!message.contains('\n'), "{message}");
        message.replace(&format!("{}/", self.path().display()), "")
    }
}

fn some(name: &str) -> Option<String> {
    Some(name.into())
}

fn label(name: &str) -> Roles {
    Roles { label: some(name), ..Roles::default() }
}

fn words(of: &Words) -> Vec<Option<&str>> {
    (0..of.codes.len()).map(|row| of.get(row)).collect()
}

fn feature<'s>(samples: &'s Samples, name: &str) -> &'s Feature {
    samples.features.iter().find(|f| f.name() == name).unwrap_or_else(|| panic!("no {name}: {samples:?}"))
}

/// The width and values of a column of numbers; -1 where missing.
fn numbers(samples: &Samples, name: &str) -> (usize, Vec<f32>) {
    match feature(samples, name) {
        Feature::Numbers { width, values, .. } => {
            assert_eq!(values.len(), width * samples.rows);
            (*width, values.iter().map(|v| if v.is_nan() { -1.0 } else { *v }).collect())
        }
        other => panic!("{other:?}"),
    }
}

fn category<'s>(samples: &'s Samples, name: &str) -> Vec<Option<&'s str>> {
    match feature(samples, name) {
        Feature::Category { words: of, .. } => words(of),
        other => panic!("{other:?}"),
    }
}

pub(super) const TABLE: &str = "id,y,a,b,c,who,ok,t\n\
    r1,cat,1,0.5,red,north,1,cat\n\
    r2, dog ,NA,-2e3,blue,south,no,\n\
    r3,cat,true,?,\"a, \"\"b\"\"\",north,Checked,dog\n\
    r4,dog,False,.25,None,north,,cat\n";

pub(super) fn every_role() -> Roles {
    Roles {
        label: some("y"),
        id: some("id"),
        owner: some("who"),
        clean: some("ok"),
        truth: some("t"),
        ..Roles::default()
    }
}

pub(super) fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[test]
fn a_table_with_every_role() {
    let folder = Folder::new();
    let check = |samples: Samples| {
        assert_eq!(samples.rows, 4);
        assert_eq!(samples.ids, Ids::Own(["r1", "r2", "r3", "r4"].map(String::from).into()));
        assert_eq!(words(&samples.labels), [Some("cat"), Some("dog"), Some("cat"), Some("dog")]);
        assert_eq!(samples.owners.as_ref().unwrap().words, ["north", "south"]);
        assert_eq!(samples.clean, Some(vec![true, false, true, false]));
        assert_eq!(words(samples.truth.as_ref().unwrap()), [Some("cat"), None, Some("dog"), Some("cat")]);
        let names: Vec<_> = samples.features.iter().map(Feature::name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(numbers(&samples, "a"), (1, vec![1.0, -1.0, 1.0, 0.0]));
        assert_eq!(numbers(&samples, "b"), (1, vec![0.5, -2000.0, -1.0, 0.25]));
        assert_eq!(category(&samples, "c"), [Some("red"), Some("blue"), Some("a, \"b\""), None]);
    };
    check(folder.read("t.csv", TABLE, &every_role()));
    check(folder.read("t.CSV", format!("\u{feff}{}", TABLE.replace('\n', "\r\n\r\n")), &every_role()));
    // Databases write what is missing in their own way.
    for null in ["NULL", "Null", "null"] {
        check(folder.read("t.csv", TABLE.replace("None", null).replace("NA", null), &every_role()));
    }
    check(folder.read("t.csv.gz", gz(TABLE.as_bytes()), &every_role()));
    let tabs = TABLE.replace("\"a, \"\"b\"\"\"", "_").replace(',', "\t").replace('_', "\"a, \"\"b\"\"\"");
    check(folder.read("t.tsv", &tabs, &every_role()));
    check(folder.read("t.tsv.gz", gz(tabs.as_bytes()), &every_role()));
}

#[test]
fn words_after_numbers_keep_their_text() {
    let folder = Folder::new();
    let samples =
        folder.read("t.csv", "a,b,c\n1,,1e1\n01,NA,inf\n1.0,x,word\n true ,1,2\n-nan,,\n", &Roles::default());
    assert_eq!(numbers(&samples, "a"), (1, vec![1.0, 1.0, 1.0, 1.0, -1.0]));
    assert_eq!(category(&samples, "b"), [None, None, Some("x"), Some("1"), None]);
    assert_eq!(category(&samples, "c"), [Some("1e1"), Some("inf"), Some("word"), Some("2"), None]);
    let samples = folder.read("t.csv", "a,b\n1,0\n01,1\ntrue,2\nx,3\n", &Roles::default());
    assert_eq!(category(&samples, "a"), [Some("1"), Some("01"), Some("true"), Some("x")]);
    assert_eq!(numbers(&samples, "b"), (1, vec![0.0, 1.0, 2.0, 3.0]));
    // A column without a value, and one that is always the same.
    let samples = folder.read("t.csv", "a,b\n,7\nNA,7\n", &Roles::default());
    assert_eq!((numbers(&samples, "a").1, numbers(&samples, "b").1), (vec![-1.0; 2], vec![7.0; 2]));
}

#[test]
fn columns_that_are_to_be_words_keep_their_text() {
    let folder = Folder::new();
    let names = |names: &[&str]| names.iter().map(|n| n.to_string()).collect::<Vec<_>>();
    let roles = Roles { words: names(&["a", "c"]), ..Roles::default() };
    let samples = folder.read("t.csv", "a,b,c\n2,2,\n 03 ,3,NA\nTrue,,\n", &roles);
    assert_eq!(category(&samples, "a"), [Some("2"), Some("03"), Some("True")]);
    assert_eq!(numbers(&samples, "b"), (1, vec![2.0, 3.0, -1.0]));
    assert_eq!(category(&samples, "c"), [None; 3]);
    assert!(feature(&samples, "c").is_missing() && !feature(&samples, "b").is_missing());
    let json = "{\"a\": 2, \"c\": 0.5}\n{\"a\": 2.0}\n{\"a\": true, \"c\": null}\n{\"a\": \"x\"}\n";
    let samples = folder.read("t.jsonl", json, &roles);
    assert_eq!(category(&samples, "a"), [Some("2"), Some("2"), Some("true"), Some("x")]);
    assert_eq!(category(&samples, "c"), [Some("0.5"), None, None, None]);
    let message = folder.error("t.jsonl", "{\"a\": [1, 2], \"c\": 1}\n", &roles);
    assert_eq!(message, "t.jsonl, row 1, column 'a': a list, but this column needs one value a row");
    let message = folder.error("t.csv", "a,b\n1,2\n", &roles);
    assert!(message.contains("there is no column 'c'"), "{message}");
    let few = Roles { most_categories: 2, ..roles };
    let message = folder.error("t.csv", "a,c\n1,1\n2,1\n3,1\n", &few);
    assert!(message.contains("row 3, column 'a': more than 2 different words"), "{message}");
}

#[test]
fn numbers_that_32_bits_do_not_tell_apart_are_known() {
    let folder = Folder::new();
    let text = "a,b,c,d\n1700000000,1700000000,1,0.1\n1700000050,1700000000,1,0.1\n,,1700000000,0.1\n";
    assert_eq!(folder.read("t.csv", text, &Roles::default()).merged, ["a"]);
    let json = "{\"a\": 1700000000, \"b\": 1.5}\n{\"a\": 1700000001, \"b\": 1.5000000001}\n";
    assert_eq!(folder.read("t.jsonl", json, &Roles::default()).merged, ["a", "b"]);
}

#[test]
fn numbers_are_the_nearest() {
    let folder = Folder::new();
    let texts = [
        "0.1",
        "-0",
        "16777216",
        "16777217",
        "1.23456789",
        "123456789",
        "999999999",
        "0.000000001",
        ".5",
        "5.",
        "+1",
        "-.5e-3",
        "1234567.8",
        "9999999999",
        "3.4028235e38",
        "0.30000001",
        "-12.345678",
        "1e-50",
        "00012.50",
    ];
    let text = format!("a\n{}\n", texts.join("\n"));
    let samples = folder.read("t.csv", text, &Roles::default());
    let expected: Vec<f32> = texts.iter().map(|t| t.parse().unwrap()).collect();
    assert_eq!(numbers(&samples, "a").1, expected);
}

#[test]
fn features_may_be_chosen() {
    let folder = Folder::new();
    let text = "y,a,b,\ncat,1,x,0\ndog,2,y,1\n";
    let roles = Roles { features: Choice::Some(vec!["a".into()]), ..label("y") };
    let samples = folder.read("t.csv", text, &roles);
    assert_eq!(samples.features.len(), 1);
    assert_eq!(numbers(&samples, "a").1, [1.0, 2.0]);
    let choose = |names: &[&str]| Roles {
        features: Choice::Some(names.iter().map(|n| n.to_string()).collect()),
        ..label("y")
    };
    let cases: [(&[&str], &str); 3] = [
        (&["a", "y"], "t.csv, column 'y': is the label and cannot be a feature: name it once"),
        (&["A"], "there is no column 'A' for the feature; did you mean 'a'? (columns: 'y', 'a', 'b', '')"),
        (&[], "t.csv: no column is left for features"),
    ];
    for (names, expected) in cases {
        let message = folder.error("t.csv", text, &choose(names));
        assert!(message.contains(expected), "{message}");
    }
    assert!(folder.error("t.csv", text, &label("y")).contains("column 4 has no name"));
}

#[test]
fn mistakes_in_tables_say_where() {
    let folder = Folder::new();
    let y = label("y");
    let id = Roles { id: some("id"), ..Roles::default() };
    let clean = Roles { clean: some("ok"), ..Roles::default() };
    let owner = Roles { owner: some("who"), ..Roles::default() };
    let twice = Roles { truth: some("y"), ..y.clone() };
    let typo = label("lable");
    let full = Roles { label: some("a"), id: some("y"), ..Roles::default() };
    let few = Roles { most_categories: 2, ..Roles::default() };
    let cases: Vec<(&str, &Roles, &str)> = vec![
        ("", &y, "t.csv: the file is empty"),
        ("\n\n", &y, "t.csv: the file is empty: its first line should name the columns"),
        ("y,a\n", &y, "t.csv: there are no rows of data: at least one is needed"),
        ("y,a,a\n1,2,3\n", &y, "t.csv, column 'a': there are two columns of this name: rename one"),
        ("y,a\nx,1\nx,1,2\n", &y, "t.csv, row 2: 3 cells, but the first line names 2 columns"),
        ("y,a\nx\n", &y, "t.csv, row 1: 1 cells, but the first line names 2 columns"),
        (
            "label,a\nx,1\n",
            &typo,
            "t.csv: there is no column 'lable' for the label; did you mean 'label'? (columns: 'label', 'a')",
        ),
        ("q,a\nx,1\n", &y, "t.csv: there is no column 'y' for the label (columns: 'q', 'a')"),
        ("y;a\nx;1\n", &y, "t.csv, column 'y;a': the first line names one column: put commas between"),
        ("y,a\nx,1\n,2\n", &y, "t.csv, row 2, column 'y': no label: give it one or leave the row out"),
        ("y,a\nNone,1\n", &y, "t.csv, row 1, column 'y': no label: 'None' counts as missing; write another"),
        (
            "id,a\nu,1\nv,2\nu,3\n",
            &id,
            "row 3, column 'id': the id 'u' is that of row 1 too: ids must differ",
        ),
        ("id,a\nu,1\n,2\n", &id, "t.csv, row 2, column 'id': no id: give it one or leave the row out"),
        ("who,a\nu,1\n?,2\n", &owner, "t.csv, row 2, column 'who': no owner: '?' counts as missing"),
        (
            "ok,a\n1,1\nmaybe,2\n",
            &clean,
            "row 2, column 'ok': 'maybe' does not say whether the label has been",
        ),
        ("y,a\nx,1\nx,inf\n", &y, "t.csv, row 2, column 'a': infinite or too large (at most 3.4e38)"),
        ("y,a\nx,-Infinity\nx,1\n", &y, "t.csv, row 1, column 'a': infinite or too large"),
        ("y,a\nx,1\nx,1e39\n", &y, "t.csv, row 2, column 'a': infinite or too large"),
        ("y,a\nx,1\n", &twice, "t.csv, column 'y': has two roles, label and truth: it may have one"),
        ("y,a\nx,1\n", &full, "no column is left for"),
        ("a\nx\ny\nx\nz\n", &few, "row 4, column 'a': more than 2 different words: leave the column out"),
        ("a\n1\nx\ny\nx\n", &few, "row 3, column 'a': more than 2 different words: leave the column out"),
    ];
    for (text, roles, expected) in cases {
        let message = folder.error("t.csv", text, roles);
        assert!(message.contains(expected), "{text:?} gives {message}, not {expected}");
    }
    let cases: [(&str, &[u8], &str); 5] = [
        ("t.csv", b"y,a\nx,1\nx,\xff\n", "t.csv, row 2: the text is not UTF-8: save the file as UTF-8"),
        ("t.csv", b"y,a\nx\xc3,\xa9\n", "t.csv, row 1: the text is not UTF-8"),
        ("t.csv.gz", &gz(TABLE.as_bytes())[..40], "t.csv.gz: cannot be read: "),
        ("t.xlsx", b"y", "t.xlsx: no known kind of file: use .csv"),
        ("t.parquet.gz", b"y", "t.parquet.gz: no known kind of file: use .csv"),
    ];
    for (name, bytes, expected) in cases {
        let message = folder.error(name, bytes, &y);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
    let message = folder.message(&folder.path().join("none.csv"), &y);
    assert!(message.starts_with("none.csv: cannot be read: No such file"), "{message}");
    let message = folder.error("t.csv", "y,a\nx,1\n", &Roles { image_size: Some((0, 3)), ..y });
    assert!(message.contains("the image size 0 x 3"), "{message}");
}

#[test]
fn the_default_limit_of_words_is_64() {
    let folder = Folder::new();
    let text = |n: usize| format!("a,b\n{}", (0..n).map(|i| format!("w{i},{i}\n")).collect::<String>());
    assert_eq!(folder.read("t.csv", text(64), &Roles::default()).rows, 64);
    let message = folder.error("t.csv", text(65), &Roles::default());
    assert!(message.contains("row 65, column 'a': more than 64 different words"), "{message}");
    let raised = Roles { most_categories: 65, ..Roles::default() };
    assert_eq!(folder.read("t.csv", text(65), &raised).rows, 65);
}

pub(super) const LINES: &str = r#"{"id": 900719925474099267, "y": 1.0, "a": 1, "e": [1, 2.5, null], "w":"red"}
{"id": "u", "y": 2, "a": true, "w": "01", "late": "x", "o": "1"}

{"y": true, "id": 3.5, "a": null, "e": [4, 5, 6], "w": null, "late": "NA", "o": "2"}
"#;

#[test]
fn texts_are_kept_whole() {
    let folder = Folder::new();
    let roles = Roles { text: some("review"), ..label("y") };
    let samples = folder.read("t.csv", "y,review\nx,\"good, but long\"\nz,\nx,7\n", &roles);
    assert_eq!(samples.texts, Some(["good, but long", "", "7"].map(String::from).into()));
    assert!(samples.features.is_empty());
    let twice = Roles { text: some("y"), ..label("y") };
    assert!(folder.error("t.csv", "y,review\nx,1\n", &twice).contains("two roles, label and text"));
}

#[test]
fn json_lines() {
    let folder = Folder::new();
    let roles = Roles { id: some("id"), ..label("y") };
    for (name, bytes) in [("t.jsonl", LINES.into()), ("t.ndjson.gz", gz(LINES.as_bytes()))] {
        let samples = folder.read(name, bytes, &roles);
        assert_eq!(samples.ids, Ids::Own(["900719925474099267", "u", "3.5"].map(String::from).into()));
        assert_eq!(words(&samples.labels), [Some("1"), Some("2"), Some("true")]);
        assert_eq!(numbers(&samples, "a").1, [1.0, 1.0, -1.0]);
        let (width, values) = numbers(&samples, "e");
        assert_eq!((width, &values[..]), (3, &[1.0, 2.5, -1.0, -1.0, -1.0, -1.0, 4.0, 5.0, 6.0][..]));
        assert_eq!(category(&samples, "w"), [Some("red"), Some("01"), None]);
        assert_eq!(category(&samples, "late"), [None, Some("x"), None]);
        assert_eq!(category(&samples, "o"), [None, Some("1"), Some("2")]);
    }
    let roles = Roles { features: Choice::Some(vec!["a".into()]), ..Roles::default() };
    let samples = folder.read("t.jsonl", "{\"a\": 1, \"b\": {\"c\": [[]]}}\n", &roles);
    assert_eq!(samples.features.len(), 1);
}

/// A key that a row lacks is what an empty cell is, wherever it lacks.
#[test]
fn rows_of_json_may_lack_keys_as_tables_lack_cells() {
    let folder = Folder::new();
    let roles = Roles { clean: some("ok"), truth: some("t"), text: some("s"), ..label("y") };
    let whole =
        "{\"y\": \"c\", \"a\": 7, \"w\": \"u\", \"e\": [1, 2], \"ok\": true, \"t\": \"d\", \"s\": \"x\"}\n";
    for place in 0..3 {
        let mut lines = [whole; 3];
        lines[place] = "{\"y\": \"c\"}\n";
        let samples = folder.read("t.jsonl", lines.concat(), &roles);
        let other = |row: usize| row != place;
        assert_eq!(samples.clean, Some([0, 1, 2].map(other).into()));
        let of = |word| [0, 1, 2].map(|row| other(row).then_some(word));
        assert_eq!(words(samples.truth.as_ref().unwrap()), of("d"));
        assert_eq!(category(&samples, "w"), of("u"));
        assert_eq!(samples.texts, Some(of("x").map(|text| text.unwrap_or_default().into()).into()));
        assert_eq!(numbers(&samples, "a").1, [0, 1, 2].map(|row| if other(row) { 7.0 } else { -1.0 }));
        let lists = [0, 1, 2].map(|row| if other(row) { [1.0, 2.0] } else { [-1.0; 2] });
        assert_eq!(numbers(&samples, "e"), (2, lists.concat()));
        // Nothing stands for a label, an id or an owner.
        for (part, roles) in [
            ("label", label("q")),
            ("id", Roles { id: some("q"), ..label("y") }),
            ("owner", Roles { owner: some("q"), ..label("y") }),
        ] {
            let line = |row: usize| match other(row) {
                true => format!("{{\"y\": 1, \"a\": 1, \"q\": \"{row}\"}}\n"),
                false => "{\"y\": 1, \"a\": 1}\n".into(),
            };
            let message = folder.error("t.jsonl", [0, 1, 2].map(line).concat(), &roles);
            let expected = format!("t.jsonl, row {}, column 'q': no {part}: give it one", place + 1);
            assert!(message.contains(&expected), "{message}");
        }
    }
}

#[test]
fn mistakes_in_json_lines_say_where() {
    let folder = Folder::new();
    let y = label("y");
    let cases = [
        ("\n \n", "t.jsonl: there are no rows of data"),
        (
            "{\"y\": 1, \"a\": 1}\n[1]\n",
            "t.jsonl, row 2: no flat JSON object: invalid type: sequence, expected an object",
        ),
        ("{\"y\": 1, \"a\": 1}\n{\"a\": 2}\n", "t.jsonl, row 2, column 'y': no label: give it one"),
        ("{\"y\": 1, \"a\": 1, \"a\": 2}\n", "t.jsonl, row 1, column 'a': comes twice in this row"),
        (
            "{\"y\": 1, \"a\": 1}\n{\"y\": 1, \"a\": \"x\"}\n",
            "row 2, column 'a': the word 'x' after rows with numbers",
        ),
        (
            "{\"y\": 1, \"a\": \"x\"}\n{\"y\": 1, \"a\": 1}\n",
            "row 2, column 'a': a number after rows with words",
        ),
        (
            "{\"y\": 1, \"a\": \"x\"}\n{\"y\": 1, \"a\": [1]}\n",
            "row 2, column 'a': a list after rows with words",
        ),
        (
            "{\"y\": 1, \"a\": [1, 2]}\n{\"y\": 1, \"a\": [1]}\n",
            "row 2, column 'a': 1 numbers, but 2 in the rows before",
        ),
        (
            "{\"y\": 1, \"a\": [1, 2]}\n{\"y\": 1, \"a\": 1}\n",
            "row 2, column 'a': 1 numbers, but 2 in the rows before",
        ),
        ("{\"y\": 1, \"a\": []}\n", "row 1, column 'a': an empty list: it needs one number or more"),
        ("{\"y\": [1], \"a\": 1}\n", "row 1, column 'y': a list, but this column needs one value a row"),
        (
            "{\"y\": 1, \"a\": {}}\n",
            "row 1: no flat JSON object: invalid type: map, expected a number, a word",
        ),
        ("{\"y\": 1, \"a\": 1e999}\n", "row 1: no flat JSON object: number out of range at character"),
        ("{\"y\": 1, \"a\": 1e39}\n", "row 1, column 'a': infinite or too large"),
        ("{\"y\": 1, \"a\": 1\n", "row 1: no flat JSON object: EOF while parsing an object"),
        ("{\"y\": 1, \"a\": 1} 2\n", "row 1: no flat JSON object: trailing characters at character"),
        ("{\"a\": 1}\n", "there is no column 'y' for the label (columns: 'a')"),
    ];
    for (text, expected) in cases {
        let message = folder.error("t.jsonl", text, &y);
        assert!(message.contains(expected), "{text:?} gives {message}, not {expected}");
    }
    // A few bytes must not become terabytes of missing values.
    let wide = format!("{{\"a\": [{}1]}}\n{}", "1,".repeat(200_000), "{}\n".repeat(200_000));
    let message = folder.error("t.jsonl", wide, &Roles::default());
    assert!(message.contains("far more values than a file of this size may have"), "{message}");
}

/// An array as NumPy writes it.
pub(super) fn npy(kind: &str, fortran: bool, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let fortran = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': ({shape}), }}");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.bytes());
    out.extend(bytes);
    out
}

pub(super) fn npz(arrays: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in arrays {
        let options = zip::write::SimpleFileOptions::default();
        zip.start_file(format!("{name}.npy"), options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn arrays_of_numpy() {
    let folder = Folder::new();
    let floats: Vec<u8> =
        [1.0f32, 2.0, 3.0, 4.0, f32::NAN, 6.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let samples = folder.read("x.npy", npy("<f4", false, "2, 3", &floats), &Roles::default());
    assert_eq!(numbers(&samples, "x"), (3, vec![1.0, 2.0, 3.0, 4.0, -1.0, 6.0]));
    let samples = folder.read("x.npy", npy("<f4", true, "2, 3", &floats), &Roles::default());
    assert_eq!(numbers(&samples, "x"), (3, vec![1.0, 3.0, -1.0, 2.0, 4.0, 6.0]));
    let samples = folder.read("x.npy", npy("|i1", false, "3,", &[1, 255, 128]), &Roles::default());
    assert_eq!(numbers(&samples, "x"), (1, vec![1.0, -1.0, -128.0]));
    let samples = folder.read("x.npy", npy(">i2", false, "2, 1", &[1, 0, 255, 254]), &Roles::default());
    assert_eq!(numbers(&samples, "x"), (1, vec![256.0, -2.0]));
    let halves = [0x3c00u16, 0xc000, 0x0001, 0x7bff].map(u16::to_le_bytes).concat();
    let samples = folder.read("x.npy", npy("<f2", false, "4,", &halves), &Roles::default());
    assert_eq!(numbers(&samples, "x").1, [1.0, -2.0, 2f32.powi(-24), 65504.0]);
}

#[test]
fn arrays_that_numpy_wrote() {
    let folder = Folder::new();
    let roles = Roles { id: some("name"), ..label("y") };
    let samples = folder.read("t.npz", include_bytes!("../../tests/numpy.npz"), &roles);
    assert_eq!(samples.ids, Ids::Own(["ä", "b", "cc", "d"].map(String::from).into()));
    assert_eq!(words(&samples.labels), [Some("3"), Some("1"), Some("3"), Some("2")]);
    assert_eq!(numbers(&samples, "x"), (6, (0..24).map(|v| v as f32).collect()));
    assert_eq!(numbers(&samples, "img"), (6, (0..24).map(|v| v as f32).collect()));
    assert_eq!(numbers(&samples, "h"), (2, (0..8).map(|v| v as f32 / 4.0).collect()));
    assert_eq!(samples.image, Some((2, 3, 1)));
}

#[test]
fn mistakes_in_arrays_say_which() {
    let folder = Folder::new();
    let x = npy("|u1", false, "2,", &[1, 2]);
    let cases: Vec<(&str, Vec<u8>, Roles, &str)> = vec![
        (
            "x.npy",
            x.clone(),
            label("y"),
            "x.npy, column 'y': a .npy has one array, the features: put those and",
        ),
        (
            "x.npy",
            x[..4].to_vec(),
            Roles::default(),
            "x.npy, column 'x': no NumPy array: its header is cut off",
        ),
        (
            "x.npy",
            x[..x.len() - 1].to_vec(),
            Roles::default(),
            "column 'x': the array ends before its last value",
        ),
        (
            "x.npy",
            b"abcdefghijk".to_vec(),
            Roles::default(),
            "column 'x': no NumPy array: it does not begin like one",
        ),
        (
            "x.npy",
            npy("|O", false, "2,", &[]),
            Roles::default(),
            "kind '|O' (Python objects cannot be read): use",
        ),
        (
            "x.npy",
            npy("<M8[s]", false, "2,", &[]),
            Roles::default(),
            "values of kind '<M8[s]': use numbers, bool or",
        ),
        ("x.npy", npy("<f4", false, "", &[0; 4]), Roles::default(), "one value without rows"),
        ("x.npy", npy("<f4", false, "3, 0", &[]), Roles::default(), "the shape [3, 0] has no values"),
        ("x.npy", npy("<f4", false, "0, 3", &[]), Roles::default(), "there are no rows of data"),
        (
            "x.npy",
            npy("<f4", false, "9999999999999, 99", &[0; 64]),
            Roles::default(),
            "ends before its last value",
        ),
        (
            "x.npy",
            npy("<f4", true, "9999999999999, 99", &[0; 64]),
            Roles::default(),
            "ends before its last value",
        ),
        (
            "x.npy",
            npy("<f4", false, "9999999999999999999", &[0; 64]),
            Roles::default(),
            "has no values, or too many",
        ),
        (
            "x.npy",
            npy("<f4", false, "1,", &f32::INFINITY.to_le_bytes()),
            Roles::default(),
            "infinite or too large",
        ),
    ];
    for (name, bytes, roles, expected) in cases {
        let message = folder.error(name, bytes, &roles);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
}

#[test]
fn mistakes_in_several_arrays_say_which() {
    let folder = Folder::new();
    let x = npy("|u1", false, "2,", &[1, 2]);
    let pair = |y: Vec<u8>| npz(&[("x", x.clone()), ("y", y)]);
    let cases: Vec<(&str, Vec<u8>, Roles, &str)> = vec![
        ("t.npz", pair(npy("|u1", false, "3,", &[1, 2, 3])), label("y"), "column 'y': 3 rows, but 'x' has 2"),
        (
            "t.npz",
            pair(npy("|u1", false, "2, 2", &[0; 4])),
            label("y"),
            "column 'y': the shape [2, 2]: this array",
        ),
        ("t.npz", pair(x.clone()), label("z"), "there is no column 'z' for the label (columns: 'x', 'y')"),
        ("t.npz", pair(npy("<f4", false, "2,", &[255; 8])), label("y"), "row 1, column 'y': no label"),
        ("t.npz", pair(x.clone())[..80].to_vec(), label("y"), "t.npz: cannot be read: "),
        ("t.npz", b"PK".to_vec(), label("y"), "t.npz: cannot be read: "),
    ];
    for (name, bytes, roles, expected) in cases {
        let message = folder.error(name, bytes, &roles);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
}

pub(super) fn idx(shape: &[u32], bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0, 8, shape.len() as u8];
    out.extend(shape.iter().flat_map(|d| d.to_be_bytes()));
    out.extend(bytes);
    out
}

#[test]
fn images_of_idx() {
    let folder = Folder::new();
    let images = idx(&[3, 2, 2], &[0, 1, 2, 3, 255, 5, 6, 7, 8, 9, 10, 11]);
    folder.write("train-labels-idx1-ubyte.gz", gz(&idx(&[3], &[7, 2, 7])));
    for (name, bytes) in
        [("train-images-idx3-ubyte", images.clone()), ("train-images-idx3-ubyte.gz", gz(&images))]
    {
        let samples = folder.read(name, bytes, &label("digit"));
        assert_eq!(words(&samples.labels), [Some("7"), Some("2"), Some("7")]);
        assert_eq!((samples.image, samples.rows), (Some((2, 2, 1)), 3));
        assert_eq!(numbers(&samples, "image").1[3..6], [3.0, 255.0, 5.0]);
    }
    let small = Roles { image_size: Some((1, 1)), ..Roles::default() };
    let samples = folder.read("train-images-idx3-ubyte", &images, &small);
    assert_eq!(numbers(&samples, "image"), (1, vec![1.5, 68.25, 9.5]));
    let samples =
        folder.read("c-images-idx4-ubyte", idx(&[1, 1, 2, 3], &[1, 2, 3, 4, 5, 6]), &Roles::default());
    assert_eq!((samples.image, samples.labels.codes.len()), (Some((2, 1, 3)), 0));
    let mistakes: [(&str, Vec<u8>, &str); 7] = [
        ("train-images-idx3-ubyte", idx(&[1 << 30, 9, 9], &[]), "far more than a file of this size may have"),
        ("t-images-idx3-ubyte", images.clone(), "no labels beside it: there is no 't-labels-idx1-ubyte'"),
        (
            "train-images-idx3-ubyte",
            images[..20].to_vec(),
            "row 2: the file ends in this image; it says that it has 3",
        ),
        ("train-images-idx3-ubyte", idx(&[2, 1, 1], &[0, 0]), "labels of the shape [3] for 2 images"),
        ("train-images-idx3-ubyte", idx(&[2, 0, 1], &[]), "images of 1 x 0 x 1: none, or too large"),
        ("train-images-idx3-ubyte", idx(&[2], &[0, 0]), "1 dimensions, but images have 3 or 4"),
        ("train-images-idx3-ubyte", vec![0, 0, 13, 3], "no IDX file of bytes"),
    ];
    for (name, bytes, expected) in mistakes {
        let message = folder.error(name, bytes, &label("digit"));
        assert!(message.contains(expected), "{message}, not {expected}");
    }
}

#[cfg(feature = "parquet")]
#[test]
fn tables_that_pandas_wrote() {
    let folder = Folder::new();
    let roles = Roles { id: some("id"), ..label("label") };
    let parquet: &[u8] = include_bytes!("../../tests/pandas.parquet");
    let feather: &[u8] = include_bytes!("../../tests/pandas.feather");
    for (name, bytes) in [("t.parquet", parquet), ("t.feather", feather)] {
        let samples = folder.read(name, bytes, &roles);
        let Ids::Own(ids) = &samples.ids else { panic!() };
        assert_eq!((samples.rows, ids[5].as_str()), (6, "100000000000000005"));
        assert_eq!(samples.labels.words, ["cat", "dog"]);
        assert_eq!(numbers(&samples, "score").1, [0.5, -1.0, -1.0, 3.0, 4.0, 5.0]);
        assert_eq!(numbers(&samples, "flag").1, [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
        let red = Some("red");
        assert_eq!(category(&samples, "colour"), [red, Some("blue"), None, red, red, Some("blue")]);
        assert_eq!(numbers(&samples, "size").1, [1.0, -1.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(numbers(&samples, "emb").0, 3);
        assert_eq!(numbers(&samples, "emb").1[3..9], [1.0, 1.5, 1.0, 2.0, 2.5, -1.0]);
        assert_eq!(numbers(&samples, "lst").1[8..], [4.0, 5.0, 5.0, 6.0]);
        assert_eq!(numbers(&samples, "half").1, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);
        assert_eq!(category(&samples, "view")[2], Some("c"));
        assert_eq!(category(&samples, "big")[4..], [Some("b"), None]);
        assert_eq!(numbers(&samples, "price").1, [1.25; 6]);
        for cut in [bytes.len() / 2, bytes.len() - 1, 3] {
            let message = folder.error(name, &bytes[..cut], &roles);
            assert!(message.starts_with(&format!("{name}: cannot be read: ")), "{message}");
        }
        let message = folder.error(name, bytes, &label("lable"));
        assert!(message.contains("no column 'lable' for the label; did you mean 'label'?"), "{message}");
    }
    let message = folder.error("t.feather", b"FEA1....FEA1", &roles);
    assert!(message.contains("Feather of the first version"), "{message}");
}

#[cfg(feature = "parquet")]
pub(super) mod arrow {
    use super::*;
    use arrow_array::{ArrayRef, Date32Array, Float32Array, RecordBatch, StringArray, builder::*};
    use std::sync::Arc;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn parquet(batch: &RecordBatch) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = parquet::arrow::ArrowWriter::try_new(&mut out, batch.schema(), None).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
        out
    }

    fn stream(batches: &[RecordBatch]) -> Vec<u8> {
        let schema = batches[0].schema();
        let mut writer = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &schema).unwrap();
        batches.iter().for_each(|b| writer.write(b).unwrap());
        writer.into_inner().unwrap()
    }

    /// A small Parquet file and a stream, neither packed.
    pub(in super::super) fn small() -> (Vec<u8>, Vec<u8>) {
        let mut lists = ListBuilder::new(Float32Builder::new());
        (0..5).for_each(|i| lists.append_value([Some(i as f32), None]));
        let labels: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "a", "b", "a"]));
        let batch = batch(vec![("e", Arc::new(lists.finish())), ("y", labels)]);
        (parquet(&batch), stream(&[batch]))
    }

    #[test]
    fn many_batches() {
        let folder = Folder::new();
        let labels: ArrayRef =
            Arc::new(StringArray::from_iter_values((0..10_000).map(|i| format!("c{}", i % 7))));
        let values: ArrayRef = Arc::new(Float32Array::from_iter_values((0..10_000).map(|i| i as f32)));
        let batch = batch(vec![("x", values.clone()), ("y", labels), ("z", values)]);
        let roles = Roles { features: Choice::Some(vec!["z".into()]), ..label("y") };
        let files = [
            ("t.parquet", parquet(&batch)),
            ("t.arrow", stream(&[batch.clone(), batch.slice(9_000, 1_000)])),
        ];
        for (name, bytes) in files {
            let samples = folder.read(name, bytes, &roles);
            assert_eq!(samples.features.len(), 1);
            assert_eq!(samples.labels.get(9_999), Some("c3"));
            let (_, values) = numbers(&samples, "z");
            assert_eq!((values[9_999], samples.rows % 10_000), (9_999.0, samples.rows - 10_000));
            assert_eq!(*values.last().unwrap(), 9_999.0);
        }
    }

    #[test]
    fn mistakes() {
        let folder = Folder::new();
        let dates: ArrayRef = Arc::new(Date32Array::from(vec![1, 2]));
        let mut lists = ListBuilder::new(Float32Builder::new());
        lists.append_value([Some(1.0), None]);
        lists.append_value([Some(1.0)]);
        let lists: ArrayRef = Arc::new(lists.finish());
        let infinite: ArrayRef = Arc::new(Float32Array::from(vec![1.0, f32::INFINITY]));
        let missing: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        let fine: ArrayRef = Arc::new(Float32Array::from(vec![1.0, 2.0]));
        let cases = [
            (
                vec![("a", dates)],
                "row 1, column 'a': values of type Date32: use numbers, bool, text or lists",
            ),
            (vec![("a", lists)], "row 2, column 'a': 1 numbers, but 2 in the rows before: use one length"),
            (vec![("a", infinite)], "row 2, column 'a': infinite or too large"),
            (vec![("y", missing), ("a", fine.clone())], "row 2, column 'y': no label: give it one"),
            (vec![("a", fine.slice(0, 0))], "there are no rows of data"),
        ];
        for (columns, expected) in cases {
            let roles = if columns.len() == 2 { label("y") } else { Roles::default() };
            let batch = batch(columns);
            for (name, bytes) in
                [("t.parquet", parquet(&batch)), ("t.ipc", stream(std::slice::from_ref(&batch)))]
            {
                let message = folder.error(name, bytes, &roles);
                assert!(message.contains(expected), "{message}, not {expected}");
            }
        }
    }
}

#[cfg(feature = "images")]
pub(super) fn png(width: u32, height: u32, colour: png::ColorType, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(colour);
    encoder.write_header().unwrap().write_image_data(bytes).unwrap();
    out
}

#[cfg(feature = "images")]
#[test]
fn folders_of_images() {
    let grey = |v: u8| png(2, 1, png::ColorType::Grayscale, &[v, v + 1]);
    let folder = Folder::new();
    folder.write("dog/b.png", grey(10));
    folder.write("cat/z.png", grey(20));
    folder.write("cat/a.PNG", png(2, 1, png::ColorType::GrayscaleAlpha, &[1, 0, 2, 0]));
    folder.write("cat/notes.txt", "not an image");
    folder.write(".hidden/x.png", "");
    let samples = read(folder.path(), &label("class")).unwrap();
    assert_eq!(samples.ids, Ids::Own(["cat/a.PNG", "cat/z.png", "dog/b.png"].map(String::from).into()));
    assert_eq!(words(&samples.labels), [Some("cat"), Some("cat"), Some("dog")]);
    assert_eq!(samples.image, Some((2, 1, 1)));
    assert_eq!(numbers(&samples, "image"), (2, vec![1.0, 2.0, 20.0, 21.0, 10.0, 11.0]));
    // One in colour makes all so.
    folder.write("dog/c.png", png(2, 1, png::ColorType::Rgba, &[1, 2, 3, 9, 4, 5, 6, 9]));
    let samples = read(folder.path(), &Roles::default()).unwrap();
    assert_eq!((samples.image, samples.labels.codes.len()), (Some((2, 1, 3)), 0));
    let (width, values) = numbers(&samples, "image");
    assert_eq!(
        (width, &values[12..]),
        (6, &[10.0, 10.0, 10.0, 11.0, 11.0, 11.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..])
    );
    // JPEGs beside them, scaled to one size.
    folder.write("dog/d.jpg", include_bytes!("../../tests/grey.jpg"));
    folder.write("dog/e.jpeg", include_bytes!("../../tests/colour.jpg"));
    let message = folder.message(folder.path(), &label("class"));
    assert!(
        message.contains("d.jpg: 8 x 6 pixels, but 'cat/a.PNG' has 2 x 1: give one image size"),
        "{message}"
    );
    let samples = read(folder.path(), &Roles { image_size: Some((4, 3)), ..label("class") }).unwrap();
    assert_eq!(samples.image, Some((4, 3, 3)));
    let (width, values) = numbers(&samples, "image");
    let last = &values[values.len() - width..];
    for (value, expected) in last.iter().zip([200.0f32, 30.0, 60.0].iter().cycle()) {
        assert!((value - expected).abs() < 4.0, "{last:?}");
    }
}

/// é as one character and as e with an accent is one word, in every format and role.
#[test]
fn words_that_look_the_same_are_the_same() {
    const ONE: &str = "caf\u{e9}";
    const TWO: &str = "cafe\u{301}";
    let folder = Folder::new();
    let roles = Roles { owner: some("o"), truth: some("t"), most_categories: 1, ..label("y") };
    let table = format!("y,o,t,a\n{TWO},{ONE},{TWO},{ONE}\n{ONE},{TWO},{ONE},{TWO}\n{TWO},{ONE},,\n");
    let rows = [(TWO, ONE), (ONE, TWO), (TWO, ONE)];
    let rows =
        rows.map(|(y, a)| format!("{{\"y\": \"{y}\", \"o\": \"{a}\", \"t\": \"{y}\", \"a\": \"{a}\"}}\n"));
    for (name, text) in [("t.csv", table), ("t.jsonl", rows.concat())] {
        let samples = folder.read(name, text, &roles);
        assert_eq!(samples.labels.words, [ONE]);
        assert_eq!(samples.labels.codes, [0; 3]);
        assert_eq!(samples.owners.as_ref().unwrap().words, [ONE]);
        assert_eq!(samples.truth.as_ref().unwrap().words, [ONE]);
        assert_eq!(category(&samples, "a")[..2], [Some(ONE); 2]);
    }
    // What only looks alike in some ways stays apart.
    let samples = folder.read("t.csv", "y,a\nfi,1\n\u{fb01},1\ncafe,1\n", &label("y"));
    assert_eq!(samples.labels.words, ["fi", "\u{fb01}", "cafe"]);
}

#[cfg(feature = "images")]
#[test]
fn classes_of_folders_are_composed() {
    let folder = Folder::new();
    folder.write("caf\u{e9}/a.png", png(2, 1, png::ColorType::Grayscale, &[1, 2]));
    folder.write("cafe\u{301}/b.png", png(2, 1, png::ColorType::Grayscale, &[1, 2]));
    let samples = read(folder.path(), &label("class")).unwrap();
    assert_eq!(words(&samples.labels), [Some("caf\u{e9}"); 2]);
}

#[cfg(feature = "images")]
#[test]
fn folders_with_a_table() {
    let grey = |v: u8| png(1, 1, png::ColorType::Grayscale, &[v]);
    let folder = Folder::new();
    folder.write("b.png", grey(2));
    folder.write("sub/a.png", grey(1));
    let path = folder.write("labels.csv", "file,y,who,n\nb.png,dog,north,7\nsub/a.png,cat,south,8\n");
    let roles = Roles { owner: some("who"), ..label("y") };
    let samples = read(folder.path(), &roles).unwrap();
    assert_eq!(samples.ids, Ids::Own(["b.png", "sub/a.png"].map(String::from).into()));
    assert_eq!(words(&samples.labels), [Some("dog"), Some("cat")]);
    assert_eq!((samples.features.len(), numbers(&samples, "image").1), (1, vec![2.0, 1.0]));
    assert_eq!(samples.file, folder.path());
    let samples = read(folder.path(), &Roles { id: some("n"), ..roles.clone() }).unwrap();
    assert_eq!(samples.ids, Ids::Own(["7", "8"].map(String::from).into()));
    let mistakes = [
        ("file,y,who\nsub/a.png,cat,x\n", "labels.csv: 'b.png' has no row: add one or take the image away"),
        ("file,y,who\n../b.png,cat,x\n", "row 1, column 'file': '../b.png' is not in this folder"),
        ("file,y,who\nb.png,cat,x\nc.png,cat,x\n", "c.png: cannot be read: No such file"),
        ("file,y,who\nb.png,,x\n", "row 1, column 'y': no label"),
        ("name,y,who\nb.png,cat,x\n", "there is no column 'file' for the id"),
    ];
    for (text, expected) in mistakes {
        std::fs::write(&path, text).unwrap();
        let message = folder.message(folder.path(), &roles);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
}

#[cfg(feature = "images")]
#[test]
fn mistakes_in_folders_say_which() {
    let good = png(2, 1, png::ColorType::Grayscale, &[1, 2]);
    let jpeg: &[u8] = include_bytes!("../../tests/colour.jpg");
    let mut huge = good.clone();
    huge[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    let crc = crc(&huge[12..29]);
    huge[29..33].copy_from_slice(&crc.to_be_bytes());
    let cases: Vec<(&str, &[u8], Roles, &str)> = vec![
        ("a.txt", b"", label("y"), "there are no PNG or JPEG images"),
        ("a.png", &good, label("y"), "the image 'a.png' is in no class: put the images of each class"),
        (
            "c/a.png",
            &good,
            Roles { owner: some("o"), ..label("y") },
            "column 'o': a folder of images has no such",
        ),
        ("c/d/a.png", &good, label("y"), "the folder 'd' in a class: only images may be there"),
        ("c/a.png", &good[..40], label("y"), "a.png: cannot be read as an image: "),
        ("c/a.png", b"GIF89a", label("y"), "a.png: cannot be read as an image: neither PNG nor JPEG"),
        ("c/a.gif", b"GIF89a", label("y"), "a.gif: images must be PNG or JPEG: convert it"),
        ("c/a.jpg", &jpeg[..jpeg.len() - 2], label("y"), "a.jpg: cannot be read as an image: it is cut off"),
        (
            "c/a.png",
            &huge,
            label("y"),
            "a.png: cannot be read as an image: 65536 x 65536 pixels; 1048576 are the most in a file",
        ),
        (
            "c/a.png",
            &good,
            Roles { features: Choice::Some(vec!["x".into()]), ..label("y") },
            "images have one feature, 'image': choose no other",
        ),
    ];
    for (name, bytes, roles, expected) in cases {
        let folder = Folder::new();
        folder.write(name, bytes);
        let message = folder.message(folder.path(), &roles);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
}

/// The sum that guards a part of a PNG.
#[cfg(feature = "images")]
fn crc(bytes: &[u8]) -> u32 {
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    sum.sum()
}

#[test]
fn scaled_images_keep_their_mean() {
    let image: Vec<f32> = (0..48).map(|v| v as f32).collect();
    for to in [(8, 6), (4, 3), (16, 12), (3, 5), (1, 1), (20, 2)] {
        let out = super::scale::scale(&image, (8, 6, 1), to);
        let mean = out.iter().sum::<f32>() / out.len() as f32;
        assert_eq!(out.len(), to.0 * to.1);
        assert!((mean - 23.5).abs() < 0.01, "{to:?}: {mean}");
    }
    assert_eq!(super::scale::scale(&image, (8, 6, 1), (8, 6)), image);
}
