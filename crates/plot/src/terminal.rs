//! A picture of a terminal, whose text stays text.

use crate::canvas::Ink;
use maud::html;

const SIZE: usize = 14;
/// The width of a letter, in hundredths of a pixel, about as in common monospaced fonts.
const ADVANCE: usize = 843;
const LINE: usize = 19;
const MARGIN: usize = 18;

/// A command with its output. Lines are as wide as the longest one, in any font.
pub fn terminal(command: &str, output: &str) -> String {
    let prompt = format!("$ {command}");
    let lines: Vec<&str> = std::iter::once(&*prompt).chain(output.lines()).collect();
    let wide = |line: &str| line.chars().count() * ADVANCE / 100;
    let width = 2 * MARGIN + lines.iter().map(|line| wide(line)).max().unwrap_or(0);
    let height = 2 * MARGIN + LINE * lines.len();
    let [ink, soft, paper, rule] = [Ink::TEXT, Ink::SOFT, Ink::PAPER, Ink::FAINT].map(Ink::both);
    let style = format!(
        "text{{font:{SIZE}px ui-monospace,\"DejaVu Sans Mono\",\"Liberation Mono\",Menlo,Consolas,monospace;\
         fill:{};white-space:pre}}.command{{font-weight:700}}.soft{{fill:{}}}rect{{fill:{};stroke:{}}}\
         @media screen and (prefers-color-scheme: dark){{text{{fill:{}}}.soft{{fill:{}}}rect{{fill:{};stroke:{}}}}}",
        ink[0], soft[0], paper[0], rule[0], ink[1], soft[1], paper[1], rule[1]
    );
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(height)
            viewBox={ "0 0 " (width) " " (height) } role="img" aria-label={ "output of " (command) } {
            style { (maud::PreEscaped(style)) }
            rect x="0.5" y="0.5" width=(width - 1) height=(height - 1) rx="8" {}
            @for (n, line) in lines.iter().enumerate() {
                @if !line.is_empty() {
                    text x=(MARGIN) y=(MARGIN + LINE * n + SIZE) textLength=(wide(line))
                        lengthAdjust="spacingAndGlyphs" xml:space="preserve"
                        class=[(n == 0).then_some("command")] { (line) }
                }
            }
        }
    };
    svg.into_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_as_long_as_its_letters() {
        let svg = terminal("cargo xtask demo", "a  b <c>\n\nlast");
        assert!(svg.contains(">$ cargo xtask demo</text>"), "{svg}");
        assert!(
            svg.contains("textLength=\"67\"") && svg.contains(">a  b &lt;c&gt;</text>"),
            "{svg}"
        );
        assert_eq!(svg.matches("<text ").count(), 3, "{svg}");
    }
}
