//! The graph of a BERT with its head, as dibo computes it: LayerNorm after each part, GELU by the error
//! function, all tokens of kind 0, and no token looks at padding.
//!
//! Between the parts of a layer the tokens of all texts lie below each other (N·tokens × hidden): so weights
//! serve as they are stored, outputs × inputs, with `Gemm`.
use super::super::{Bert, Pooling};
use super::{Attribute, BOOL, Constant, FLOAT, Graph, INT64, INTS, Node, REAL, layer, node, number, value};

/// What is added to the score of a token that is padding: the softmax of it is 0.
const HIDDEN: f32 = -1e9;

/// The inputs and the scores; the weights are there by the names that they have in `model.safetensors`.
pub(super) fn scores(graph: &mut Graph, bert: &Bert, tokens: usize) {
    let ids = format!(
        "Numbers of a text's tokens, with any padding behind them. dibo cuts texts after {tokens} \
         tokens, so let the tokenizer do the same; the model takes {} at most.",
        bert.positions
    );
    let mask = "1 for tokens, 0 for padding, as tokenizers give it.";
    graph.input =
        vec![value("input_ids", INT64, &[None], &ids), value("attention_mask", INT64, &[None], mask)];
    constants(graph, bert);
    embed(graph, bert);
    let mut x = "embedded".to_string();
    for l in 0..bert.layers {
        let part = Part { graph, bert, name: format!("encoder.layer.{l}") };
        x = part.layer(&x);
    }
    pool(graph, bert, &x);
    graph.node.push(layer(["pooled", "classifier.weight", "classifier.bias"], "scores"));
}

fn constants(graph: &mut Graph, bert: &Bert) {
    let (hidden, heads) = (bert.hidden as i64, bert.heads as i64);
    let wide = hidden / heads;
    graph.initializer.extend([
        number("zero", 0.0),
        number("half", 0.5),
        number("one", 1.0),
        number("hidden", HIDDEN),
        number("root", std::f32::consts::FRAC_1_SQRT_2),
        number("look.factor", (1.0 / (wide as f64).sqrt()) as f32),
        whole_numbers("first", &[], &[0]),
        whole_numbers("start", &[1], &[0]),
        whole_numbers("axes.looks", &[2], &[1, 2]),
        whole_numbers("heads", &[2], &[heads, wide]),
        whole_numbers("hidden.size", &[1], &[hidden]),
        whole_numbers("rows", &[2], &[-1, hidden]),
    ]);
}

/// The embeddings, and what is said once for all layers: shapes and where padding is.
fn embed(graph: &mut Graph, bert: &Bert) {
    let table = |name: &str| format!("embeddings.{name}_embeddings.weight");
    let (words, places, kinds) = (table("word"), table("position"), table("token_type"));
    graph.node.extend([
        node("Shape", ["input_ids"], "shape", []),
        node("Shape", ["input_ids"], "tokens", [("start", 1)]),
        node("Concat", ["shape", "heads"], "shape.heads", [("axis", 0)]),
        node("Concat", ["shape", "hidden.size"], "shape.hidden", [("axis", 0)]),
        node("Cast", ["attention_mask"], "used", [("to", BOOL.into())]),
        node("Where", ["used", "zero", "hidden"], "used.looks", []),
        node("Unsqueeze", ["used.looks", "axes.looks"], "padding", []),
        node("Gather", [words.as_str(), "input_ids"], "embeddings.words", [("axis", 0)]),
        node("Slice", [places.as_str(), "start", "tokens", "start"], "embeddings.places", []),
        node("Gather", [kinds.as_str(), "first"], "embeddings.kind", [("axis", 0)]),
        node("Add", ["embeddings.places", "embeddings.kind"], "embeddings.fixed", []),
        node("Add", ["embeddings.words", "embeddings.fixed"], "embeddings.sum", []),
        node("Reshape", ["embeddings.sum", "rows"], "embeddings.rows", []),
        norm(bert, "embeddings.rows", "embeddings.LayerNorm", "embedded"),
    ]);
}

/// What the head sees.
fn pool(graph: &mut Graph, bert: &Bert, x: &str) {
    graph.node.push(node("Reshape", [x, "shape.hidden"], "last", []));
    if bert.pooling == Pooling::First {
        graph.node.push(node("Gather", ["last", "first"], "pooled", [("axis", 1)]));
        return;
    }
    let axes = [whole_numbers("axis.tokens", &[1], &[1]), whole_numbers("axis.hidden", &[1], &[2])];
    graph.initializer.extend(axes);
    graph.node.extend([
        node("Cast", ["used"], "used.float", [("to", FLOAT.into())]),
        node("Unsqueeze", ["used.float", "axis.hidden"], "used.column", []),
        node("Mul", ["last", "used.column"], "last.used", []),
        node("ReduceSum", ["last.used", "axis.tokens"], "last.sum", [("keepdims", 0)]),
        node("ReduceSum", ["used.float", "axis.tokens"], "used.sum", [("keepdims", 1)]),
        // A text of nothing but padding is no division by 0.
        node("Max", ["used.sum", "one"], "used.count", []),
        node("Div", ["last.sum", "used.count"], "pooled", []),
    ]);
}

/// One layer in the making.
struct Part<'a> {
    graph: &'a mut Graph,
    bert: &'a Bert,
    name: String,
}

impl Part<'_> {
    /// Attention and feed-forward part, each added to what went in and normed; the name of what comes out.
    fn layer(mut self, x: &str) -> String {
        let context = self.attention(x);
        let mixed = self.linear(&context, "attention.output.dense");
        let seen = self.add_and_norm(&mixed, x, "attention.output");
        let up = self.linear(&seen, "intermediate.dense");
        let active = self.gelu(&up);
        let down = self.linear(&active, "output.dense");
        self.add_and_norm(&down, &seen, "output")
    }

    /// Each head: softmax of queries times keys, times values.
    fn attention(&mut self, x: &str) -> String {
        let [queries, keys, values] =
            [("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])].map(|(part, order)| {
                let rows = self.linear(x, &format!("attention.self.{part}"));
                let heads = self.put("Reshape", [&rows, "shape.heads"], &format!("{part}.heads"));
                self.transpose(&heads, order, &format!("{part}.turned"))
            });
        let raw = self.put("MatMul", [&queries, &keys], "look.raw");
        let scaled = self.put("Mul", [&raw, "look.factor"], "look.scaled");
        let masked = self.put("Add", [&scaled, "padding"], "look.masked");
        let look = self.name_of("look");
        self.graph.node.push(node("Softmax", [masked.as_str()], &look, [("axis", -1)]));
        let heads = self.put("MatMul", [&look, &values], "context.heads");
        let turned = self.transpose(&heads, [0, 2, 1, 3], "context.turned");
        self.put("Reshape", [&turned, "rows"], "context")
    }

    /// x (1 + erf(x / √2)) / 2.
    fn gelu(&mut self, x: &str) -> String {
        let scaled = self.put("Mul", [x, "root"], "gelu.scaled");
        let erf = self.put("Erf", [&scaled], "gelu.erf");
        let sum = self.put("Add", [&erf, "one"], "gelu.sum");
        let product = self.put("Mul", [x, &sum], "gelu.product");
        self.put("Mul", [&product, "half"], "gelu")
    }

    fn linear(&mut self, x: &str, name: &str) -> String {
        let out = self.name_of(name);
        self.graph.node.push(layer([x, &format!("{out}.weight"), &format!("{out}.bias")], &out));
        out
    }

    fn add_and_norm(&mut self, x: &str, before: &str, name: &str) -> String {
        let sum = self.put("Add", [x, before], &format!("{name}.sum"));
        let out = self.name_of(name);
        self.graph.node.push(norm(self.bert, &sum, &format!("{out}.LayerNorm"), &out));
        out
    }

    fn transpose(&mut self, x: &str, order: [i64; 4], name: &str) -> String {
        let out = self.name_of(name);
        let mut node = node("Transpose", [x], &out, []);
        let order = Attribute { name: "perm".into(), ints: order.into(), kind: INTS, ..Default::default() };
        node.attribute.push(order);
        self.graph.node.push(node);
        out
    }

    /// A node without attributes; the name of what comes out of it.
    fn put<const I: usize>(&mut self, operator: &str, inputs: [&str; I], name: &str) -> String {
        let out = self.name_of(name);
        self.graph.node.push(node(operator, inputs, &out, []));
        out
    }

    fn name_of(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }
}

/// Each token's numbers minus their mean by their deviation, times the weights, plus the biases.
fn norm(bert: &Bert, x: &str, name: &str, out: &str) -> Node {
    let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
    let mut node = node("LayerNormalization", [x, &weight, &bias], out, [("axis", -1)]);
    let epsilon = Some(bert.epsilon as f32);
    node.attribute.push(Attribute { name: "epsilon".into(), f: epsilon, kind: REAL, ..Default::default() });
    node
}

fn whole_numbers(name: &str, dims: &[i64], values: &[i64]) -> Constant {
    let raw_data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Constant { dims: dims.into(), data_type: INT64, name: name.into(), raw_data }
}
