//! The stack machine: one method per group of instructions.
//!
//! Instructions and their names are those of Python's `pickletools`.

use std::collections::HashMap;
use std::fmt::Display;
use std::rc::Rc;

use super::cursor::Cursor;
use super::{Global, Instance, Object, ObjectId, Pickle, Value, literal};
use crate::DatasetError;

/// Newest protocol with known instructions.
const NEWEST_PROTOCOL: u8 = 4;

/// Largest number of arguments of an allowed call; it bounds the memory that a small file can ask for.
const MAX_ARGS: usize = 8;

/// Runs a pickle from byte `start` to its `STOP`, and returns the byte after it, too. It may refer to values outside
/// itself only if `persistent` is set.
pub(super) fn run(bytes: &[u8], start: usize, persistent: bool) -> Result<(Pickle, usize), DatasetError> {
    let mut machine = Machine {
        cursor: Cursor::new(bytes, start),
        offset: 0,
        objects: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        encodable: bytes.len(),
        persistent,
    };
    loop {
        machine.offset = machine.cursor.position();
        let opcode = machine.cursor.u8()?;
        if opcode == b'.' {
            let root = machine.pop()?;
            return Ok((Pickle { objects: machine.objects, root }, machine.cursor.position()));
        }
        machine.step(opcode)?;
    }
}

struct Machine<'a> {
    cursor: Cursor<'a>,
    /// Offset at which the current instruction starts.
    offset: usize,
    objects: Vec<Object>,
    stack: Vec<Value>,
    /// Heights of the stack at each open `MARK`.
    marks: Vec<usize>,
    /// Memo by index; a map, because a file may claim any index.
    memo: HashMap<u32, Value>,
    /// Number of bytes that `_codecs.encode` may still yield; without reuse of the memo, at most the length of the
    /// file.
    encodable: usize,
    /// Whether `BINPERSID` is allowed.
    persistent: bool,
}

impl Machine<'_> {
    fn step(&mut self, opcode: u8) -> Result<(), DatasetError> {
        match opcode {
            0x80 => self.protocol(),
            0x95 => self.cursor.take(8).map(|_| ()), // FRAME: a hint for buffering.
            b'N' | 0x88 | 0x89 | b'K' | b'M' | b'J' | b'I' | b'L' | 0x8a | b'F' | b'G' => self.number(opcode),
            b'U' | b'T' | b'S' | b'C' | b'B' | 0x8e | b'X' | 0x8c | 0x8d | b'V' => self.string(opcode),
            b'(' | b'0' | b'1' | b'2' => self.shuffle(opcode),
            b')' | b't' | 0x85..=0x87 | b']' | b'l' | b'}' | b'd' => self.container(opcode),
            b'a' | b'e' | b's' | b'u' => self.fill(opcode),
            b'p' | b'q' | b'r' | 0x94 | b'g' | b'h' | b'j' => self.memoize(opcode),
            b'c' | 0x93 => self.global(opcode),
            b'R' | 0x81 => self.call(),
            b'b' => self.build(),
            b'Q' if self.persistent => self.refer(),
            other => Err(self.corrupt(format!("instruction {other:#04x} is not one that data sets use"))),
        }
    }

    fn protocol(&mut self) -> Result<(), DatasetError> {
        match self.cursor.u8()? {
            0..=NEWEST_PROTOCOL => Ok(()),
            version => Err(self.invalid(format!(
                "pickle protocol {version}; up to {NEWEST_PROTOCOL} is supported, write it with protocol={NEWEST_PROTOCOL}"
            ))),
        }
    }

    fn number(&mut self, opcode: u8) -> Result<(), DatasetError> {
        let value = match opcode {
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'K' => Value::Int(self.cursor.u8()?.into()),
            b'M' => Value::Int(self.cursor.u16()?.into()),
            b'J' => Value::Int(self.cursor.i32()?.into()),
            b'I' => match self.cursor.text_line()? {
                "00" => Value::Bool(false),
                "01" => Value::Bool(true),
                text => Value::Int(self.parse_number(text)?),
            },
            b'L' => {
                let text = self.cursor.text_line()?;
                Value::Int(self.parse_number(text.trim_end_matches('L'))?)
            }
            0x8a => {
                let len = self.cursor.u8()?;
                let int = literal::long(self.cursor.take(len.into())?);
                let too_long = || self.invalid(format!("an integer of {len} bytes; at most 8 are supported"));
                Value::Int(int.ok_or_else(too_long)?)
            }
            b'F' => {
                let text = self.cursor.text_line()?;
                self.parse_number::<f64>(text)?;
                Value::Float
            }
            _ => {
                self.cursor.take(size_of::<f64>())?;
                Value::Float
            }
        };
        self.stack.push(value);
        Ok(())
    }

    fn parse_number<T: std::str::FromStr>(&self, text: &str) -> Result<T, DatasetError> {
        text.parse().map_err(|_| self.corrupt(format!("{text:?} is not a 64-bit number")))
    }

    fn string(&mut self, opcode: u8) -> Result<(), DatasetError> {
        if opcode == b'S' {
            let line = self.cursor.line()?;
            let bytes = literal::unquote(line)
                .ok_or_else(|| self.corrupt("a string without quotes, or with an escape that Python does not write"))?;
            self.stack.push(Value::Bytes(bytes.into()));
            return Ok(());
        }
        if opcode == b'V' {
            let text = self.cursor.text_line()?;
            self.stack.push(Value::Text(text.into()));
            return Ok(());
        }
        let len = match opcode {
            b'U' | b'C' | 0x8c => self.cursor.u8()?.into(),
            b'T' | b'B' | b'X' => self.cursor.u32()? as usize,
            _ => self.cursor.length64()?,
        };
        let bytes = self.cursor.take(len)?;
        let value = match opcode {
            b'X' | 0x8c | 0x8d => {
                Value::Text(std::str::from_utf8(bytes).map_err(|_| self.corrupt("a string is not UTF-8"))?.into())
            }
            _ => Value::Bytes(bytes.into()),
        };
        self.stack.push(value);
        Ok(())
    }

    /// `MARK`, `POP`, `POP_MARK`, `DUP`.
    fn shuffle(&mut self, opcode: u8) -> Result<(), DatasetError> {
        match opcode {
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_mark()?),
            _ => {
                let top = self.top()?;
                self.stack.push(top);
            }
        }
        Ok(())
    }

    /// Instructions that make a tuple, list or dictionary.
    fn container(&mut self, opcode: u8) -> Result<(), DatasetError> {
        let object = match opcode {
            b')' => Object::Tuple(Vec::new()),
            b't' => Object::Tuple(self.pop_mark()?),
            0x85..=0x87 => Object::Tuple(self.pop_n(usize::from(opcode - 0x84))?),
            b']' => Object::List(Vec::new()),
            b'l' => Object::List(self.pop_mark()?),
            b'}' => Object::Dict(Vec::new()),
            _ => Object::Dict(self.pop_pairs()?),
        };
        self.push_object(object);
        Ok(())
    }

    /// `APPEND(S)` and `SETITEM(S)`: moves the top of the stack into the container below.
    fn fill(&mut self, opcode: u8) -> Result<(), DatasetError> {
        match opcode {
            b'a' | b'e' => {
                let items = if opcode == b'a' { vec![self.pop()?] } else { self.pop_mark()? };
                match self.top_object()? {
                    Object::List(list) => list.extend(items),
                    _ => return Err(self.corrupt("items are appended to something that is no list")),
                }
            }
            _ => {
                let pairs = if opcode == b's' { pair_up(self.pop_n(2)?) } else { self.pop_pairs()? };
                match self.top_object()? {
                    Object::Dict(dict) => dict.extend(pairs),
                    _ => return Err(self.corrupt("keys are set in something that is no dictionary")),
                }
            }
        }
        Ok(())
    }

    fn memoize(&mut self, opcode: u8) -> Result<(), DatasetError> {
        let index = match opcode {
            b'p' | b'g' => {
                let text = self.cursor.text_line()?;
                self.parse_number(text)?
            }
            b'q' | b'h' => self.cursor.u8()?.into(),
            b'r' | b'j' => self.cursor.u32()?,
            _ => self.memo.len() as u32,
        };
        if matches!(opcode, b'g' | b'h' | b'j') {
            let value = self.memo.get(&index).cloned();
            let value = value.ok_or_else(|| self.corrupt(format!("nothing was stored under memo {index}")))?;
            self.stack.push(value);
        } else {
            let top = self.top()?;
            self.memo.insert(index, top);
        }
        Ok(())
    }

    fn global(&mut self, opcode: u8) -> Result<(), DatasetError> {
        let (module, name) = if opcode == b'c' {
            (self.cursor.text_line()?.to_owned(), self.cursor.text_line()?.to_owned())
        } else {
            let names = self.pop_n(2)?;
            let text = |value: &Value| value.as_bytes().map(|b| String::from_utf8_lossy(b).into_owned());
            match (text(&names[0]), text(&names[1])) {
                (Some(module), Some(name)) => (module, name),
                _ => return Err(self.corrupt("a global name that is not text")),
            }
        };
        match Global::find(&module, &name) {
            Some(global) => {
                self.stack.push(Value::Global(global));
                Ok(())
            }
            None => Err(self.invalid(format!(
                "the pickle asks for {}.{}, which is not on the list of allowed names; nothing was executed, and this file \
                 should not be trusted",
                module.escape_debug(),
                name.escape_debug()
            ))),
        }
    }

    /// `REDUCE` and `NEWOBJ`: records that a class or function is called with the tuple on top.
    fn call(&mut self) -> Result<(), DatasetError> {
        let (args, callable) = (self.pop()?, self.pop()?);
        let Value::Global(callable) = callable else {
            return Err(self.invalid("the pickle calls something that is not a class or function"));
        };
        let args = match &args {
            Value::Object(ObjectId(at)) => match &self.objects[*at] {
                Object::Tuple(items) if items.len() <= MAX_ARGS => items.clone(),
                Object::Tuple(items) => return Err(self.invalid(format!("a call with {} arguments", items.len()))),
                _ => return Err(self.corrupt("a call whose arguments are no tuple")),
            },
            _ => return Err(self.corrupt("a call whose arguments are no tuple")),
        };
        self.note_call(callable, args)
    }

    fn note_call(&mut self, callable: Global, args: Vec<Value>) -> Result<(), DatasetError> {
        let class = match (callable, &args[..]) {
            (Global::Dict, _) => {
                self.push_object(Object::Dict(Vec::new()));
                return Ok(());
            }
            (Global::List, []) => {
                self.push_object(Object::List(Vec::new()));
                return Ok(());
            }
            (Global::CodecsEncode, [Value::Text(text), encoding]) => {
                let bytes = self.encode_latin1(text, encoding)?;
                self.stack.push(Value::Bytes(bytes));
                return Ok(());
            }
            (Global::NumpyReconstruct, [Value::Global(Global::NumpyArray), ..]) => Global::NumpyArray,
            (Global::CopyReconstructor, [Value::Global(Global::ScipyCsr), ..]) => Global::ScipyCsr,
            (Global::NumpyDtype | Global::NumpyScalar | Global::ScipyCsr | Global::TorchTensor, _) => callable,
            _ => return Err(self.invalid(format!("{callable:?} is called with arguments that data sets do not use"))),
        };
        self.push_object(Object::Instance(Instance { class, args, state: None, offset: self.offset }));
        Ok(())
    }

    /// `BINPERSID`: records a reference to values outside the pickle; PyTorch names them `("storage", type, key,
    /// device, length)`.
    fn refer(&mut self) -> Result<(), DatasetError> {
        let Value::Object(ObjectId(at)) = self.pop()? else {
            return Err(self.corrupt("a reference that is no tuple"));
        };
        let Object::Tuple(args) = &self.objects[at] else {
            return Err(self.corrupt("a reference that is no tuple"));
        };
        let (Some(Value::Global(class @ Global::TorchStorage(_))), true) = (args.get(1), args.len() <= MAX_ARGS) else {
            return Err(self.invalid("a reference to something other than the values of a tensor"));
        };
        let (class, args) = (*class, args.clone());
        self.push_object(Object::Instance(Instance { class, args, state: None, offset: self.offset }));
        Ok(())
    }

    /// Decodes bytes as Python 3 writes them in protocols before 3: as text whose characters are the bytes.
    fn encode_latin1(&mut self, text: &str, encoding: &Value) -> Result<Rc<[u8]>, DatasetError> {
        if !matches!(encoding.as_bytes(), Some(b"latin1" | b"latin-1")) {
            return Err(self.invalid("bytes are encoded with something other than latin-1"));
        }
        self.encodable = self
            .encodable
            .checked_sub(text.len())
            .ok_or_else(|| self.invalid("the same text is encoded over and over"))?;
        literal::latin1(text).ok_or_else(|| self.corrupt("a latin-1 string has a character above 255"))
    }

    fn build(&mut self) -> Result<(), DatasetError> {
        let state = self.pop()?;
        match self.top_object()? {
            Object::Instance(instance) => {
                instance.state = Some(state);
                Ok(())
            }
            _ => Err(self.invalid("state is given to something that has none")),
        }
    }

    fn push_object(&mut self, object: Object) {
        self.objects.push(object);
        self.stack.push(Value::Object(ObjectId(self.objects.len() - 1)));
    }

    /// Lowest accessible position of the stack, above the innermost `MARK`.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Value, DatasetError> {
        Ok(self.pop_n(1)?.remove(0))
    }

    fn pop_n(&mut self, n: usize) -> Result<Vec<Value>, DatasetError> {
        if self.stack.len() < self.floor() + n {
            return Err(self.corrupt("the stack is empty"));
        }
        Ok(self.stack.split_off(self.stack.len() - n))
    }

    fn pop_mark(&mut self) -> Result<Vec<Value>, DatasetError> {
        let mark = self.marks.pop().ok_or_else(|| self.corrupt("no mark is open"))?;
        Ok(self.stack.split_off(mark))
    }

    fn pop_pairs(&mut self) -> Result<Vec<(Value, Value)>, DatasetError> {
        let items = self.pop_mark()?;
        if items.len() % 2 != 0 {
            return Err(self.corrupt("a dictionary with a key that has no value"));
        }
        Ok(pair_up(items))
    }

    fn top(&self) -> Result<Value, DatasetError> {
        match self.stack.get(self.floor()..).and_then(<[Value]>::last) {
            Some(value) => Ok(value.clone()),
            None => Err(self.corrupt("the stack is empty")),
        }
    }

    fn top_object(&mut self) -> Result<&mut Object, DatasetError> {
        match self.top()? {
            Value::Object(ObjectId(at)) => Ok(&mut self.objects[at]),
            other => Err(self.corrupt(format!("{} is filled like a container", other.describe()))),
        }
    }

    fn corrupt(&self, what: impl Display) -> DatasetError {
        DatasetError::corrupt(format!("byte {}: {what}", self.offset))
    }

    fn invalid(&self, what: impl Display) -> DatasetError {
        DatasetError::invalid(format!("byte {}: {what}", self.offset))
    }
}

fn pair_up(items: Vec<Value>) -> Vec<(Value, Value)> {
    let mut items = items.into_iter();
    std::iter::from_fn(|| Some((items.next()?, items.next()?))).collect()
}
