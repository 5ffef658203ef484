//! Writes the seeds of every target to `FOLDER/corpus/NAME/`, and its words to `FOLDER/dictionaries/NAME.dict`, for
//! libFuzzer.

use std::fs;
use std::path::Path;

use girih_fuzz_targets::targets;

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).unwrap_or_else(|| "fuzz".into());
    let home = Path::new(&folder);
    fs::create_dir_all(home.join("dictionaries"))?;
    for target in targets() {
        let corpus = home.join("corpus").join(target.name);
        fs::create_dir_all(&corpus)?;
        for (i, seed) in (target.seeds)().iter().enumerate() {
            fs::write(corpus.join(format!("seed{i}")), seed.encode(target.form))?;
        }
        let words: String = target.words.iter().filter(|word| !word.is_empty()).map(|word| quoted(word)).collect();
        fs::write(home.join("dictionaries").join(format!("{}.dict", target.name)), words)?;
    }
    Ok(())
}

/// Line of a dictionary; bytes that are not plain text are written in hexadecimal.
fn quoted(word: &str) -> String {
    let byte = |b: u8| match b {
        b'"' | b'\\' => format!("\\{}", char::from(b)),
        b' '..=b'~' => char::from(b).to_string(),
        _ => format!("\\x{b:02x}"),
    };
    // Bytes of pickles above 127 are written as characters.
    let bytes =
        word.chars().flat_map(|c| u8::try_from(u32::from(c)).map_or_else(|_| c.to_string().into_bytes(), |b| vec![b]));
    format!("\"{}\"\n", bytes.map(byte).collect::<String>())
}
