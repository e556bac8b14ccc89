//! Models in the Open Neural Network Exchange format: the few of its messages that a classifier needs,
//! declared by hand with the numbers of `onnx.proto`, and the graph.
mod bert;

use super::{SavedModel, Shape, Tensor, bytes};
use crate::samples::Encoded;
use prost::Message;
use serde_json::json;

/// Versions of the file format and of the operators: old enough for every runtime in use.
const IR: i64 = 8;
const OPERATORS: i64 = 17;

/// So many bytes a file of the format may have.
pub(crate) const MOST: usize = i32::MAX as usize;

/// Codes of element types.
const FLOAT: i32 = 1;
const INT64: i32 = 7;
const BOOL: i32 = 9;
const DOUBLE: i32 = 11;

/// Codes of attributes that are a number, a whole number or whole numbers.
const REAL: i32 = 1;
const INT: i32 = 2;
const INTS: i32 = 7;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelProto {
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    #[prost(string, tag = "2")]
    pub producer_name: String,
    #[prost(string, tag = "3")]
    pub producer_version: String,
    #[prost(message, optional, tag = "7")]
    pub graph: Option<Graph>,
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSet>,
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OperatorSet {
    #[prost(string, optional, tag = "1")]
    pub domain: Option<String>,
    #[prost(int64, tag = "2")]
    pub version: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Entry {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Graph {
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<Node>,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<Constant>,
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<Value>,
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Node {
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Attribute {
    #[prost(string, tag = "1")]
    pub name: String,
    // Optional, so that a 0 is written too: readers want a value in each attribute.
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub ints: Vec<i64>,
    #[prost(int32, tag = "20")]
    pub kind: i32,
}

/// `TensorProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Constant {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    #[prost(string, tag = "8")]
    pub name: String,
    #[prost(bytes = "vec", tag = "9")]
    pub raw_data: Vec<u8>,
}

/// `ValueInfoProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Value {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub kind: Option<Type>,
    #[prost(string, tag = "3")]
    pub doc_string: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Type {
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorType>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TensorType {
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    #[prost(message, optional, tag = "2")]
    pub shape: Option<Dimensions>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Dimensions {
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Dimension {
    #[prost(int64, optional, tag = "1")]
    pub dim_value: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub dim_param: Option<String>,
}

/// The content of a model's file, if it has no more than `most` bytes. Its metadata hold the names of classes
/// and columns, the widths of the columns, which input it takes, and the whole description.
///
/// The input is the raw numbers where all columns are numbers. Words have no place in an array of numbers, so
/// with them the input is what the encoding makes. A BERT takes what a tokenizer makes of texts.
pub(crate) fn encode(model: &SavedModel, description: String, most: usize) -> Option<Vec<u8>> {
    // A file of the weights alone would be too large: not worth the memory to find out.
    if model.weights.len() > most / size_of::<f32>() {
        return None;
    }
    let columns = &model.encoding.columns;
    let names: Vec<&str> = columns.iter().map(Encoded::name).collect();
    let widths: Vec<usize> = columns.iter().map(Encoded::width).collect();
    let graph = graph(model);
    let entries = [
        ("classes", json!(model.classes).to_string()),
        ("columns", json!(names).to_string()),
        ("widths", json!(widths).to_string()),
        ("input", graph.input.iter().map(|input| input.name.as_str()).collect::<Vec<_>>().join(" ")),
        ("dibo", description),
    ];
    let file = ModelProto {
        ir_version: IR,
        producer_name: "dibo".into(),
        producer_version: env!("CARGO_PKG_VERSION").into(),
        graph: Some(graph),
        opset_import: vec![OperatorSet { domain: Some(String::new()), version: OPERATORS }],
        metadata_props: entries.map(|(key, value)| Entry { key: key.into(), value }).into(),
    };
    (file.encoded_len() <= most).then(|| file.encode_to_vec())
}

/// From the inputs to the class.
fn graph(model: &SavedModel) -> Graph {
    let classes = model.classes.len();
    let mut graph = Graph { name: "classifier".into(), ..Default::default() };
    match &model.shape {
        Shape::Bert(bert) => bert::scores(&mut graph, bert, model.encoding.width()),
        _ => scores(&mut graph, model),
    }
    graph.initializer.extend(model.tensors().into_iter().map(constant));
    graph.node.push(node("Softmax", ["scores"], "probabilities", [("axis", 1)]));
    graph.node.push(node("ArgMax", ["scores"], "label", [("axis", 1), ("keepdims", 0)]));
    graph.output = vec![
        value("scores", FLOAT, &[Some(classes)], "One number a class."),
        value("probabilities", FLOAT, &[Some(classes)], "Softmax of the scores."),
        value("label", INT64, &[], "The most probable class, by its place in metadata 'classes'."),
    ];
    graph
}

/// The inputs and the scores of a linear model or an MLP.
fn scores(graph: &mut Graph, model: &SavedModel) {
    let d = model.encoding.width();
    let input = if model.encoding.columns.iter().all(|c| matches!(c, Encoded::Numbers { .. })) {
        let words = "Numbers as they come, column by column; NaN where one is missing.";
        graph.input = vec![value("features", FLOAT, &[Some(d)], words)];
        standardise(graph, model);
        "standardised"
    } else {
        let words = "Numbers minus their mean times their factor, 0 where missing; for a column of words, 1 \
                     at the row's own word and 0 elsewhere. Means, factors and words: see metadata 'dibo'.";
        graph.input = vec![value("encoded", FLOAT, &[Some(d)], words)];
        "encoded"
    };
    let names = model.tensor_names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match (model.shape, names.as_slice()) {
        (Shape::Mlp { .. }, [weights, biases, second, last]) => {
            graph.node.push(layer([input, weights, biases], "hidden.sum"));
            graph.node.push(node("Relu", ["hidden.sum"], "hidden", []));
            graph.node.push(layer(["hidden", second, last], "scores"));
        }
        _ => graph.node.push(layer([input].into_iter().chain(names), "scores")),
    }
}

/// Minus mean, times factor, 0 where missing. In double precision, as the encoding does it: where a mean is
/// large beside the deviation, single precision would lose the difference.
fn standardise(graph: &mut Graph, model: &SavedModel) {
    let (mut means, mut factors) = (Vec::new(), Vec::new());
    for column in &model.encoding.columns {
        if let Encoded::Numbers { mean, factor, .. } = column {
            means.extend(mean.iter().flat_map(|v| v.to_le_bytes()));
            factors.extend(factor.iter().flat_map(|v| v.to_le_bytes()));
        }
    }
    let dims = vec![model.encoding.width() as i64];
    let numbers = |name: &str, raw_data| Constant {
        dims: dims.clone(),
        data_type: DOUBLE,
        name: name.into(),
        raw_data,
    };
    graph.initializer.extend([numbers("mean", means), numbers("factor", factors), number("zero", 0.0)]);
    graph.node.extend([
        node("Cast", ["features"], "precise", [("to", DOUBLE.into())]),
        node("Sub", ["precise", "mean"], "centred", []),
        node("Mul", ["centred", "factor"], "scaled", []),
        node("Cast", ["scaled"], "scaled.float", [("to", FLOAT.into())]),
        node("IsNaN", ["features"], "missing", []),
        node("Where", ["missing", "zero", "scaled.float"], "standardised", []),
    ]);
}

fn node<'a, const A: usize>(
    operator: &str,
    inputs: impl IntoIterator<Item = &'a str>,
    output: &str,
    attributes: [(&str, i64); A],
) -> Node {
    Node {
        input: inputs.into_iter().map(str::to_string).collect(),
        output: vec![output.into()],
        name: format!("{output}.{operator}"),
        op_type: operator.into(),
        attribute: attributes.map(whole).into(),
    }
}

fn whole((name, i): (&str, i64)) -> Attribute {
    Attribute { name: name.into(), i: Some(i), kind: INT, ..Default::default() }
}

/// Weights lie output by output, and so transposed to what `Gemm` takes by default.
fn layer<'a>(inputs: impl IntoIterator<Item = &'a str>, output: &str) -> Node {
    node("Gemm", inputs, output, [("transB", 1)])
}

fn constant(tensor: Tensor) -> Constant {
    Constant {
        dims: tensor.shape.iter().map(|n| *n as i64).collect(),
        data_type: FLOAT,
        raw_data: bytes(&tensor.values),
        name: tensor.name,
    }
}

fn number(name: &str, value: f32) -> Constant {
    Constant { dims: Vec::new(), data_type: FLOAT, name: name.into(), raw_data: value.to_le_bytes().into() }
}

/// An input or output with any number of rows; where a width is not known, with any number of tokens.
fn value(name: &str, elem_type: i32, widths: &[Option<usize>], doc_string: &str) -> Value {
    let rows = Dimension { dim_value: None, dim_param: Some("N".into()) };
    let widths = widths.iter().map(|n| Dimension {
        dim_value: n.map(|n| n as i64),
        dim_param: n.is_none().then(|| "tokens".into()),
    });
    let shape = Dimensions { dim: [rows].into_iter().chain(widths).collect() };
    Value {
        name: name.into(),
        kind: Some(Type { tensor_type: Some(TensorType { elem_type, shape: Some(shape) }) }),
        doc_string: doc_string.into(),
    }
}
