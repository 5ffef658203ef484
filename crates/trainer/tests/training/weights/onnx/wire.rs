//! Fields of protocol buffers.

/// Value of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field<'a> {
    Int(i64),
    Float(f32),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    pub(super) fn int(self) -> i64 {
        if let Self::Int(value) = self { value } else { panic!("{self:?} is no integer") }
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        if let Self::Bytes(bytes) = self { bytes } else { panic!("{self:?} is no text") }
    }

    pub(super) fn text(self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }
}

/// Fields of a message, in order.
pub(super) fn fields(mut rest: &[u8]) -> Vec<(u32, Field<'_>)> {
    let mut all = Vec::new();
    while !rest.is_empty() {
        let key = varint(&mut rest);
        let field = match key & 7 {
            0 => Field::Int(varint(&mut rest) as i64),
            2 => {
                let len = varint(&mut rest) as usize;
                Field::Bytes(rest.split_off(..len).expect("as many bytes as declared"))
            }
            5 => Field::Float(f32::from_le_bytes(*rest.split_off(..4).unwrap().first_chunk().unwrap())),
            other => panic!("type {other} of a field"),
        };
        all.push(((key >> 3) as u32, field));
    }
    all
}

fn varint(rest: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = *rest.split_off_first().expect("an integer ends");
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}
