//! Reads an ONNX file byte by byte and computes its graph in double precision, with nothing but the text of
//! the standard: what dibo wrote is tried without the words in which it was written. It knows the operators
//! that dibo's models use.
use std::collections::HashMap;

/// Numbers of any type; truths are 0 and 1.
#[derive(Clone, Debug)]
pub struct Array {
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

impl Array {
    pub fn new(shape: &[usize], values: Vec<f64>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "{shape:?}");
        Array { shape: shape.into(), values }
    }

    fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Array::new(&self.shape, self.values.iter().map(|v| f(*v)).collect())
    }

    fn whole(&self) -> Vec<i64> {
        self.values.iter().map(|v| *v as i64).collect()
    }

    fn last(&self) -> usize {
        *self.shape.last().unwrap()
    }

    /// What lies along the last axis, made anew.
    fn rows(&self, f: impl Fn(&[f64]) -> Vec<f64>) -> Self {
        Array::new(&self.shape, self.values.chunks(self.last()).flat_map(f).collect())
    }

    /// With its axes in this order, or repeated along those where it has one number (`steps` are 0).
    fn picked(&self, shape: &[usize], steps: &[usize]) -> Self {
        let pick = |mut i: usize| {
            let mut at = 0;
            for (n, step) in shape.iter().zip(steps).rev() {
                at += i % n * step;
                i /= n;
            }
            self.values[at]
        };
        Array::new(shape, (0..shape.iter().product()).map(pick).collect())
    }

    /// How far apart neighbours along each axis lie.
    fn steps(&self) -> Vec<usize> {
        (0..self.shape.len()).map(|axis| self.shape[axis + 1..].iter().product()).collect()
    }

    /// Repeated up to a shape with as many axes or more.
    fn spread(&self, shape: &[usize]) -> Self {
        let new = shape.len() - self.shape.len();
        let mut steps = vec![0; new];
        for (axis, step) in self.steps().into_iter().enumerate() {
            assert!([1, shape[new + axis]].contains(&self.shape[axis]), "{:?} as {shape:?}", self.shape);
            steps.push(if self.shape[axis] == 1 { 0 } else { step });
        }
        self.picked(shape, &steps)
    }

    fn with(&self, other: &Array, f: impl Fn(f64, f64) -> f64) -> Self {
        let shape = common(&[self, other]);
        let (a, b) = (self.spread(&shape), other.spread(&shape));
        Array::new(&shape, a.values.iter().zip(&b.values).map(|(a, b)| f(*a, *b)).collect())
    }

    /// Sizes before an axis, along it and behind it.
    fn around(&self, axis: usize) -> (usize, usize, usize) {
        (self.shape[..axis].iter().product(), self.shape[axis], self.shape[axis + 1..].iter().product())
    }
}

/// The shape to which all are repeated.
fn common(all: &[&Array]) -> Vec<usize> {
    let axes = all.iter().map(|a| a.shape.len()).max().unwrap();
    let size = |a: &Array, axis: usize| (axis + a.shape.len()).checked_sub(axes).map_or(1, |at| a.shape[at]);
    let largest = |axis| all.iter().map(|a| size(a, axis)).max().unwrap();
    (0..axes).map(largest).collect()
}

/// A message's fields by their numbers: bytes, or a number as its bits.
struct Message<'a>(Vec<(u64, u64, &'a [u8])>);

impl<'a> Message<'a> {
    fn of(mut rest: &'a [u8]) -> Self {
        let varint = |rest: &mut &[u8]| {
            let (mut value, mut shift) = (0u64, 0);
            loop {
                let byte = rest[0];
                *rest = &rest[1..];
                value |= u64::from(byte & 127) << shift;
                shift += 7;
                if byte < 128 {
                    return value;
                }
            }
        };
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let key = varint(&mut rest);
            let (number, bytes) = match key & 7 {
                0 => (varint(&mut rest), 0),
                2 => (0, varint(&mut rest) as usize),
                5 => (u32::from_le_bytes(*rest.first_chunk().unwrap()).into(), 4),
                kind => panic!("kind {kind} of a field"),
            };
            let (own, after) = rest.split_at(bytes);
            rest = after;
            fields.push((key >> 3, number, own));
        }
        Message(fields)
    }

    fn all(&self, field: u64) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter(move |f| f.0 == field).map(|f| f.2)
    }

    fn messages(&self, field: u64) -> impl Iterator<Item = Message<'a>> {
        self.all(field).map(Message::of)
    }

    fn texts(&self, field: u64) -> Vec<String> {
        self.all(field).map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).collect()
    }

    fn text(&self, field: u64) -> String {
        self.texts(field).concat()
    }

    fn numbers(&self, field: u64) -> Vec<i64> {
        self.0.iter().filter(|f| f.0 == field).map(|f| f.1 as i64).collect()
    }
}

/// A `TensorProto`.
fn constant(message: &Message) -> (String, Array) {
    let shape: Vec<usize> = message.numbers(1).into_iter().map(|n| n as usize).collect();
    let raw = message.all(9).next().unwrap_or_default();
    let values = match message.numbers(2)[..] {
        [1] => raw.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b).into()).collect(),
        [7] => raw.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b) as f64).collect(),
        [11] => raw.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
        ref other => panic!("type {other:?}"),
    };
    (message.text(8), Array::new(&shape, values))
}

/// A `NodeProto`.
struct Node {
    operator: String,
    whole: HashMap<String, Vec<i64>>,
    real: HashMap<String, f64>,
}

impl Node {
    fn of(message: &Message) -> Self {
        let (mut whole, mut real) = (HashMap::new(), HashMap::new());
        for attribute in message.messages(5) {
            let name = attribute.text(1);
            match attribute.numbers(20)[..] {
                [1] => drop(real.insert(name, f32::from_bits(attribute.numbers(2)[0] as u32).into())),
                [2] => drop(whole.insert(name, attribute.numbers(3))),
                [7] => drop(whole.insert(name, attribute.numbers(8))),
                ref other => panic!("{name} is an attribute of type {other:?}"),
            }
        }
        Node { operator: message.text(4), whole, real }
    }

    fn get(&self, name: &str, default: i64) -> i64 {
        self.whole.get(name).map_or(default, |v| v[0])
    }

    fn axis(&self, x: &Array, default: i64) -> usize {
        self.get("axis", default).rem_euclid(x.shape.len() as i64) as usize
    }

    fn compute(&self, inputs: &[&Array]) -> Array {
        match (self.operator.as_str(), inputs) {
            ("Add", [a, b]) => a.with(b, |a, b| a + b),
            ("Sub", [a, b]) => a.with(b, |a, b| a - b),
            ("Mul", [a, b]) => a.with(b, |a, b| a * b),
            ("Div", [a, b]) => a.with(b, |a, b| a / b),
            ("Max", [a, b]) => a.with(b, f64::max),
            ("Relu", [x]) => x.map(|v| v.max(0.0)),
            ("Erf", [x]) => x.map(erf),
            ("IsNaN", [x]) => x.map(|v| f64::from(v.is_nan())),
            ("Cast", [x]) => match self.get("to", 0) {
                1 => x.map(|v| f64::from(v as f32)),
                9 => x.map(|v| f64::from(v != 0.0)),
                11 => (*x).clone(),
                other => panic!("a cast to {other}"),
            },
            ("Where", [test, yes, no]) => {
                let shape = common(inputs);
                let [test, yes, no] = [test, yes, no].map(|a| a.spread(&shape).values);
                let picked = test.iter().zip(yes.iter().zip(&no));
                Array::new(&shape, picked.map(|(t, (y, n))| if *t != 0.0 { *y } else { *n }).collect())
            }
            ("Gemm", [a, b, bias @ ..]) => {
                assert_eq!(self.get("transB", 0), 1);
                let turned = b.picked(&[b.shape[1], b.shape[0]], &[1, b.shape[1]]);
                let out = product(a, &turned);
                bias.iter().fold(out, |out, bias| out.with(bias, |a, b| a + b))
            }
            ("MatMul", [a, b]) => product(a, b),
            ("Softmax", [x]) => {
                assert_eq!(self.axis(x, -1), x.shape.len() - 1);
                x.rows(softmax)
            }
            ("LayerNormalization", [x, scale, shift]) => {
                assert_eq!(self.axis(x, -1), x.shape.len() - 1);
                let normed = x.rows(|row| normed(row, self.real["epsilon"]));
                normed.with(scale, |a, b| a * b).with(shift, |a, b| a + b)
            }
            _ => self.shaped(inputs),
        }
    }

    /// Operators that move numbers, or take some together.
    fn shaped(&self, inputs: &[&Array]) -> Array {
        match (self.operator.as_str(), inputs) {
            ("Shape", [x]) => {
                let sizes: Vec<f64> = x.shape.iter().map(|n| *n as f64).collect();
                let sizes = sizes[self.get("start", 0) as usize..].to_vec();
                Array::new(&[sizes.len()], sizes)
            }
            ("Concat", [a, b]) => {
                assert!(self.get("axis", 9) == 0 && a.shape.len() == 1 && b.shape.len() == 1);
                let all = [&a.values[..], &b.values].concat();
                Array::new(&[all.len()], all)
            }
            ("Reshape", [x, to]) => {
                let to = to.whole();
                let known: i64 = to.iter().filter(|n| **n > 0).product();
                let size = |n: &i64| if *n == -1 { x.values.len() / known as usize } else { *n as usize };
                Array::new(&to.iter().map(size).collect::<Vec<_>>(), x.values.clone())
            }
            ("Unsqueeze", [x, axes]) => {
                let mut shape = x.shape.clone();
                axes.whole().iter().for_each(|axis| shape.insert(*axis as usize, 1));
                Array::new(&shape, x.values.clone())
            }
            ("Transpose", [x]) => {
                let (order, steps) = (&self.whole["perm"], x.steps());
                let of = |list: &[usize]| order.iter().map(|axis| list[*axis as usize]).collect::<Vec<_>>();
                x.picked(&of(&x.shape), &of(&steps))
            }
            ("Slice", [x, from, to, axes]) => {
                assert_eq!(axes.whole(), [0]);
                let (from, to) = (from.values[0] as usize, x.shape[0].min(to.values[0] as usize));
                let one = x.around(0).2;
                let shape = [&[to - from], &x.shape[1..]].concat();
                Array::new(&shape, x.values[from * one..to * one].to_vec())
            }
            ("Gather", [x, places]) => {
                let axis = self.axis(x, 0);
                let (before, size, one) = x.around(axis);
                let shape = [&x.shape[..axis], &places.shape, &x.shape[axis + 1..]].concat();
                let places = places.whole();
                assert!(places.iter().all(|at| (0..size as i64).contains(at)), "{places:?} of {size}");
                let all = (0..before).flat_map(|b| places.iter().map(move |at| b * size + *at as usize));
                Array::new(&shape, all.flat_map(|at| x.values[at * one..][..one].to_vec()).collect())
            }
            ("ReduceSum", [x, axes]) => {
                let axis = axes.whole()[0] as usize;
                let (before, size, one) = x.around(axis);
                let sum = |at: usize| {
                    let terms = (0..size).map(|k| x.values[(at / one * size + k) * one + at % one]);
                    terms.sum()
                };
                let mut shape = x.shape.clone();
                shape[axis] = 1;
                if self.get("keepdims", 1) == 0 {
                    shape.remove(axis);
                }
                Array::new(&shape, (0..before * one).map(sum).collect())
            }
            ("ArgMax", [x]) => {
                assert_eq!((self.axis(x, 0), self.get("keepdims", 1)), (x.shape.len() - 1, 0));
                let first = |row: &[f64]| (1..row.len()).fold(0, |b, c| if row[c] > row[b] { c } else { b });
                let values = x.values.chunks(x.last()).map(|row| first(row) as f64).collect();
                Array::new(&x.shape[..x.shape.len() - 1], values)
            }
            (other, _) => panic!("{other} of {} inputs", inputs.len()),
        }
    }
}

/// Of the matrices in the last two axes, one by one.
fn product(a: &Array, b: &Array) -> Array {
    let axes = a.shape.len() - 2;
    let (m, k, n) = (a.shape[axes], a.shape[axes + 1], b.last());
    assert_eq!((&a.shape[..axes], k), (&b.shape[..axes], b.shape[axes]), "sizes of a product");
    let mut out = Vec::new();
    for (a, b) in a.values.chunks(m * k).zip(b.values.chunks(k * n)) {
        let of = |at: usize| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum::<f64>();
        out.extend((0..m * n).map(of));
    }
    Array::new(&[&a.shape[..axes], &[m, n]].concat(), out)
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let top = row.iter().copied().fold(f64::MIN, f64::max);
    let sum: f64 = row.iter().map(|v| (v - top).exp()).sum();
    row.iter().map(|v| (v - top).exp() / sum).collect()
}

fn normed(row: &[f64], epsilon: f64) -> Vec<f64> {
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / row.len() as f64;
    row.iter().map(|v| (v - mean) / (variance + epsilon).sqrt()).collect()
}

/// By the series whose terms all have one sign.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// All that a file computes from its inputs, by name.
pub fn run(file: &[u8], inputs: &[(&str, Array)]) -> HashMap<String, Array> {
    let model = Message::of(file);
    assert_eq!(model.messages(8).map(|set| set.numbers(2)[0]).collect::<Vec<_>>(), [17], "operators");
    let graph = model.messages(7).next().unwrap();
    let mut known: HashMap<String, Array> = graph.messages(5).map(|message| constant(&message)).collect();
    let wanted: Vec<String> = graph.messages(11).map(|input| input.text(1)).collect();
    assert_eq!(wanted, inputs.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    known.extend(inputs.iter().map(|(name, array)| (name.to_string(), array.clone())));
    for message in graph.messages(1) {
        let names = message.texts(1);
        let arrays: Vec<&Array> = names.iter().map(|name| &known[name]).collect();
        let out = Node::of(&message).compute(&arrays);
        assert!(known.insert(message.text(2), out).is_none(), "{} twice", message.text(2));
    }
    let outputs: Vec<String> = graph.messages(12).map(|output| output.text(1)).collect();
    known.retain(|name, _| outputs.contains(name));
    known
}
