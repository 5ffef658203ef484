//! Recomputes checksums of girih folders, stores of codes, checkpoints and frames. Random damage fails at a checksum,
//! and would not test the code after it.

use safetensors::SafeTensors;

use crate::{File, Input};

/// Updates all checksums of the input to match its contents, if their places still exist.
pub fn repair(input: &mut Input) {
    for file in &mut input.files {
        if file.bytes.starts_with(b"girihfea") {
            store(&mut file.bytes);
        }
        if file.name == "checkpoint.safetensors" {
            checkpoint(&mut file.bytes);
        }
        if file.name == "frames.bin" {
            frames(&mut file.bytes);
        }
    }
    let manifest = input.files.iter().position(|file| file.name == "girih.toml");
    if let Some(at) = manifest
        && let Some(text) = folder(&input.files[at].bytes, &input.files)
    {
        input.files[at].bytes = text.into_bytes();
    }
}

/// Manifest with the size and checksum of every array; `None` if it is not a valid table.
fn folder(manifest: &[u8], files: &[File]) -> Option<String> {
    let mut table: toml::Table = std::str::from_utf8(manifest).ok()?.parse().ok()?;
    for (name, entry) in table.get_mut("arrays")?.as_table_mut()? {
        let file = files.iter().find(|file| file.name.strip_suffix(".npy") == Some(name));
        let (Some(file), Some(entry)) = (file, entry.as_table_mut()) else { continue };
        entry.insert("bytes".to_owned(), toml::Value::Integer(file.bytes.len() as i64));
        entry.insert("crc32".to_owned(), toml::Value::Integer(crc32fast::hash(&file.bytes).into()));
    }
    toml::to_string(&table).ok()
}

/// Offsets in a store, as in `docs/formats.md`.
mod places {
    pub const HEADER_BYTES: usize = 12;
    pub const N_ROWS: usize = 16;
    pub const ROW_BYTES: usize = 36;
    pub const CHUNK_ROWS: usize = 40;
    pub const TABLE_CRC: usize = 44;
}

/// Repairs the checksums of chunks, of the table, and of the header.
fn store(bytes: &mut [u8]) {
    let number =
        |bytes: &[u8], at: usize| bytes.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize);
    let found = || {
        Some([
            number(bytes, places::HEADER_BYTES)?,
            number(bytes, places::N_ROWS)?,
            number(bytes, places::ROW_BYTES)?,
            number(bytes, places::CHUNK_ROWS)?,
        ])
    };
    let Some([header, n_rows, row_bytes, chunk_rows]) = found() else { return };
    if header > bytes.len() || header < 60 || chunk_rows == 0 {
        return;
    }
    let n_chunks = n_rows.div_ceil(chunk_rows);
    let table = (4 * n_chunks).next_multiple_of(64);
    if table <= bytes.len() - header {
        let first = header + table;
        for chunk in 0..n_chunks {
            let end = |row: usize| first.saturating_add(row.min(n_rows).saturating_mul(row_bytes)).min(bytes.len());
            let codes = end(chunk * chunk_rows)..end((chunk + 1) * chunk_rows);
            let crc = crc32fast::hash(&bytes[codes]);
            bytes[header + 4 * chunk..][..4].copy_from_slice(&crc.to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes[header..header + table]);
        bytes[places::TABLE_CRC..][..4].copy_from_slice(&crc.to_le_bytes());
    }
    let crc = crc32fast::hash(&bytes[..header - 4]);
    bytes[header - 4..header].copy_from_slice(&crc.to_le_bytes());
}

/// Repairs the checksum after each frame, as long as lengths lead to the next one.
fn frames(mut bytes: &mut [u8]) {
    const MARK: usize = 5;
    const HEAD: usize = MARK + 1 + size_of::<u64>();
    while let Some(length) = bytes.get(MARK + 1..HEAD) {
        let length = length.try_into().map_or(u64::MAX, u64::from_le_bytes);
        let end = usize::try_from(length).ok().and_then(|length| HEAD.checked_add(length));
        let Some(end) = end.filter(|end| end.saturating_add(4) <= bytes.len()) else { return };
        let sum = crc32fast::hash(&bytes[MARK..end]);
        bytes[end..end + 4].copy_from_slice(&sum.to_le_bytes());
        bytes = &mut bytes[end + 4..];
    }
}

/// Repairs the checksum before the progress of a checkpoint.
fn checkpoint(bytes: &mut [u8]) {
    let Some((stated, sum)) = checkpoint_sum(bytes) else { return };
    let sum = format!("{sum:08x}");
    let header = bytes.len().min(1 << 20);
    if stated.len() != sum.len() {
        return;
    }
    let place = bytes[..header].windows(stated.len()).position(|window| window == stated.as_bytes());
    if let Some(at) = place {
        bytes[at..at + sum.len()].copy_from_slice(sum.as_bytes());
    }
}

/// Checksum that a checkpoint states, and that of its contents.
fn checkpoint_sum(bytes: &[u8]) -> Option<(String, u32)> {
    let (_, header) = SafeTensors::read_metadata(bytes).ok()?;
    let (stated, text) = header.metadata().as_ref()?.get("girih")?.split_once(' ')?;
    let tensors = SafeTensors::deserialize(bytes).ok()?;
    let mut sum = crc32fast::Hasher::new();
    sum.update(text.as_bytes());
    let mut named: Vec<(usize, String, Vec<u8>)> = Vec::new();
    for (full, view) in tensors.tensors() {
        let (group, name) = full.split_once('.')?;
        let order = ["param", "moment1", "moment2", "best"].iter().position(|known| *known == group)?;
        named.push((order, name.to_owned(), [group.as_bytes(), name.as_bytes(), view.data()].concat()));
    }
    named.sort();
    named.iter().for_each(|(_, _, bytes)| sum.update(bytes));
    Some((stated.to_owned(), sum.finalize()))
}
