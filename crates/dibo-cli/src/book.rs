//! The Rust of the book and the README, compiled and run as tests of the documentation.
macro_rules! chapters {
    ($($name:ident: $file:literal;)*) => {
        $(#[doc = include_str!(concat!("../../../", $file))]
        struct $name;)*
    };
}

chapters! {
    Readme: "README.md";
    Experiments: "docs/experiments.md";
    OwnProblem: "docs/own-problem.md";
    OwnAlgorithm: "docs/own-algorithm.md";
}
