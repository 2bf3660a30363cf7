//! A figure's plot as SVG: bars, curves and dots over one horizontal axis and up to two vertical ones.

use lockwright_figures::plot::{Axis as Data, Kind, Plot, Series};
use lockwright_numbers::format::si;
use lockwright_plot::{Axis, Curves, Head, Ink, Look, Panel, Style};

/// Draws the plot. `source` is the origin of its values.
pub(super) fn draw(plot: &Plot, source: &str) -> String {
    let shown = |series: &&Series| !series.points.is_empty() || series.if_empty.is_some();
    let mut key = Vec::new();
    let mut all = Vec::new();
    // Guides don't use up colours, which are needed for measured series.
    let mut colour = 0;
    for series in plot.series.iter().filter(shown) {
        let look = match series.kind {
            Kind::Line => Look::Line,
            Kind::Guide => Look::Guide,
            Kind::Bars => Look::Bars,
            Kind::Marks => Look::Marks,
            Kind::Dots => Look::Dots,
        };
        let style = Style::of(colour, look);
        let side = if series.right { " (right)" } else { "" };
        key.push(match series.points.is_empty() {
            false => (format!("{}{side}", series.name), style),
            true => {
                let why = series.if_empty.unwrap_or_default();
                (format!("{}: {why}", series.name), Style::ink(Ink::SOFT, Look::Nothing))
            }
        });
        let right = series.right;
        let exact = lockwright_plot::Series::exact(style, series.points.iter().copied());
        all.push(lockwright_plot::Series { right, ..exact });
        colour += usize::from(series.kind != Kind::Guide);
    }
    let panel = Panel {
        right: plot.right.as_ref().map(axis),
        ..Panel::new("", axis(&plot.x), axis(&plot.left), all)
    };
    let head = Head { title: plot.title.clone(), source: source.to_owned(), key };
    Curves { height: 316.0, ..Curves::new(head, vec![panel]) }.svg()
}

fn axis(data: &Data) -> Axis {
    match data.names.is_empty() {
        true => Axis::maybe_log(&data.label, si, data.log),
        false => Axis::names(&data.label, data.names.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_drawn_with_its_axes() {
        let points = vec![(0.0, 1.0), (1.0, 200.0)];
        let kinds = [Kind::Bars, Kind::Line, Kind::Guide, Kind::Marks, Kind::Dots];
        let mut series: Vec<Series> = kinds
            .into_iter()
            .map(|kind| Series::new(format!("{kind:?}"), kind, points.clone()))
            .collect();
        series.push(Series::new("tail", Kind::Line, points).on_the_right());
        series.push(Series::new("left out", Kind::Line, vec![]));
        series.push(Series::new("little", Kind::Line, vec![]).of_operations());
        let plot = Plot {
            name: "x".into(),
            title: "a title".into(),
            x: Data::names("", ["mcs".to_owned(), "tas".to_owned()]),
            left: Data::linear("a rate"),
            right: Some(Data::log("a time")),
            series,
        };
        let svg = draw(&plot, "simulated");
        for part in [
            "a title",
            "simulated",
            "mcs",
            "tas",
            "a rate",
            "a time (logarithmic)",
            "Bars",
            "tail (right)",
            "little: none ended",
        ] {
            assert!(svg.contains(part), "no '{part}' in {svg}");
        }
        assert!(!svg.contains("left out") && !svg.contains("a rate (logarithmic)"), "{svg}");
    }
}
