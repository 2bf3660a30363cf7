//! Pages that need nothing else: no network, no script.

/// How our pages look, light or dark.
pub(crate) const CSS: &str = include_str!("page.css");

/// Text as HTML wants it.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
