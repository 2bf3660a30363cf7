//! The fitted figures of a profile: their names, ranges, and places in the file.

use super::search::Param;
use anyhow::{Context, Result};
use lockwright_sim::profile::{Origin, Profile};
use std::collections::BTreeSet;
use toml_edit::{DocumentMut, Item, Value};

/// The only table whose figures have no names.
const MATRIX: &str = "memory.latency_ns";

/// The fitted figures of a profile.
#[derive(Debug)]
pub(crate) struct Fitted {
    /// One per number. Equal cells of the matrix with the same range share one.
    pub(crate) params: Vec<Param>,
    /// The paths of each param. Equal cells have several paths.
    pub(crate) paths: Vec<Vec<String>>,
    /// Ids of the papers' figures to which it is fitted.
    pub(crate) targets: BTreeSet<String>,
}

impl Fitted {
    /// Everything that `profile` marks as fitted.
    pub(crate) fn of(profile: &Profile) -> Self {
        let mut all = Self { params: Vec::new(), paths: Vec::new(), targets: BTreeSet::new() };
        let figures = profile.figures();
        for (path, value) in figures.iter().filter(|(path, _)| path != MATRIX) {
            all.add(profile, path.clone(), *value, None);
        }
        let first = all.params.len();
        for (row, cells) in profile.memory.latency_ns.iter().enumerate() {
            for (column, &value) in cells.iter().enumerate() {
                all.add(profile, format!("{MATRIX}.{row}.{column}"), value, Some(first));
            }
        }
        all
    }

    /// Adds a figure if it is fitted. Params from index `first` on are cells of one matrix.
    fn add(&mut self, profile: &Profile, path: String, value: f64, first: Option<usize>) {
        let from = profile.provenance_of(&path).filter(|from| from.kind == Origin::Fitted);
        let Some((from, range)) = from.and_then(|from| Some((from, from.range?))) else { return };
        self.targets.extend(from.targets.iter().cloned());
        let equal = |param: &Param| param.value == value && param.range == range;
        let cells = first.unwrap_or(self.params.len());
        if let Some(place) = self.params[cells..].iter().position(equal) {
            self.paths[cells + place].push(path);
        } else {
            self.params.push(Param { name: path.clone(), value, range });
            self.paths.push(vec![path]);
        }
    }

    /// The profile with these values.
    pub(crate) fn with(&self, profile: &Profile, values: &[f64]) -> Result<Profile> {
        let mut changed = profile.clone();
        for (paths, value) in self.paths.iter().zip(values) {
            for path in paths {
                changed.set(path, *value)?;
            }
        }
        Ok(changed)
    }

    /// The profile's text with these values, otherwise unchanged.
    pub(crate) fn write(&self, text: &str, values: &[f64]) -> Result<String> {
        let mut document: DocumentMut = text.parse()?;
        for (paths, value) in self.paths.iter().zip(values) {
            for path in paths {
                let place = path
                    .split('.')
                    .try_fold(DocumentPlace::Item(document.as_item_mut()), DocumentPlace::inside);
                let place = place.and_then(DocumentPlace::value);
                let place = place.with_context(|| format!("{path} is not in the file"))?;
                let around = place.decor().clone();
                *place = Value::from(*value);
                *place.decor_mut() = around;
            }
        }
        Ok(document.to_string())
    }
}

/// A place in a document.
enum DocumentPlace<'a> {
    Item(&'a mut Item),
    Table(&'a mut toml_edit::Table),
    Value(&'a mut Value),
}

impl<'a> DocumentPlace<'a> {
    /// The element called `key`. In a list of tables, `key` is a table's name or index.
    fn inside(self, key: &str) -> Option<Self> {
        match self {
            DocumentPlace::Item(Item::ArrayOfTables(tables)) => {
                let named = |table: &toml_edit::Table| {
                    table.get("name").and_then(Item::as_str) == Some(key)
                };
                let index = tables.iter().position(named).or_else(|| key.parse().ok())?;
                tables.get_mut(index).map(DocumentPlace::Table)
            }
            DocumentPlace::Item(Item::Table(table)) | DocumentPlace::Table(table) => {
                table.get_mut(key).map(DocumentPlace::Item)
            }
            DocumentPlace::Item(Item::Value(Value::Array(cells)))
            | DocumentPlace::Value(Value::Array(cells)) => {
                cells.get_mut(key.parse().ok()?).map(DocumentPlace::Value)
            }
            _ => None,
        }
    }

    fn value(self) -> Option<&'a mut Value> {
        match self {
            DocumentPlace::Item(item) => item.as_value_mut(),
            DocumentPlace::Value(value) => Some(value),
            DocumentPlace::Table(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_sim::profile::{BUILTIN, Provenance, builtin};

    #[test]
    fn what_is_fitted_is_what_the_profile_says() {
        let fitted = Fitted::of(&builtin("m1").unwrap());
        let names: Vec<&str> = fitted.params.iter().map(|param| &*param.name).collect();
        assert!(
            names.contains(&"memory.overlap") && names.contains(&"memory.occupancy"),
            "{names:?}"
        );
        assert!(!names.contains(&"class.big.latency"), "published: {names:?}");
        assert!(fitted.targets.contains("libasl-1"), "{fitted:?}");
        assert!(Fitted::of(&builtin("hikey970").unwrap()).params.is_empty());
    }

    #[test]
    fn equal_cells_of_a_matrix_stay_equal() {
        let mut m1 = builtin("m1").unwrap();
        for cell in ["memory.latency_ns.0.1", "memory.latency_ns.1.0"] {
            let like = m1.provenance["memory.occupancy"].clone();
            let range = Some([55.0, 160.0]);
            m1.provenance.insert(cell.to_owned(), Provenance { range, ..like });
        }
        let fitted = Fitted::of(&m1);
        let index =
            fitted.params.iter().position(|param| param.name == "memory.latency_ns.0.1").unwrap();
        assert_eq!(fitted.paths[index], ["memory.latency_ns.0.1", "memory.latency_ns.1.0"]);
        let mut values: Vec<f64> = fitted.params.iter().map(|param| param.value).collect();
        values[index] = 150.0;
        let cells = fitted.with(&m1, &values).unwrap().memory.latency_ns;
        assert_eq!(
            (cells[0][1], cells[1][0], cells[0][0]),
            (150.0, 150.0, m1.memory.latency_ns[0][0])
        );
    }

    #[test]
    fn only_the_values_are_written() {
        for (name, text) in BUILTIN {
            let profile = builtin(name).unwrap();
            let fitted = Fitted::of(&profile);
            let same: Vec<f64> = fitted.params.iter().map(|param| param.value).collect();
            assert_eq!(fitted.write(text, &same).unwrap(), *text, "{name}");
            let others: Vec<f64> = fitted.params.iter().map(|param| param.range[0]).collect();
            let written = fitted.write(text, &others).unwrap();
            assert_eq!(
                Profile::parse(&written).unwrap(),
                fitted.with(&profile, &others).unwrap(),
                "{name}"
            );
            let changed = text.lines().zip(written.lines()).filter(|(old, new)| old != new).count();
            assert!(changed <= fitted.params.len(), "{name}");
            assert_eq!(text.lines().count(), written.lines().count(), "{name}");
        }
    }

    #[test]
    fn comments_stay() {
        let fitted = Fitted::of(&builtin("m1").unwrap());
        let comment = |line: &str| {
            let end = if line.starts_with("occupancy = ") { " # of a transfer" } else { "" };
            format!("{line}{end}\n")
        };
        let text: String = BUILTIN[0].1.lines().map(comment).collect();
        let values: Vec<f64> = fitted.params.iter().map(|param| param.range[1]).collect();
        let written = fitted.write(&text, &values).unwrap();
        assert!(written.contains("\noccupancy = 0.6 # of a transfer\n"), "{written}");
    }
}
