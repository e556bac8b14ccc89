//! Models that users take home; a BERT among them: its sizes as files say them, and its predictions.
use anyhow::{Result, anyhow};
use dibo::problem::learning::bert::{self, Bert, Pool};
use dibo_learn::{Pooling, Prediction, Samples, SavedModel, Shape};
use std::path::Path;

/// Writes a model's files. One that is too large for some of them is no reason to lose the rest of a run: a
/// line says so.
pub fn save(model: &SavedModel, folder: &Path) -> Result<()> {
    if let Some(left_out) = model.save(folder)? {
        eprintln!("warning: {left_out}");
    }
    Ok(())
}

/// Its sizes in the words of files.
pub fn sizes(bert: &Bert) -> dibo_learn::Bert {
    dibo_learn::Bert {
        vocabulary: bert.vocabulary,
        positions: bert.positions,
        types: bert.types,
        hidden: bert.hidden,
        layers: bert.layers,
        heads: bert.heads,
        intermediate: bert.intermediate,
        epsilon: bert.epsilon,
        pooling: match bert.pool {
            Pool::First => Pooling::First,
            Pool::Mean => Pooling::Mean,
        },
    }
}

/// The same back from a file.
fn known(sizes: &dibo_learn::Bert) -> Result<Bert, String> {
    let bert = Bert {
        vocabulary: sizes.vocabulary,
        positions: sizes.positions,
        types: sizes.types,
        hidden: sizes.hidden,
        layers: sizes.layers,
        heads: sizes.heads,
        intermediate: sizes.intermediate,
        epsilon: sizes.epsilon,
        pool: match sizes.pooling {
            Pooling::First => Pool::First,
            Pooling::Mean => Pool::Mean,
        },
    };
    bert.check().map(|()| bert)
}

/// The most probable class of each row, by a model of any kind. A BERT's texts are token numbers already; it
/// works on all cores.
pub fn predict(model: &SavedModel, samples: &Samples) -> Result<Vec<Prediction>> {
    let Shape::Bert(sizes) = &model.shape else { return Ok(model.predict(samples)?) };
    let bert = known(sizes).map_err(|what| anyhow!("the model cannot be used: {what}"))?;
    let (length, classes) = (model.encoding.width().max(1), model.classes.len());
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let scores = |rows: &[f32]| {
        let part = length * (rows.len() / length).div_ceil(cores).max(1);
        let parts: Vec<&[f32]> = rows.chunks(part).collect();
        let mut all = vec![Vec::new(); parts.len()];
        std::thread::scope(|scope| {
            for (rows, to) in parts.into_iter().zip(&mut all) {
                scope.spawn(move || *to = bert::scores(bert, &model.weights, classes, length, rows));
            }
        });
        all.concat()
    };
    Ok(model.predict_by(samples, scores)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The row of weights is that of the tensors in files: names and places go together.
    #[test]
    fn tensors_lie_where_their_names_say() {
        let bert = Bert {
            vocabulary: 11,
            positions: 9,
            types: 2,
            hidden: 8,
            layers: 2,
            heads: 2,
            intermediate: 12,
            epsilon: 1e-12,
            pool: Pool::First,
        };
        assert_eq!(known(&sizes(&bert)), Ok(bert));
        let mut end = 0;
        let mut found = std::collections::BTreeMap::new();
        for (name, shape) in sizes(&bert).tensors() {
            let start = end;
            end += shape.iter().product::<usize>();
            found.insert(name, start..end);
        }
        let places = bert.places(3);
        assert_eq!(end, places.head.weight.start);
        assert_eq!(found["embeddings.word_embeddings.weight"], places.words);
        assert_eq!(found["embeddings.position_embeddings.weight"], places.positions);
        assert_eq!(found["embeddings.token_type_embeddings.weight"], places.types);
        assert_eq!(found["embeddings.LayerNorm.weight"], places.norm.scale);
        assert_eq!(found["embeddings.LayerNorm.bias"], places.norm.shift);
        for (l, at) in places.layers.iter().enumerate() {
            let of = |name: &str| found[&format!("encoder.layer.{l}.{name}")].clone();
            let both = |name: &str| (of(&format!("{name}.weight")), of(&format!("{name}.bias")));
            let all = |what: &str| {
                of(&format!("attention.self.query.{what}")).start
                    ..of(&format!("attention.self.value.{what}")).end
            };
            assert_eq!((all("weight"), all("bias")), (at.qkv.weight.clone(), at.qkv.bias.clone()));
            let key = of("attention.self.key.weight");
            assert_eq!(key.start, at.qkv.weight.start + 64);
            for (name, linear) in [
                ("attention.output.dense", &at.mixed),
                ("intermediate.dense", &at.up),
                ("output.dense", &at.down),
            ] {
                assert_eq!(both(name), (linear.weight.clone(), linear.bias.clone()), "{name}");
            }
            for (name, norm) in [("attention.output.LayerNorm", &at.norm1), ("output.LayerNorm", &at.norm2)] {
                assert_eq!(both(name), (norm.scale.clone(), norm.shift.clone()), "{name}");
            }
        }
    }
}
