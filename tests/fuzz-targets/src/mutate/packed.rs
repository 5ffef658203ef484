//! Damage inside packed files: the unpacked contents are damaged and packed again, so that checksums are valid.

use std::io::{Cursor, Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use girih_random::Stream;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::bytes::below;

/// Maximum size of unpacked contents to damage; larger files are damaged as they are.
const UNPACKED_MAX: u64 = 1 << 22;
/// Number of zeros that a decompression bomb adds.
const BOMB: usize = 1 << 20;

/// Unpacks, damages with `damage`, and packs; `None` if the bytes cannot be unpacked.
pub(super) fn gzip(
    bytes: &[u8],
    stream: &mut Stream,
    damage: impl FnOnce(&mut Vec<u8>, &mut Stream),
) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    MultiGzDecoder::new(bytes).take(UNPACKED_MAX).read_to_end(&mut text).ok()?;
    match stream.below(16) {
        0 => text.extend(vec![b'0'; BOMB]),
        1 => text.extend(vec![b'\n'; BOMB]),
        _ => damage(&mut text, stream),
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&text).ok()?;
    packed.finish().ok()
}

/// Members of an archive, in order.
pub(crate) fn members(bytes: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).ok()?;
    let n_members = archive.len();
    let member = |i| {
        let member = archive.by_index(i).ok()?;
        let name = String::from_utf8_lossy(member.name_raw()).into_owned();
        let mut bytes = Vec::new();
        member.take(UNPACKED_MAX).read_to_end(&mut bytes).ok()?;
        Some((name, bytes))
    };
    (0..n_members).map(member).collect()
}

/// Archive of members, stored or deflated.
pub(crate) fn archive(members: &[(String, Vec<u8>)], deflated: bool) -> Option<Vec<u8>> {
    let method = if deflated { CompressionMethod::Deflated } else { CompressionMethod::Stored };
    let options = SimpleFileOptions::DEFAULT.compression_method(method);
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        zip.start_file(name.as_str(), options).ok()?;
        zip.write_all(bytes).ok()?;
    }
    Some(zip.finish().ok()?.into_inner())
}

/// Damages a member with `damage`, or the list of members, and packs again.
pub(super) fn zip(
    bytes: &[u8],
    stream: &mut Stream,
    damage: impl FnOnce(&str, &mut Vec<u8>, &mut Stream),
) -> Option<Vec<u8>> {
    let mut members = members(bytes)?;
    if members.is_empty() {
        return None;
    }
    let at = below(stream, members.len());
    match stream.below(16) {
        0 => drop(members.remove(at)),
        1 => {
            let other = members[below(stream, members.len())].1.clone();
            members[at].1 = other;
        }
        2 => members[at].1.extend(vec![0; BOMB]),
        _ => {
            let (name, bytes) = &mut members[at];
            damage(name, bytes, stream);
        }
    }
    archive(&members, stream.below(2) == 0)
}
