//! Layouts: where an element of girih's matrix stands in a tensor of another library.
//!
//! Girih stores a weight as inputs × outputs and interleaves the columns of heads: column `k · heads + h` is column `k`
//! of head `h`. PyG and DGL store most weights as outputs × inputs, and the columns of a head side by side.

use std::fmt;

/// Number of columns of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// A number that the configuration decides.
    Size(usize),
    /// Number of features, which the file decides.
    Features,
    /// Number of classes, which the file decides.
    Classes,
    /// Number of nodes, which the file decides.
    Nodes,
}

/// Number of rows or columns: that of a head, times the number of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Width {
    /// Number of heads, whose columns girih interleaves.
    pub(super) heads: usize,
    /// Number of columns of a head.
    pub(super) each: Extent,
}

impl Width {
    /// A single row or element.
    pub(super) const ONE: Self = Self::of_heads(1, Extent::Size(1));
    /// Number of features.
    pub(super) const FEATURES: Self = Self::of_heads(1, Extent::Features);
    /// Number of classes.
    pub(super) const CLASSES: Self = Self::of_heads(1, Extent::Classes);

    /// Width of several heads.
    pub(super) const fn of_heads(heads: usize, each: Extent) -> Self {
        Self { heads, each }
    }
}

/// Form of a tensor that holds a matrix of girih.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Rows × columns.
    Plain,
    /// Columns × rows.
    Transposed,
    /// Columns alone, of a matrix of one row.
    Vector,
    /// 1 × heads × columns of a head, of a matrix of one row.
    Heads,
    /// Columns alone, of a matrix of one row, so many times one after the other. A file's copies are averaged.
    Repeated(usize),
}

/// Sizes that a file decides; `None` until a tensor states them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) features: Option<usize>,
    pub(super) classes: Option<usize>,
    pub(super) nodes: Option<usize>,
}

impl Found {
    /// Number of columns of a head, if it is known.
    pub(super) fn extent(self, extent: Extent) -> Option<usize> {
        match extent {
            Extent::Size(n) => Some(n),
            Extent::Features => self.features,
            Extent::Classes => self.classes,
            Extent::Nodes => self.nodes,
        }
    }

    /// Number of rows or columns, if it is known.
    fn width(self, width: Width) -> Option<usize> {
        self.extent(width.each).and_then(|each| each.checked_mul(width.heads))
    }

    /// Compares a dimension with its length in a file. Learns the length if it is not known yet.
    fn matches(&mut self, dimension: Dimension, len: usize) -> bool {
        let width = dimension.0;
        if let Some(known) = self.width(width) {
            return known == len;
        }
        if len == 0 || !len.is_multiple_of(width.heads) {
            return false;
        }
        let slot = match width.each {
            Extent::Features => &mut self.features,
            Extent::Classes => &mut self.classes,
            Extent::Nodes => &mut self.nodes,
            Extent::Size(_) => return false,
        };
        *slot = Some(len / width.heads);
        true
    }

    /// Compares a shape with the one in a file. Learns the sizes that are not known yet.
    pub(super) fn take(&mut self, shape: &[Dimension], found: &[usize]) -> bool {
        let mut learned = *self;
        let fits = shape.len() == found.len()
            && shape.iter().zip(found).all(|(dimension, len)| learned.matches(*dimension, *len));
        if fits {
            *self = learned;
        }
        fits
    }

    /// Shape as text, as `[16, features]`.
    pub(super) fn show(self, shape: &[Dimension]) -> String {
        let dimensions: Vec<String> = shape.iter().map(|dimension| self.show_one(dimension.0)).collect();
        format!("[{}]", dimensions.join(", "))
    }

    fn show_one(self, width: Width) -> String {
        if let Some(len) = self.width(width) {
            return len.to_string();
        }
        if width.heads == 1 { width.each.to_string() } else { format!("{} × {}", width.heads, width.each) }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(n) => write!(f, "{n}"),
            Self::Features => write!(f, "features"),
            Self::Classes => write!(f, "classes"),
            Self::Nodes => write!(f, "nodes"),
        }
    }
}

/// Dimension of a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dimension(pub(super) Width);

/// Shape of the tensor that holds a matrix of `rows × cols`.
pub(super) fn shape_of(form: Form, rows: Width, cols: Width) -> Vec<Dimension> {
    let one_head = |each| Dimension(Width::of_heads(1, each));
    match form {
        Form::Plain => vec![Dimension(rows), Dimension(cols)],
        Form::Transposed => vec![Dimension(cols), Dimension(rows)],
        Form::Vector => vec![Dimension(cols)],
        Form::Repeated(copies) => vec![Dimension(Width::of_heads(copies * cols.heads, cols.each))],
        Form::Heads => vec![Dimension(Width::ONE), one_head(Extent::Size(cols.heads)), one_head(cols.each)],
    }
}

/// Positions of a matrix's elements in a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    form: Form,
    rows: (usize, usize),
    cols: (usize, usize),
}

impl Layout {
    /// Layout of a matrix, given heads and columns of a head for rows and for columns.
    pub(super) fn new(form: Form, rows: (usize, usize), cols: (usize, usize)) -> Self {
        Self { form, rows, cols }
    }

    /// Numbers of rows and columns of girih's matrix.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.rows.0 * self.rows.1, self.cols.0 * self.cols.1)
    }

    /// Number of copies of the matrix in the tensor, one after the other.
    fn copies(&self) -> usize {
        if let Form::Repeated(copies) = self.form { copies } else { 1 }
    }

    /// Tensor that holds the matrix with these elements.
    pub(super) fn tensor(self, matrix: &[f32]) -> Vec<f32> {
        let mut one = vec![0.0; matrix.len()];
        self.positions().zip(matrix).for_each(|(at, value)| one[at] = *value);
        one.repeat(self.copies())
    }

    /// Elements of the matrix that a tensor holds, row after row: means over its copies.
    pub(super) fn matrix(self, tensor: &[f32]) -> Vec<f32> {
        let (copies, len) = (self.copies(), tensor.len() / self.copies());
        let mean = |at: usize| (0..copies).map(|copy| f64::from(tensor[copy * len + at])).sum::<f64>() / copies as f64;
        self.positions().map(|at| mean(at) as f32).collect()
    }

    /// Position in a copy of each element of girih's matrix, row after row.
    fn positions(self) -> impl Iterator<Item = usize> {
        let (n_rows, n_cols) = self.sizes();
        let apart = |i: usize, (heads, each): (usize, usize)| (i % heads) * each + i / heads;
        (0..n_rows).flat_map(move |row| {
            (0..n_cols).map(move |col| {
                let (row, col) = (apart(row, self.rows), apart(col, self.cols));
                if self.form == Form::Transposed { col * n_rows + row } else { row * n_cols + col }
            })
        })
    }
}
