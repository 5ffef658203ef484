//! [`piece`]: some of a test's cases, for tools under which all of them take too long.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Variable that says which cases a test runs: `1/8` is every eighth, from the second on. All, if it is not set.
pub const PIECE: &str = "GIRIH_PIECE";

/// One of so many pieces of a test: every `of`-th case from case `number` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    number: usize,
    of: usize,
}

impl Piece {
    /// Piece that a text such as `1/8` names, the first of which is 0.
    fn parse(text: &str) -> Option<Self> {
        let (number, of) = text.split_once('/')?;
        let piece = Self { number: number.parse().ok()?, of: of.parse().ok()? };
        (piece.number < piece.of).then_some(piece)
    }

    /// The cases of the piece; `before` counts those of the test that were asked for already.
    fn of<T>(self, cases: impl IntoIterator<Item = T>, before: &AtomicUsize) -> impl Iterator<Item = T> {
        cases.into_iter().filter(move |_| before.fetch_add(1, Ordering::Relaxed) % self.of == self.number)
    }
}

/// Cases of a test that [`PIECE`] asks for. They are counted over the whole process, so that a loop within another one
/// has other cases each time; with one test a process, pieces are the same in each run, and all pieces are the test.
///
/// # Panics
/// When the variable names no piece.
pub fn piece<T>(cases: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    static ASKED: LazyLock<Piece> = LazyLock::new(|| {
        let text = std::env::var(PIECE).unwrap_or_else(|_| "0/1".to_owned());
        Piece::parse(&text).unwrap_or_else(|| panic!("{PIECE}={text}: give a number and how many, as 0/8"))
    });
    static CASES: AtomicUsize = AtomicUsize::new(0);
    ASKED.of(cases, &CASES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_together_are_the_test() {
        let of_piece = |number| {
            let (piece, before) = (Piece { number, of: 3 }, AtomicUsize::new(0));
            (0..4)
                .flat_map(|outer| piece.of((0..2).map(move |inner| (outer, inner)), &before).collect::<Vec<_>>())
                .collect()
        };
        let pieces: [Vec<(usize, usize)>; 3] = [0, 1, 2].map(of_piece);
        assert_eq!(pieces[0], [(0, 0), (1, 1), (3, 0)]);
        let mut all = pieces.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq((0..4).flat_map(|outer| (0..2).map(move |inner| (outer, inner)))));
    }

    #[test]
    fn only_pieces_are_parsed() {
        assert_eq!(Piece::parse("1/8"), Some(Piece { number: 1, of: 8 }));
        for text in ["", "1", "8/8", "0/0", "-1/2", "a/2", "0/1/2"] {
            assert_eq!(Piece::parse(text), None, "{text}");
        }
    }
}
