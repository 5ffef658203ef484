//! [`Graph`]: nodes and tensors of an ONNX model, with the numbers of fields of `onnx.proto`.

use std::collections::BTreeMap;

use super::wire::Message;

/// Version of ONNX's operators: the first with `reduction` `max` in `ScatterElements`.
const OPSET: i64 = 18;
/// Version of the file format that belongs to it.
const IR_VERSION: i64 = 8;

/// Type of a tensor's elements, with ONNX's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Float = 1,
    Int64 = 7,
}

/// Attribute of a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Attribute {
    Int(&'static str, i64),
    Float(&'static str, f32),
    Text(&'static str, &'static str),
}

impl Attribute {
    fn message(self) -> Message {
        match self {
            Self::Float(name, value) => Message::default().text(1, name).float(2, value).int(20, 1),
            Self::Int(name, value) => Message::default().text(1, name).int(3, value).int(20, 2),
            Self::Text(name, value) => Message::default().text(1, name).text(4, value).int(20, 3),
        }
    }
}

/// Length of a dimension: a number, or a name where it is known only at run time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Length {
    Fixed(usize),
    Named(&'static str),
}

/// Operation with one result.
#[derive(Debug)]
struct Node {
    operation: &'static str,
    inputs: Vec<String>,
    output: String,
    attributes: Vec<Attribute>,
}

impl Node {
    fn message(&self) -> Message {
        let message = self.inputs.iter().fold(Message::default(), |message, input| message.text(1, input));
        let attributes: Vec<Message> = self.attributes.iter().map(|attribute| attribute.message()).collect();
        message.text(2, &self.output).text(3, &self.output).text(4, self.operation).messages(5, &attributes)
    }
}

/// Graph under construction. Values are known by their names.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: Vec<Node>,
    tensors: BTreeMap<String, Message>,
    inputs: Vec<Message>,
}

impl Graph {
    /// Adds an input. With a tensor of the same name, which is then its default, it may be left out.
    pub(super) fn input(&mut self, name: &str, of: Type, shape: &[Length]) -> String {
        self.inputs.push(value_info(name, of, shape));
        name.to_owned()
    }

    /// Adds an operation, and returns the name of its result.
    pub(super) fn add(&mut self, operation: &'static str, inputs: &[&str], attributes: &[Attribute]) -> String {
        let output = format!("{operation}_{}", self.nodes.len());
        let inputs = inputs.iter().map(|input| (*input).to_owned()).collect();
        self.nodes.push(Node { operation, inputs, output: output.clone(), attributes: attributes.to_vec() });
        output
    }

    /// Adds a tensor of floats.
    pub(super) fn floats(&mut self, name: &str, shape: &[usize], values: &[f32]) -> String {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensor(name, Type::Float, shape, &bytes)
    }

    /// Adds a single float.
    pub(super) fn float(&mut self, value: f32) -> String {
        self.floats(&format!("float {value}"), &[], &[value])
    }

    /// Adds a list of integers.
    pub(super) fn ints(&mut self, values: &[i64]) -> String {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensor(&format!("ints {values:?}"), Type::Int64, &[values.len()], &bytes)
    }

    /// Adds a single integer.
    pub(super) fn int(&mut self, value: i64) -> String {
        self.tensor(&format!("int {value}"), Type::Int64, &[], &value.to_le_bytes())
    }

    fn tensor(&mut self, name: &str, of: Type, shape: &[usize], bytes: &[u8]) -> String {
        let message = shape.iter().fold(Message::default(), |message, len| message.int(1, *len as i64));
        self.tensors.insert(name.to_owned(), message.int(2, of as i64).text(8, name).bytes(9, bytes));
        name.to_owned()
    }

    /// Model whose only result is the last operation's, under the name `output`. `notes` describes it to readers.
    pub(super) fn into_model(mut self, name: &str, output: &str, shape: &[Length], notes: &str) -> Vec<u8> {
        self.nodes.last_mut().expect("a model computes something").output = output.to_owned();
        let nodes: Vec<Message> = self.nodes.iter().map(Node::message).collect();
        let graph = Message::default()
            .messages(1, &nodes)
            .text(2, name)
            .messages(5, self.tensors.values())
            .messages(11, &self.inputs)
            .message(12, &value_info(output, Type::Float, shape));
        Message::default()
            .int(1, IR_VERSION)
            .text(2, "girih")
            .text(3, env!("CARGO_PKG_VERSION"))
            .text(6, notes)
            .message(7, &graph)
            .message(8, &Message::default().text(1, "").int(2, OPSET))
            .into_bytes()
    }
}

/// Name, type and shape of an input or output.
fn value_info(name: &str, of: Type, shape: &[Length]) -> Message {
    let dimension = |length: &Length| match *length {
        Length::Fixed(len) => Message::default().int(1, len as i64),
        Length::Named(name) => Message::default().text(2, name),
    };
    let dimensions: Vec<Message> = shape.iter().map(dimension).collect();
    let shape = Message::default().messages(1, &dimensions);
    let tensor = Message::default().int(1, of as i64).message(2, &shape);
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}
