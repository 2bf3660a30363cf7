//! One HTML page for all figures.

use super::{Done, ELSEWHERE, HEADER};
use lockwright_figures::median;
use lockwright_plot::page;
use maud::{Markup, html};

/// The page. `plots` have figure, name and SVG.
pub(super) fn page(all: &[Done], command: &str, plots: &[(&str, &str, String)]) -> String {
    let body = html! {
        h1 { "The papers’ figures " (page::tag("simulated", "")) }
        p.soft { (page::command(command)) }
        pre { (super::summary(all)) }
        @for done in all { (figure(done, plots)) }
    };
    page::page("lockwright reproduce", &body)
}

fn figure(done: &Done, plots: &[(&str, &str, String)]) -> Markup {
    let figure = &done.figure;
    let rows = done.cells().into_iter().zip(&done.report.rows).map(|(cells, compared)| {
        let mut row = page::TableRow::of(cells);
        row.cells[0] = html! { (row.cells[0]) span.what { (compared.what) } };
        row
    });
    let from = figure.chosen_as.as_ref().map_or(String::new(), |other| format!(" as {other}"));
    html! {
        h2 id=(figure.figure) { (figure.figure) ": " (figure.title) }
        p.soft { (done.source()) }
        p { (figure.shows) }
        @for (_, _, svg) in plots.iter().filter(|(id, ..)| *id == figure.figure) { (page::figure(svg, "")) }
        (page::table(HEADER, 1, true, rows))
        ul {
            li { "Accepted: " (super::kinds(&done.report.counts)) }
            @for note in done.report.rows.iter().flat_map(super::marks) { li { (note) } }
            @if done.is_elsewhere() { li { "Note: " (ELSEWHERE) } }
            @for (what, values) in &done.measured.also {
                li { "Beside it: " (what) " " (median(values).map_or("-".to_owned(), super::digits)) }
            }
            @for (key, chosen) in &figure.chosen {
                li { "Chosen" (from) ": " (key) " = " (chosen.value) " (" (chosen.what) "): " (chosen.why) }
            }
            @for part in &figure.not_reproduced {
                li { "Not reproduced: " (part.part) ": " (part.reason) }
            }
        }
    }
}
