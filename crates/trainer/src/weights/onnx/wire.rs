//! Protocol buffers on the wire: the few rules that an ONNX file needs.

/// Message whose fields are written in the order of calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Bytes of the message.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Adds an integer.
    #[must_use]
    pub(super) fn int(mut self, field: u32, value: i64) -> Self {
        self.key(field, 0);
        self.varint(value as u64);
        self
    }

    /// Adds a float of 32 bits.
    #[must_use]
    pub(super) fn float(mut self, field: u32, value: f32) -> Self {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Adds bytes.
    #[must_use]
    pub(super) fn bytes(mut self, field: u32, bytes: &[u8]) -> Self {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    /// Adds text.
    #[must_use]
    pub(super) fn text(self, field: u32, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    /// Adds a message.
    #[must_use]
    pub(super) fn message(self, field: u32, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    /// Adds a message for each item.
    #[must_use]
    pub(super) fn messages<'a>(self, field: u32, messages: impl IntoIterator<Item = &'a Self>) -> Self {
        messages.into_iter().fold(self, |all, one| all.message(field, one))
    }

    /// Number of a field and the type of its value.
    fn key(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    /// Seven bits a byte, lowest first; the highest bit says that more follow.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}
