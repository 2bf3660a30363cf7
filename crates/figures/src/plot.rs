//! What a figure's plots show; `lockwright reproduce --output` draws them.

/// A plot in the paper's form.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Its part of a file name: `libasl-8b`.
    pub name: String,
    /// The title above it.
    pub title: String,
    /// What is on the horizontal axis.
    pub x: Axis,
    /// What is on the left axis.
    pub left: Axis,
    /// What is on the right axis, if there is one.
    pub right: Option<Axis>,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    /// Logarithmic?
    pub log: bool,
    /// Names of the positions 0, 1, ... instead of numbers.
    pub names: Vec<String>,
}

impl Axis {
    /// A linear axis of numbers.
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), log: false, names: Vec::new() }
    }

    /// A logarithmic axis of numbers.
    pub fn log(label: &str) -> Self {
        Self { log: true, ..Self::linear(label) }
    }

    /// An axis of names.
    pub fn names(label: &str, names: impl IntoIterator<Item = String>) -> Self {
        Self { names: names.into_iter().collect(), ..Self::linear(label) }
    }
}

/// Points that belong together.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the key.
    pub name: String,
    /// How they are drawn.
    pub kind: Kind,
    /// Does it use the right axis?
    pub right: bool,
    /// x and y.
    pub points: Vec<(f64, f64)>,
    /// The key's text if it has no points. If this is `None`, a series without points is left out
    /// of the key.
    pub if_empty: Option<&'static str>,
}

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A line with a mark at each.
    Line,
    /// A thin dashed line without marks: what is wanted.
    Guide,
    /// A bar at each.
    Bars,
    /// A mark at each.
    Marks,
    /// A dot at each: thousands.
    Dots,
}

impl Series {
    /// A series on the left axis.
    pub fn new(name: impl Into<String>, kind: Kind, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), kind, right: false, points, if_empty: None }
    }

    /// The same for operations, of which none may have ended.
    #[must_use]
    pub fn of_operations(mut self) -> Self {
        self.if_empty = Some("none ended");
        self
    }

    /// The same on the right axis.
    #[must_use]
    pub fn on_the_right(mut self) -> Self {
        self.right = true;
        self
    }
}
