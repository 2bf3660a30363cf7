//! Flame graphs of waiters, and of the holders during these waits: a file that stands alone, and parts of a page.

use inferno::flamegraph::color::{BackgroundColor, Color, StrokeColor};
use inferno::flamegraph::{self, Options, TextTruncateDirection};
use lockwright_numbers::format::{thousands, time};
use lockwright_observer::sampler::outcome::Folded;
use maud::{Markup, html};
use std::io::{self, Write};

/// The unit of values that are times.
pub(crate) const TIMES: &str = "µs";

/// Who a graph, or a part of it, is about. It has one hue each: what a box is about can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Holders,
    Waiters,
}

impl Role {
    const ALL: [Role; 2] = [Role::Holders, Role::Waiters];

    /// The name of its lowest box.
    fn name(self) -> &'static str {
        match self {
            Role::Holders => "holders",
            Role::Waiters => "waiters",
        }
    }

    /// What the time of its boxes is.
    fn meaning(self) -> &'static str {
        match self {
            Role::Holders => "Holders: the code that kept others waiting",
            Role::Waiters => "Waiters: the code that waited",
        }
    }

    /// Colours of a box: the side itself, a lock, a function.
    fn fills(self) -> &'static [Fill; 3] {
        match self {
            Role::Holders => &[
                ("rgb(232,148,74)", "#8f5420"),
                ("rgb(243,181,121)", "#744519"),
                ("rgb(249,216,182)", "#5a3817"),
            ],
            Role::Waiters => &[
                ("rgb(108,164,219)", "#2f5f8f"),
                ("rgb(148,190,232)", "#2b527a"),
                ("rgb(194,218,243)", "#25415f"),
            ],
        }
    }
}

/// On a light screen, where it is an attribute that inferno's search changes and restores; and on a dark one.
type Fill = (&'static str, &'static str);

const ALL: Fill = ("rgb(223,227,232)", "#343a41");
const FOUND: Fill = ("rgb(230,0,230)", "#9a1f9a");

/// Draws both side by side, counted in `unit`. The lowest boxes say which is which, and the boxes above them name the
/// lock.
///
/// # Errors
///
/// Nothing was seen (`InvalidData`), or `to` could not be written.
pub(crate) fn draw(title: &str, unit: &str, folded: &Folded, mut to: impl Write) -> io::Result<()> {
    let paper = "svg { background:#fff; } svg > rect { fill:none; }";
    let dark = "svg { background:#15181c; }";
    to.write_all(painted(title, unit, folded, None, (paper, dark))?.as_bytes())
}

/// The two graphs of a page, as far as something was seen. Each is a document of its own within the page, as inferno's
/// script expects.
///
/// # Errors
///
/// A graph could not be drawn.
pub(crate) fn framed(unit: &str, folded: &Folded) -> io::Result<Markup> {
    let mut figures = Vec::new();
    for side in Role::ALL {
        let part = folded.iter().filter(|(frames, _)| frames[0] == side.name());
        let part: Folded = part.map(|(frames, count)| (frames[1..].to_vec(), *count)).collect();
        if part.is_empty() {
            continue;
        }
        let total = value(part.iter().map(|(_, count)| count).sum(), unit);
        let paper = "svg { width:100%; } svg > rect { fill:none; }";
        let svg = painted("", unit, &part, Some(side), (paper, ""))?;
        let svg = svg[svg.find("<svg").unwrap_or(0)..].replacen(" onload=\"init(evt)\"", "", 1);
        let height = attribute(&svg, "height").unwrap_or("400").to_owned();
        figures.push(html! {
            figure {
                figcaption { strong { (side.meaning()) ", " (total) " in all" } }
                iframe.flame title=(side.meaning()) srcdoc=(format!("{BEFORE}{svg}{AFTER}"))
                    style={ "height:" (height) "px" } {}
            }
        });
    }
    Ok(html! { @for figure in figures { (figure) } })
}

/// Before a graph within a page. Its document has no address that could remember what is zoomed.
const BEFORE: &str = "<!DOCTYPE html><meta charset=\"utf-8\"><style>:root { color-scheme:light dark; } \
     body { margin:0; background:transparent; overflow:hidden; }</style>\
     <script>history.replaceState = () => {};</script>";
/// After it. Boxes can't be laid out in a document without a width, as one has that isn't shown.
const AFTER: &str = "<script>Object.defineProperty(document.querySelector('svg'), 'width', { value: { baseVal: { \
     get value() { return Math.max(document.documentElement.clientWidth, 100); } } } }); init();</script>";

/// For any graph; then for dark screens.
const STYLE: &str = "
text { fill:#1b1f24; }
#search { opacity:1; }
#search, #unzoom { text-decoration:underline; }
#frames > *:hover { stroke:none; }
#frames > g:hover > rect { stroke:currentColor; cursor:pointer; }
";

/// inferno's drawing, with colours that mean something, values in words, and a style for dark screens. All boxes are of
/// `side`; `None`: the lowest boxes say of which. `extra`: more style, for any screen and for dark ones.
fn painted(
    title: &str,
    unit: &str,
    folded: &Folded,
    side: Option<Role>,
    (extra, extra_dark): (&str, &str),
) -> io::Result<String> {
    let svg = drawn(title, unit, folded)?;
    let Some((head, frames)) = svg.split_once("<g>") else { return Ok(svg) };
    let frames: Vec<&str> = frames.split("<g>").collect();
    let number = |frame: &str, name: &str| -> f64 {
        attribute(frame, name).and_then(|text| text.parse().ok()).unwrap_or_default()
    };
    let height = frames.iter().map(|frame| number(frame, "y")).fold(0.0, f64::max);
    let depth = |frame: &str| ((height - number(frame, "y")) / FRAME as f64).round() as usize;
    // inferno sorts by name: holders lie on the left.
    let is_holders = |frame: &&&str| depth(frame) == 1 && frame.starts_with("<title>holders (");
    let holders = frames.iter().find(is_holders).map_or(0.0, |frame| number(frame, "fg:w"));
    let fill = |frame: &str| {
        let of = match side {
            Some(side) => side,
            None if number(frame, "fg:x") < holders => Role::Holders,
            None => Role::Waiters,
        };
        let level = depth(frame) + usize::from(side.is_some());
        match depth(frame) {
            0 => ALL,
            _ => of.fills()[level.min(3) - 1],
        }
    };
    let mut text = with_style(head, extra, extra_dark);
    for frame in frames {
        text += "<g>";
        text += &in_words(&filled(frame, fill(frame).0), unit);
    }
    Ok(text)
}

fn with_style(head: &str, extra: &str, extra_dark: &str) -> String {
    let fills = Role::ALL.into_iter().flat_map(|side| side.fills()).chain([&ALL, &FOUND]);
    let dark: String = fills
        .map(|(light, dark)| format!("#frames rect[fill=\"{light}\"] {{ fill:{dark}; }}\n"))
        .collect();
    let style = format!(
        "{STYLE}{extra}\n@media (prefers-color-scheme: dark) {{\ntext {{ fill:#e4e6e9; }}\n\
         #frames > g > rect {{ stroke:#15181c; }}\n{dark}{extra_dark} }}\n</style>"
    );
    head.replacen("</style>", &style, 1)
}

/// A box in this colour.
fn filled(frame: &str, fill: &str) -> String {
    match attribute(frame, "fill") {
        Some(old) => frame.replacen(&format!("fill=\"{old}\""), &format!("fill=\"{fill}\""), 1),
        None => frame.to_owned(),
    }
}

/// A box whose title has its time as people write it, instead of a number of microseconds.
fn in_words(frame: &str, unit: &str) -> String {
    let in_words = || {
        let title = &frame[..frame.find("</title>")?];
        let (start, end) = (title.rfind(" (")? + 2, title.rfind(&format!(" {unit}, "))?);
        let count = title.get(start..end)?.replace(',', "").parse().ok()?;
        let rest = &frame[end + " ".len() + unit.len()..];
        Some(format!("{}{}{rest}", &frame[..start], value(count, unit)))
    };
    in_words().unwrap_or_else(|| frame.to_owned())
}

/// A value with its unit.
fn value(count: u64, unit: &str) -> String {
    if unit == TIMES { time(count as f64 * 1e3) } else { format!("{} {unit}", thousands(count)) }
}

/// An attribute of the first element that has it.
fn attribute<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let start = text.find(&format!(" {name}=\""))? + name.len() + 3;
    Some(&text[start..start + text[start..].find('"')?])
}

/// Height of a box.
const FRAME: usize = 18;

fn drawn(title: &str, unit: &str, folded: &Folded) -> io::Result<String> {
    // Names may contain any character, but these are separators.
    let clean = |name: &String| name.replace([';', '\n', '\r'], ":");
    let lines = folded.iter().map(|(frames, count)| {
        format!("{} {count}", frames.iter().map(clean).collect::<Vec<_>>().join(";"))
    });
    let lines: Vec<String> = lines.collect();
    let mut options = Options::default();
    options.title = title.to_owned();
    options.count_name = unit.to_owned();
    options.name_type = String::new();
    options.deterministic = true;
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.frame_height = FRAME;
    let white = Color { r: 255, g: 255, b: 255 };
    options.bgcolors = Some(BackgroundColor::Flat(white));
    options.stroke_color = StrokeColor::Color(white);
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)?;
    Ok(String::from_utf8_lossy(&svg).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded() -> Folded {
        let stack = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        vec![
            (stack(&["holders", "g_lock", "main", "a<b>;c"]), 30_000),
            (stack(&["waiters", "g_lock", "main", "lookup"]), 70_000),
        ]
    }

    fn alone(unit: &str) -> String {
        let mut svg = Vec::new();
        draw("locks", unit, &folded(), &mut svg).unwrap();
        String::from_utf8(svg).unwrap()
    }

    #[test]
    fn it_has_all_functions_with_their_time() {
        let svg = alone(TIMES);
        for part in
            ["<svg", "waiters (70.0 ms, 70", "lookup (70.0 ms, 70", "a&lt;b&gt;:c (30.0 ms, 30"]
        {
            assert!(svg.contains(part), "no '{part}' in {svg}");
        }
        assert!(!svg.contains(" µs"), "{svg}");
        assert!(alone("samples").contains("lookup (70,000 samples, 70"));
    }

    #[test]
    fn colours_say_who_and_what() {
        let svg = alone(TIMES);
        let fill = |title: &str| {
            let frame = &svg[svg.find(&format!("<title>{title} (")).unwrap()..];
            attribute(frame, "fill").unwrap().to_owned()
        };
        assert_eq!(fill("all"), ALL.0);
        for side in Role::ALL {
            assert_eq!(fill(side.name()), side.fills()[0].0);
        }
        assert_eq!(fill("g_lock"), Role::Holders.fills()[1].0);
        assert_eq!(fill("lookup"), Role::Waiters.fills()[2].0);
        assert_eq!(fill("a&lt;b&gt;:c"), Role::Holders.fills()[2].0);
        // Each colour has another on dark screens.
        let dark = svg.split_once("prefers-color-scheme: dark").unwrap().1;
        assert!(dark.contains(&fill("lookup")) && dark.contains(&fill("all")), "{svg}");
    }

    #[test]
    fn a_page_has_a_graph_for_each_side_that_was_seen() {
        let both = framed(TIMES, &folded()).unwrap().into_string();
        assert_eq!(both.matches("<iframe").count(), 2, "{both}");
        assert!(both.contains("Waiters: the code that waited, 70.0 ms in all"), "{both}");
        assert!(both.contains("Holders: the code that kept others waiting, 30.0 ms"), "{both}");
        // The documents within lie in attributes.
        assert!(!both.contains("<svg") && both.contains("&lt;svg"), "{both}");
        let waiters = framed(TIMES, &folded()[1..].to_vec()).unwrap().into_string();
        assert_eq!(waiters.matches("<iframe").count(), 1, "{waiters}");
    }
}
