[
    ("quickstart", include_str!("../../../../experiments/quickstart.toml")),
    ("sensitivity", include_str!("../../../../experiments/sensitivity.toml")),
]
