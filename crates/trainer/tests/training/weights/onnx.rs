//! [`OnnxModel`]: a small reader of ONNX files, which runs their nodes on dense arrays in `f64`.

mod dense;
mod wire;

use std::collections::BTreeMap;

pub(super) use self::dense::Dense;
use self::wire::{Field, fields};

/// Graph of a file.
pub(super) struct OnnxModel {
    nodes: Vec<Node>,
    tensors: BTreeMap<String, Dense>,
    /// Names of the inputs.
    pub(super) inputs: Vec<String>,
    /// Name of the output.
    pub(super) output: String,
}

/// Operation of a graph.
#[derive(Debug, Default)]
struct Node {
    operation: String,
    inputs: Vec<String>,
    output: String,
    numbers: BTreeMap<String, f64>,
    texts: BTreeMap<String, String>,
}

impl OnnxModel {
    pub(super) fn read(bytes: &[u8]) -> Self {
        let model = fields(bytes);
        let of = |number: u32| model.iter().find(|field| field.0 == number).expect("a required field").1;
        assert_eq!(fields(of(8).bytes()).last().unwrap().1.int(), 18, "version of the operators");
        let mut graph = Self { nodes: vec![], tensors: BTreeMap::new(), inputs: vec![], output: String::new() };
        for (number, field) in fields(of(7).bytes()) {
            match number {
                1 => graph.nodes.push(node(field.bytes())),
                5 => graph.tensors.extend([tensor(field.bytes())]),
                11 => graph.inputs.push(fields(field.bytes())[0].1.text()),
                12 => graph.output = fields(field.bytes())[0].1.text(),
                _ => assert_eq!(number, 2, "a field of graphs"),
            }
        }
        graph
    }

    /// Names of the tensors.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &String> {
        self.tensors.keys()
    }

    /// Output for the given inputs. Every value is made before it is read, as ONNX demands.
    pub(super) fn run(&self, inputs: &[(&str, Dense)]) -> Dense {
        let mut values = self.tensors.clone();
        values.extend(inputs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        for node in &self.nodes {
            let given: Vec<&Dense> = node.inputs.iter().map(|name| &values[name]).collect();
            let result = node.run(&given);
            assert!(values.insert(node.output.clone(), result).is_none(), "{} is made twice", node.output);
        }
        values.remove(&self.output).expect("the output")
    }
}

impl Node {
    fn run(&self, of: &[&Dense]) -> Dense {
        let truth = |is: bool| f64::from(u8::from(is));
        match (&*self.operation, of) {
            ("Shape", [a]) => {
                let end = self.numbers.get("end").map_or(a.shape.len(), |&end| end as usize);
                Dense::list(a.shape[..end].iter().map(|&len| len as f64).collect())
            }
            ("Gather", [a, at]) => a.gather(at),
            ("Expand", [a, to]) => a.expand(to),
            ("ConstantOfShape", [to]) => Dense::new(&to.lengths(), vec![0.0; to.lengths().iter().product()]),
            ("ScatterElements", [a, at, updates]) => match &*self.texts["reduction"] {
                "add" => a.scatter(at, updates, |a, b| a + b),
                "max" => a.scatter(at, updates, f64::max),
                other => panic!("reduction {other}"),
            },
            ("Equal", [a, b]) => a.with(b, |a, b| truth(a == b)),
            ("Greater", [a, b]) => a.with(b, |a, b| truth(a > b)),
            ("Not", [a]) => a.map(|a| 1.0 - a),
            ("Where", [is, a, b]) => {
                let first = is.with(a, |is, a| if is == 0.0 { f64::NAN } else { a });
                first.with(b, |first, b| if first.is_nan() { b } else { first })
            }
            ("Cast", [a]) => (*a).clone(),
            ("Compress", [a, keep]) => a.compress(keep),
            ("Concat", [a, b]) => a.concat(b),
            ("Range", [start, end, step]) => Dense::range(start, end, step),
            ("Squeeze", [a, axis]) => a.squeeze(axis),
            ("Unsqueeze", [a, axis]) => a.unsqueeze(axis),
            ("Reshape", [a, to]) => a.reshape(to),
            ("Add", [a, b]) => a.with(b, |a, b| a + b),
            ("Sub", [a, b]) => a.with(b, |a, b| a - b),
            ("Mul", [a, b]) => a.with(b, |a, b| a * b),
            ("Div", [a, b]) => a.with(b, |a, b| a / b),
            ("Pow", [a, b]) => a.with(b, f64::powf),
            ("Exp", [a]) => a.map(f64::exp),
            ("Relu", [a]) => a.map(|a| a.max(0.0)),
            ("Elu", [a]) => a.map(|a| if a < 0.0 { a.exp_m1() } else { a }),
            ("LeakyRelu", [a]) => a.map(|a| if a < 0.0 { a * self.numbers["alpha"] } else { a }),
            ("Gemm", [a, weight]) => a.gemm(weight, None),
            ("Gemm", [a, weight, bias]) => a.gemm(weight, Some(bias)),
            ("ReduceSum", [a, axis]) => a.sum(axis),
            ("ReduceMean", [a, axis]) => {
                let sums = a.sum(axis);
                sums.map(|sum| sum * sums.values.len() as f64 / a.values.len() as f64)
            }
            other => panic!("no such operation: {other:?}"),
        }
    }
}

fn node(bytes: &[u8]) -> Node {
    let mut node = Node::default();
    for (number, field) in fields(bytes) {
        match number {
            1 => node.inputs.push(field.text()),
            2 => node.output = field.text(),
            4 => node.operation = field.text(),
            5 => {
                let attribute = fields(field.bytes());
                let name = attribute[0].1.text();
                match attribute[1].1 {
                    Field::Int(value) => drop(node.numbers.insert(name, value as f64)),
                    Field::Float(value) => drop(node.numbers.insert(name, value.into())),
                    text @ Field::Bytes(_) => drop(node.texts.insert(name, text.text())),
                }
            }
            _ => assert_eq!(number, 3, "a field of nodes"),
        }
    }
    node
}

fn tensor(bytes: &[u8]) -> (String, Dense) {
    let (mut shape, mut name, mut values, mut is_int) = (vec![], String::new(), vec![], false);
    for (number, field) in fields(bytes) {
        match number {
            1 => shape.push(field.int() as usize),
            2 => is_int = field.int() == 7,
            8 => name = field.text(),
            9 if is_int => {
                let eight = field.bytes().as_chunks::<8>().0;
                values = eight.iter().map(|&bytes| i64::from_le_bytes(bytes) as f64).collect();
            }
            9 => {
                let four = field.bytes().as_chunks::<4>().0;
                values = four.iter().map(|&bytes| f32::from_le_bytes(bytes).into()).collect();
            }
            other => panic!("field {other} of tensors"),
        }
    }
    (name, Dense::new(&shape, values))
}
