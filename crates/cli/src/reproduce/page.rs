//! One page for all figures.

use super::{Done, ELSEWHERE, HEADER};
use crate::html::{CSS, escape};
use lockwright_figures::median;
use std::fmt::Write as _;

/// The page; `plots`: figure, name, SVG.
pub(super) fn page(all: &[Done], command: &str, plots: &[(&str, &str, String)]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>lockwright reproduce</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n<main>\n\
         <h1>The papers’ figures <span class=\"tag\">simulated</span></h1>\n<p class=\"soft\"><code>{}</code></p>\n",
        escape(command),
    );
    let _ = writeln!(page, "<pre>{}</pre>", escape(&super::summary(all)));
    for done in all {
        figure(&mut page, done, plots);
    }
    page + "</main>\n</body>\n</html>\n"
}

fn figure(page: &mut String, done: &Done, plots: &[(&str, &str, String)]) {
    let figure = &done.figure;
    let _ = writeln!(
        page,
        "<h2 id=\"{0}\">{0}: {1}</h2>\n<p class=\"soft\">{2}</p>\n<p>{3}</p>",
        figure.figure,
        escape(&figure.title),
        escape(&done.source()),
        escape(&figure.shows),
    );
    for (_, _, svg) in plots.iter().filter(|(id, ..)| *id == figure.figure) {
        let _ = writeln!(page, "<figure>{svg}</figure>");
    }
    let row = |cells: &[String], tag: &str| {
        let cell = |cell: &String| format!("<{tag}>{cell}</{tag}>");
        format!("<tr>{}</tr>\n", cells.iter().map(cell).collect::<String>())
    };
    let rows = done.cells().into_iter().zip(&done.report.rows).map(|(cells, compared)| {
        let mut cells = cells.map(|cell| escape(&cell));
        let _ = write!(cells[0], "<span class=\"what\">{}</span>", escape(&compared.what));
        row(&cells, "td")
    });
    let _ = writeln!(
        page,
        "<div class=\"scroll\"><table>\n<thead>{}</thead>\n<tbody>\n{}</tbody>\n</table></div>\n<ul>",
        row(&HEADER.map(escape), "th"),
        rows.collect::<String>(),
    );
    let _ = writeln!(page, "<li>Accepted: {}</li>", super::kinds(&done.report.counts));
    for note in done.report.rows.iter().flat_map(super::marks) {
        let _ = writeln!(page, "<li>{}</li>", escape(&note));
    }
    if done.is_elsewhere() {
        let _ = writeln!(page, "<li>Note: {ELSEWHERE}</li>");
    }
    for (what, values) in &done.measured.also {
        let value = median(values).map_or("-".to_owned(), super::digits);
        let _ = writeln!(page, "<li>Beside it: {} {value}</li>", escape(what));
    }
    let from = figure.chosen_as.as_ref().map_or(String::new(), |other| format!(" as {other}"));
    for (key, chosen) in &figure.chosen {
        let (what, why) = (escape(&chosen.what), escape(&chosen.why));
        let _ = writeln!(page, "<li>Chosen{from}: {key} = {} ({what}): {why}</li>", chosen.value);
    }
    for part in &figure.not_reproduced {
        let (part, reason) = (escape(&part.part), escape(&part.reason));
        let _ = writeln!(page, "<li>Not reproduced: {part}: {reason}</li>");
    }
    let _ = writeln!(page, "</ul>");
}
