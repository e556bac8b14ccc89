//! Reports from small made-up results, sound and degenerate.
use super::claims::Verdict;
use super::*;
use crate::results::{CurveRow, FORMAT, Figure, Machine, MetricInfo, RunRecord, Series, Value};
use std::collections::BTreeMap;

fn figure(kind: &str, x: &str, y: &str, log: &str) -> Figure {
    let name = format!("{kind}-{}-{y}-{log}", x.replace(':', "-"));
    Figure {
        name,
        title: String::new(),
        x: x.into(),
        y: y.into(),
        y2: None,
        kind: kind.into(),
        log: log.into(),
        only: BTreeMap::new(),
        panels: None,
        from: 0,
    }
}

/// Two series and two seeds; `value(series, seed, iteration)` is the only metric.
fn results(
    value: impl Fn(usize, u64, usize) -> f64,
    iterations: &[usize],
    outcome: &str,
) -> (Manifest, Curves) {
    let mut curves = Curves { metrics: vec!["error".into()], rows: Vec::new() };
    let (mut series, mut runs) = (Vec::new(), Vec::new());
    for index in 0..2 {
        let settings = BTreeMap::from([("graph.nu".to_string(), Value::from(0.1 * index as f64))]);
        let (label, swept) = (format!("FAB ν={}", 0.1 * index as f64), vec!["graph.nu".into()]);
        series.push(Series {
            name: "FAB".into(),
            label,
            algorithm: "fab".into(),
            settings,
            swept,
            warnings: vec!["<careful>".into()],
        });
        for seed in 0..2 {
            for &iteration in iterations {
                let values = vec![value(index, seed, iteration)];
                let seconds = iteration as f64 * 0.01;
                curves.rows.push(CurveRow {
                    series: index,
                    seed,
                    iteration,
                    seconds,
                    bytes: 10,
                    gradients: 1,
                    products: 0,
                    values,
                });
            }
            let last = iterations.last().copied().unwrap_or(0);
            runs.push(RunRecord {
                series: index,
                seed,
                outcome: outcome.into(),
                reason: None,
                best: None,
                iterations: last,
                seconds: 0.5,
                bytes: 2_000_000,
                gradients: 10,
                products: 0,
                state_bytes: 640,
                memory: Default::default(),
                last: BTreeMap::from([("error".to_string(), value(index, seed, last))]),
                smallest: BTreeMap::new(),
                mean: BTreeMap::new(),
            });
        }
    }
    let machine = Machine {
        system: "linux x86_64".into(),
        cpu: "a CPU".into(),
        threads: 2,
        memory: 8_000_000_000,
        device: None,
    };
    let manifest = Manifest {
        format: FORMAT,
        version: "0.1.0".into(),
        commit: None,
        command: None,
        name: "small".into(),
        title: "A <small> & made-up run".into(),
        about: "One.\n\nTwo.".into(),
        file: "a = \"</pre><script>\"".into(),
        overrides: vec![],
        seeds: vec![0, 1],
        machine,
        started: 1_700_000_000,
        seconds: 1.0,
        peak_memory: None,
        metrics: curves.metrics.iter().map(|name| MetricInfo::plain(name)).collect(),
        series,
        runs,
        figures: vec![figure("line", "iteration", "error", "y")],
        claims: vec![],
    };
    (manifest, curves)
}

fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("dibo-report-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn the_page_is_whole_and_escaped() {
    let dir = folder("page");
    let (manifest, curves) =
        results(|_, seed, k| 0.9f64.powi(k as i32) * (1.0 + seed as f64), &[0, 10, 20, 30], "reached");
    let claim = |id: &str, verdict| Claim {
        id: id.into(),
        statement: "a < b".into(),
        verdict,
        number: "3".into(),
        reading: "so".into(),
    };
    let claims = [claim("P1", Verdict::HoldsOnlyUnder("λ > 10".into())), claim("P2", Verdict::DoesNotHold)];
    let extra = |body| Extra::new("More", body);
    let cells = |a: &str| vec![a.to_string(), "b".to_string()];
    let extras = [
        extra(Body::Table(vec![cells("head"), cells("cell")])),
        extra(Body::Table(vec![])),
        extra(Body::Svg("<svg/>".into())),
    ];
    let page = std::fs::read_to_string(write(&dir, &manifest, &curves, &claims, &extras).unwrap()).unwrap();
    for part in [
        "A &lt;small&gt; &amp; made-up run",
        "2 reached",
        "holds only under λ &gt; 10",
        "does not hold",
        "<svg role=\"img\" aria-label=",
        "PHN2Zy8+",
        "2 MB",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let verdicts = std::fs::read_to_string(dir.join("claims.csv")).unwrap();
    let lines = [
        "claim,verdict,statement,number,reading",
        "P1,holds only under λ > 10,a < b,3,so",
        "P2,does not hold,a < b,3,so",
    ];
    assert_eq!(verdicts.lines().collect::<Vec<_>>(), lines);
    // Two scripts of its own: the curves and what draws them.
    assert!(
        page.matches("<script").count() == 2
            && !page.contains("<careful>")
            && !page.contains("src=\"http")
            && !page.contains("href=\"http")
    );
    assert!(
        dir.join("plots/line-iteration-error-y.png").exists()
            && dir.join("plots/line-iteration-error-y.svg").exists()
    );
    let text = terminal_table(&manifest);
    assert!(
        text.contains("FAB ν=0.1  2 reached") && text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    std::fs::remove_dir_all(dir).unwrap();
}

/// The headings of a page in their order.
fn headings(page: &str) -> Vec<String> {
    page.split("<h2>").skip(1).map(|part| part.split("</h2>").next().unwrap().into()).collect()
}

#[test]
fn a_page_opens_with_its_result_and_ends_with_what_it_cost() {
    let dir = folder("leads");
    let (manifest, curves) = results(|_, _, k| 0.9f64.powi(k as i32), &[0, 10], "finished");
    let table = || Body::Table(vec![vec!["owner".into()], vec!["site0".into()]]);
    let picture = "<svg viewBox=\"0 0 20 20\" data-cell=\"10 10\"><title>t</title></svg>";
    let text = || Body::Text("Taken: `em`; it does best.\n\n<b>Twice.".into(), vec!["labels.csv".into()]);
    let extras = [
        Extra::new("Memory", table()).at(Place::Last),
        Extra::new("3 of 9 look wrong", text()).at(Place::First),
        Extra::new("Images", Body::Svg(picture.into())).at(Place::First),
        Extra::new("Beside others", table()),
    ];
    let page = write(&dir, &manifest, &curves, &[], &extras).unwrap();
    let page = std::fs::read_to_string(page).unwrap();
    let order = ["3 of 9 look wrong", "Images", "How it was found", "Outcome", "Figures", "Beside others"];
    let last = ["Warnings", "How it ran", "Time, bytes and gradients", "Memory"];
    assert_eq!(headings(&page), order.into_iter().chain(last).collect::<Vec<_>>());
    assert!(page.contains("Taken: <code>em</code>;") && page.contains("&lt;b&gt;Twice."));
    assert!(
        page.contains("<a href=\"labels.csv\">") && page.matches("are sums over all agents").count() == 1
    );
    // Four cells, each a window on one image.
    assert_eq!((page.matches("<use href").count(), page.matches("image/svg+xml;base64").count()), (4, 1));
    assert!(page.contains("viewBox=\"10 10 10 10\""));
    // Without a result to open with, everything is where it was.
    let page = std::fs::read_to_string(write(&dir, &manifest, &curves, &[], &extras[3..]).unwrap()).unwrap();
    assert_eq!(headings(&page), ["Outcome", "Figures", "Beside others", "Warnings", "How it ran"]);
    for odd in ["data-cell=\"0 1\"", "data-cell=\"1 1\"", "data-cell=\"x\"", "data-cell=\"30 30\"", ""] {
        let svg = format!("<svg viewBox=\"0 0 20 9999999\" {odd}></svg>");
        let odd = [Extra::new("Odd", Body::Svg(svg))];
        let page = std::fs::read_to_string(write(&dir, &manifest, &curves, &[], &odd).unwrap()).unwrap();
        assert!(page.contains("<img alt=\"Odd\"") && !page.contains("<use "));
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn degenerate_results_give_a_plot_or_a_reason() {
    let dir = folder("degenerate");
    type Value = fn(usize, u64, usize) -> f64;
    let values: [Value; 8] = [
        |_, _, _| f64::NAN,
        |_, _, _| 0.0,
        |_, _, _| 1.0,
        |_, _, _| -1.0,
        |_, _, k| 10f64.powi(k as i32),
        |_, _, _| f64::INFINITY,
        |_, _, k| 1e-300 * k as f64,
        |_, seed, k| if k > 5 { f64::NAN } else { 1e300 * (seed as f64 + 1.0) },
    ];
    for value in values {
        for iterations in [&[][..], &[0], &[0, 1], &[0, 5, 300]] {
            for outcome in ["finished", "diverged", "reached"] {
                let (mut manifest, curves) = results(value, iterations, outcome);
                manifest.figures.clear();
                for log in ["", "x", "xy"] {
                    manifest.figures.push(figure("line", "iteration", "error", log));
                    manifest.figures.push(Figure {
                        y2: Some("error".into()),
                        panels: Some("graph.nu".into()),
                        ..figure("line", "seconds", "error", log)
                    });
                    manifest.figures.push(figure("points", "setting:graph.nu", "error", log));
                }
                manifest.figures.push(figure("bar", "", "error", "y"));
                for figure in &manifest.figures {
                    if let Ok(picture) = plot::draw(figure, &manifest, &curves) {
                        assert!(
                            !picture.svg.contains("NaN") && !picture.svg.contains("inf\""),
                            "{} {iterations:?} {outcome}",
                            figure.name
                        );
                    }
                }
            }
        }
    }
    let (mut manifest, curves) = results(|_, _, _| 1.0, &[0, 1], "finished");
    manifest.figures = vec![
        figure("line", "iteration", "none", ""),
        figure("pie", "iteration", "error", ""),
        figure("graphs", "", "", ""),
    ];
    manifest.runs.clear();
    let page = std::fs::read_to_string(write(&dir, &manifest, &curves, &[], &[]).unwrap()).unwrap();
    assert_eq!(page.matches("Not drawn:").count(), 3);
    manifest.figures[0].name = "../out".into();
    assert!(write(&dir, &manifest, &curves, &[], &[]).unwrap_err().to_string().contains("name of a file"));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn seeds_that_stop_early_are_carried_or_left_out() {
    let (mut manifest, mut curves) = results(|_, seed, _| seed as f64 + 1.0, &[0, 10, 20, 30], "reached");
    // Seed 0 reaches its target at 13, between two evaluations.
    curves.rows.retain(|row| row.seed == 1 || row.iteration <= 10);
    curves.rows.push(CurveRow { iteration: 13, values: vec![0.5], ..curves.rows[0].clone() });
    let line = average::mean_line(&manifest, &curves, 0, "iteration", "error");
    let at: Vec<(f64, f64)> = line.iter().map(|point| (point.x, point.y)).collect();
    assert_eq!(at, [(0.0, 1.5), (10.0, 1.5), (20.0, 1.25), (30.0, 1.25)]);
    manifest.runs[0].outcome = "diverged".into();
    let line = average::mean_line(&manifest, &curves, 0, "iteration", "error");
    assert!(line.iter().all(|point| point.y == 2.0) && line.len() == 4);
}

#[test]
fn graphs_are_drawn_for_any_edges() {
    let list = [
        (
            "one way".to_string(),
            vec![(0, 1, false), (1, 2, true), (2, 0, false), (1, 1, false), (7, 0, true)],
        ),
        ("none".into(), vec![]),
    ];
    assert!(plot::graphs(3, &list).unwrap().svg.contains("one way"));
    assert!(
        plot::graphs(1, &list).is_ok() && plot::graphs(200, &list).is_ok() && plot::graphs(0, &list).is_err()
    );
}

#[test]
fn small_tools_are_right() {
    assert_eq!(base64(b"Man"), "TWFu");
    assert_eq!(base64(b"Ma"), "TWE=");
    assert_eq!(base64(b""), "");
    assert_eq!(date(0), "1970-01-01 00:00 UTC");
    assert_eq!(date(1_709_210_096), "2024-02-29 12:34 UTC");
}

#[test]
fn the_table_fits_the_terminal_whatever_the_labels() {
    let (mut manifest, _) = results(|_, _, _| 1.234e-10, &[0, 12_345], "reached");
    let long = "DL-Push-SAGA λ=60 ν=0.3 ηx={start=0.15,decay=1e-5} group=as-printed penalty-form=normalised";
    for (width, label) in [(1, long.to_string()), (2, "η".repeat(200)), (3, "short".into())] {
        manifest.series[1].label = label.clone();
        manifest.metrics[0].label = "distance from the solution ".repeat(width);
        for (run, count) in manifest.runs.iter_mut().zip([1, 10_000_000]) {
            (run.iterations, run.products) = (count, 1_000_000);
        }
        manifest.runs[2].outcome = "diverged".into();
        let text = terminal_table(&manifest);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
        assert!(label.split(' ').all(|word| letters(word) > 24 || text.contains(word)), "{text}");
        assert!(width > 1 || text.contains("penalty-form=normalised"), "{text}");
        assert!(text.contains("FAB ν=0 ") && text.contains("1 diverged, 1 reached"), "{text}");
    }
}

#[test]
fn a_metric_s_words_are_its_own() {
    let dir = folder("words");
    let (mut manifest, curves) = results(|_, _, k| 1.0 + k as f64, &[0, 10, 20], "finished");
    manifest.metrics[0] = MetricInfo {
        name: "error".into(),
        label: "way off".into(),
        unit: "km".into(),
        better: "lower".into(),
    };
    manifest.figures.push(figure("points", "setting:graph.nu", "min:error", ""));
    manifest.figures[1].name = "points".into();
    for run in &mut manifest.runs {
        run.smallest = run.last.clone();
    }
    let page = std::fs::read_to_string(write(&dir, &manifest, &curves, &[], &[]).unwrap()).unwrap();
    for part in ["way off (km)", "smallest way off (km)", "way off.", "Lower is better."] {
        assert!(page.contains(part), "{part}");
    }
    assert!(terminal_table(&manifest).contains("way off (km)"));
    std::fs::remove_dir_all(dir).unwrap();
}

/// Texts from files, whatever they hold, stay texts.
#[test]
fn no_text_can_become_a_part_of_the_page() {
    let dir = folder("harmless");
    let bad =
        "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)> {{ 999*999 }} `<b>` \u{2028}-->";
    let (mut manifest, curves) = results(|_, _, k| 1.0 + k as f64, &[0, 10, 20], "finished");
    (manifest.title, manifest.about, manifest.name) = (bad.into(), format!("{bad}\n\n{bad}"), bad.into());
    (manifest.file, manifest.overrides, manifest.machine.cpu) = (bad.into(), vec![bad.into()], bad.into());
    manifest.metrics[0].label = bad.into();
    manifest.metrics[0].unit = bad.into();
    for series in &mut manifest.series {
        (series.name, series.label) = (bad.into(), bad.into());
        series.warnings = vec![bad.into()];
        series.settings.insert("graph.nu".into(), bad.into());
    }
    manifest.runs[0].outcome = bad.into();
    let points = figure("points", "setting:graph.nu", "error", "y");
    manifest.figures.extend([figure("bar", "", "error", ""), points]);
    for (nth, figure) in manifest.figures.iter_mut().enumerate() {
        (figure.title, figure.name) = (bad.into(), format!("f{nth}"));
    }
    let claim = Claim {
        id: bad.into(),
        statement: bad.into(),
        verdict: Verdict::HoldsOnlyUnder(bad.into()),
        number: bad.into(),
        reading: bad.into(),
    };
    let table = Body::Table(vec![vec![bad.into()], vec![bad.into()]]);
    let extra = Extra::new(bad, table);
    let page = write(&dir, &manifest, &curves, &[claim], &[extra]).unwrap();
    let page = std::fs::read_to_string(page).unwrap();
    let own = page.replace(page::SCRIPT, "");
    assert_eq!((own.matches("<script").count(), own.matches("</script").count()), (2, 2));
    assert!(!own.contains("<img src=x") && !own.contains("<b>`") && !own.contains("998001"));
    let data = own.split("application/json\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["series"][0]["label"], bad);
    // Nor can it hold the nonce that the page's own script has.
    let nonce = own.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap();
    assert!(nonce.len() == 32 && own.contains(&format!("<script nonce=\"{nonce}\">")));
    assert!(!page::SCRIPT.contains("</script") && !page::SCRIPT.contains("innerHTML = "));
    std::fs::remove_dir_all(dir).unwrap();
}

/// However many runs there are, a page stays small and holds their ends.
#[test]
fn the_curves_of_many_runs_fit_a_page() {
    let iterations: Vec<usize> = (0..2000).map(|k| 10 * k).collect();
    let (manifest, curves) =
        results(|_, seed, k| seed as f64 + 1.0 / (1.0 + k as f64), &iterations, "finished");
    let text = data::Data::new(&manifest, &curves, data::ROOM).text();
    let data: serde_json::Value = serde_json::from_str(&text).unwrap();
    let along = data["series"][1]["iteration"].as_array().unwrap();
    assert!(along.len() <= 300 && along.len() > 100 && text.len() < 60_000, "{} {}", along.len(), text.len());
    assert_eq!((along[0].as_f64(), along[along.len() - 1].as_f64()), (Some(0.0), Some(19_990.0)));
    let values = &data["series"][1]["values"]["error"];
    assert_eq!(values["runs"].as_array().unwrap().len(), 2);
    assert_eq!(values["middle"][0], 1.5);
    assert_eq!(data["figures"][0]["panels"][0]["items"][1]["series"], 1);
}

/// Two series that are called alike keep their own numbers, and a part is one of the seeds that both have.
#[test]
fn folders_side_by_side_compare_like_with_like() {
    let dir = folder("alike");
    let mut folders = Vec::new();
    for (name, worse) in [("old", 1.0), ("new", 3.0)] {
        let value = |s: usize, seed: u64, _| worse * (1.0 + s as f64) + seed as f64;
        let (mut manifest, curves) = results(value, &[0, 10, 20], "finished");
        manifest.series[1].label = manifest.series[0].label.clone();
        if name == "new" {
            manifest.runs.retain(|run| run.seed == 0);
        }
        let own = dir.join(name);
        std::fs::create_dir_all(&own).unwrap();
        manifest.write(&own).unwrap();
        curves.write_csv(&own.join("curves.csv")).unwrap();
        folders.push(own);
    }
    let parts = compare::Part::read(&folders).unwrap();
    let page = std::fs::read_to_string(compare::write(&dir.join("both"), &parts).unwrap()).unwrap();
    // Seed 0 ends at 1 and 3 in the first series, at 2 and 6 in the second.
    assert!(page.contains("+2 (+200 %)") && page.contains("+4 (+200 %)"), "{page}");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn folders_side_by_side_show_what_differs() {
    let dir = folder("compare");
    let mut folders = Vec::new();
    for (nth, worse) in [1.0, 3.0].into_iter().enumerate() {
        let (mut manifest, curves) =
            results(|s, seed, _| worse * (1.0 + s as f64) + seed as f64, &[0, 10, 20], "finished");
        for series in &mut manifest.series {
            series.settings.insert("algorithm.eta_x".into(), (0.1 * nth as f64).into());
        }
        let own = dir.join(["old", "new"][nth]);
        std::fs::create_dir_all(&own).unwrap();
        manifest.write(&own).unwrap();
        curves.write_csv(&own.join("curves.csv")).unwrap();
        folders.push(own);
    }
    let parts = compare::Part::read(&folders).unwrap();
    let page = compare::write(&dir.join("both"), &parts).unwrap();
    let page = std::fs::read_to_string(page).unwrap();
    for part in [
        "old and new",
        "FAB · old ν=0",
        "FAB · new ν=0.1",
        "algorithm.eta_x",
        "new − old",
        // The first series ends at 1 and 2 in one folder and at 3 and 4 in the other: 2 more of each seed.
        "+2 (+133 %)",
        "Settings that differ",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // What is the same in both is not said.
    assert!(!page.contains("<dt>overrides") && !page.contains("graph.nu</td>"));
    let error = compare::write(&folders[0], &parts).unwrap_err().to_string();
    assert!(error.contains("--out") && compare::Part::read(&folders[..1]).is_err());
    let twice = compare::Part::read(&[folders[0].clone(), folders[0].clone()]).unwrap();
    assert_eq!((twice[0].name.as_str(), twice[1].name.as_str()), ("old (1)", "old (2)"));
    std::fs::remove_dir_all(dir).unwrap();
}
