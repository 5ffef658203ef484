//! [`piece`]: a subset of a test's cases, for tools under which all cases take too long.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Environment variable that selects the cases of a test: `1/8` is every eighth, from the second on. If unset, all
/// cases run.
pub const PIECE: &str = "GIRIH_PIECE";

/// Subset of a test: every `of`-th case, from case `number` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    number: usize,
    of: usize,
}

impl Piece {
    /// Parses a text such as `1/8`. The first number counts from 0.
    fn parse(text: &str) -> Option<Self> {
        let (number, of) = text.split_once('/')?;
        let piece = Self { number: number.parse().ok()?, of: of.parse().ok()? };
        (piece.number < piece.of).then_some(piece)
    }

    /// Cases of the subset. `before` counts the cases of the test already requested.
    fn of<T>(self, cases: impl IntoIterator<Item = T>, before: &AtomicUsize) -> impl Iterator<Item = T> {
        cases.into_iter().filter(move |_| before.fetch_add(1, Ordering::Relaxed) % self.of == self.number)
    }
}

/// Cases of a test that [`PIECE`] selects. They are counted over the whole process, so that a nested loop selects
/// other cases each time. With one test per process, the subsets are the same in each run and together form the test.
///
/// # Panics
/// When the value of the variable is invalid.
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
