//! Writes sections as functions.
//!
//! ```text
//!     struct lw_put_12 { int lw_exit; struct item **item; };         before the function
//!     static void lw_put_12(void *lw_context)
//!     {
//!         struct lw_put_12 *lw = lw_context;
//!         ... the section's text; a variable that it writes: (*lw->item); an exit: { lw->lw_exit = 1; return; }
//!     }
//!
//!     { struct lw_put_12 lw = {0, &item};                            in place of the section
//!       lw_run(&m, lw_put_12, &lw);
//!       if (lw.lw_exit == 1) { return -1; } }
//! ```
//!
//! All else stays as it is, to the byte.

use crate::c::{declared, tokens};
use crate::capture::{self, Captures, Passing};
use crate::names::accessor;
use crate::section::{CondWait, Section};
use crate::tree::{Function, Shape, SourceFile, StatementKind, Variable};
use std::fmt::Write;
use std::ops::Range;

/// What a file's first section has before it: without our library, a section runs as before.
pub const PRELUDE: &str = "\
/* lockwright: runs a section where its data is. Without liblockwright, here, under the mutex. */
#ifndef LW_RUN
#define LW_RUN
#ifdef pthread_mutex_lock /* what this build makes of a mutex */
#define lw_run(mutex, section, context) \\
    do { \\
        pthread_mutex_lock(mutex); \\
        section(context); \\
        pthread_mutex_unlock(mutex); \\
    } while (0)
#else
#include <pthread.h>
extern void lw_section(pthread_mutex_t *, void (*)(void *), void *) __attribute__((weak));
static __inline__ void lw_run(pthread_mutex_t *mutex, void (*section)(void *), void *context)
{
    if (lw_section) {
        lw_section(mutex, section, context);
        return;
    }
    pthread_mutex_lock(mutex);
    section(context);
    pthread_mutex_unlock(mutex);
}
#endif
#endif

";

/// A change of a file's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What goes.
    pub range: Range<usize>,
    /// What comes.
    pub text: String,
}

/// Makes the changes, which don't overlap.
pub fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let (mut new, mut at) = (String::new(), 0);
    for edit in edits {
        debug_assert!(edit.range.start >= at, "edits overlap");
        new.push_str(&text[at..edit.range.start]);
        new.push_str(&edit.text);
        at = edit.range.end;
    }
    new.push_str(&text[at..]);
    new
}

fn field(variable: &Variable, how: Passing) -> String {
    let Variable { name, type_text, .. } = variable;
    match how {
        Passing::Copy => declared(type_text, name),
        Passing::Address if variable.shape == Shape::Array => {
            declared(type_text, &format!("(*{name})"))
        }
        Passing::Address => declared(type_text, &format!("*{name}")),
    }
}

/// Where a line begins.
pub fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |end| end + 1)
}

/// Where something may stand before a function: before the comment that belongs to the function.
pub fn before_function(text: &str, at: usize) -> usize {
    let mut start = line_start(text, at);
    loop {
        let above = &text[..start];
        let Some(last) = above.strip_suffix('\n') else { return start };
        let line = &last[line_start(last, last.len())..];
        if line.trim_end().ends_with("*/") {
            let Some(open) = last.rfind("/*") else { return start };
            let open = line_start(last, open);
            if !last[open..].trim_start().starts_with("/*") {
                return start; // behind something else
            }
            start = open;
        } else if line.trim_start().starts_with("//") {
            start = line_start(last, last.len());
        } else {
            return start;
        }
    }
}

/// The `#if`s of a function that are open at a place, as lines; and how many they are.
pub fn conditions(text: &str, from: usize, to: usize) -> (String, usize) {
    let mut open: Vec<String> = Vec::new();
    let mut lines = text[from..to].split_inclusive('\n');
    while let Some(first) = lines.next() {
        let directive = first.trim_start().strip_prefix('#').map_or("", str::trim_start);
        let mut line = first.to_owned();
        while directive.len() > 1 && line.trim_end().ends_with('\\') {
            line += lines.next().unwrap_or("\n");
        }
        if directive.starts_with("if") {
            open.push(line);
        } else if directive.starts_with("endif") {
            open.pop();
        } else if let Some(last) = open.last_mut().filter(|_| directive.starts_with("el")) {
            *last += &line;
        }
    }
    (open.concat(), open.len())
}

/// A section's changes, in its function's file.
pub struct Emitted {
    /// What stands in place of the section.
    pub place: Edit,
    /// What comes before the function.
    pub before: String,
}

/// Writes one section.
pub fn section(
    file: &SourceFile,
    function: &Function,
    section: &Section,
    captures: &Captures,
    is_weak: &dyn Fn(&str) -> bool,
    is_static: &dyn Fn(&str) -> bool,
) -> Emitted {
    let text = &file.text;
    let line = text[..section.lock.start].matches('\n').count() + 1;
    let before_lock = &text[line_start(text, section.lock.start)..section.lock.start];
    let mut name = format!("lw_{}_{line}", function.name);
    if !before_lock.trim().is_empty() {
        name += &format!("_{}", before_lock.len()); // not the line's only section, maybe
    }
    let has_exits = !section.exits.is_empty() || section.waits.is_some();
    let variable = |number: &usize| &function.variables[*number];

    // Before the function.
    let mut before = String::new();
    let is_recursive = function.body.all().into_iter().any(|it| {
        let calls = it.calls.iter();
        section.body.contains(&it.range.start) && calls.clone().any(|it| it.name == function.name)
    });
    if is_recursive {
        let head = &text[function.range.start..function.body.range.start];
        writeln!(before, "{};", head.trim_end()).expect("a String");
    }
    if has_exits || !captures.needed.is_empty() {
        writeln!(before, "struct {name} {{").expect("a String");
        if has_exits {
            before += "    int lw_exit;\n";
        }
        for (number, how) in &captures.needed {
            writeln!(before, "    {};", field(variable(number), *how)).expect("a String");
        }
        before += "};\n";
    }
    writeln!(before, "static void {name}(void *lw_context)\n{{").expect("a String");
    if has_exits || !captures.needed.is_empty() {
        writeln!(before, "    struct {name} *lw = lw_context;").expect("a String");
    } else {
        before += "    (void)lw_context;\n";
    }
    // Named only where a macro or `#if` drops it, in this build or in another one.
    let (all, mut unused) = (function.body.all(), String::new());
    let parts = capture::conditional(&text[section.body.clone()]);
    let is_always_there = |at: usize| {
        let at = at.checked_sub(section.body.start);
        !at.is_some_and(|at| parts.iter().any(|part| part.contains(&at)))
    };
    for (number, how) in &captures.needed {
        let variable = variable(number);
        if *how == Passing::Copy {
            let alias = declared(&variable.type_text, &variable.name);
            writeln!(before, "    {alias} = lw->{};", variable.name).expect("a String");
            let mut mentions = all.iter().flat_map(|it| it.mentions.iter());
            let is_seen = mentions.any(|it| {
                let is_there = |at: usize| section.runs(at) && is_always_there(at);
                it.variable == *number && it.at.is_none_or(is_there)
            });
            if !is_seen {
                unused += &format!("    (void){};\n", variable.name);
            }
        }
    }
    for wrapper in section.wrappers.iter().filter(|wrapper| is_static(wrapper)) {
        writeln!(before, "    (void){wrapper};").expect("a String");
    }
    before += &unused;
    let body = body(file, function, section, captures);
    before += body.trim_start_matches([' ', '\t']).trim_start_matches(['\r', '\n']);
    before.truncate(before.trim_end().len());
    // A label stands before the unlock.
    let is_label =
        tokens(&text[section.body.clone()]).last().is_some_and(|(_, token)| *token == ":");
    before += if is_label { "\n    ;\n}\n\n" } else { "\n}\n\n" };

    let (conditions, open) = conditions(text, function.range.start, section.lock.start);
    if open > 0 {
        let end = "#endif\n".repeat(open);
        before = format!("{conditions}{}\n{end}\n", before.trim_end());
    }

    // In its place.
    let start = line_start(text, section.lock.start);
    let indent: String =
        text[start..].chars().take_while(|it| it.is_whitespace() && *it != '\n').collect();
    let mut place = String::new();
    for number in &captures.moved {
        let variable = variable(number);
        write!(place, "{};\n{indent}", declared(&variable.type_text, &variable.name))
            .expect("a String");
    }
    place += "{ ";
    let mutex = match &section.act.through {
        Some((wrapper, arguments)) => format!("{}({})", accessor(wrapper), arguments.join(", ")),
        None => section.act.mutex.clone(),
    };
    let context = if has_exits || !captures.needed.is_empty() {
        let mut values: Vec<String> = has_exits.then(|| "0".to_owned()).into_iter().collect();
        values.extend(captures.needed.iter().map(|(number, how)| {
            let name = &variable(number).name;
            if *how == Passing::Copy { name.clone() } else { format!("&{name}") }
        }));
        write!(place, "struct {name} lw = {{{}}};\n{indent}  ", values.join(", "))
            .expect("a String");
        "&lw"
    } else {
        "NULL"
    };
    let unlock = section.exits.first().map_or(&section.unlock, |exit| &exit.unlock);
    let unlock = &text[unlock.clone()];
    let is_weak = section.act.through.as_ref().is_some_and(|(wrapper, _)| is_weak(wrapper));
    if is_weak {
        let (accessor, lock) =
            (mutex.split('(').next().unwrap_or_default(), &text[section.lock.clone()]);
        write!(place, "if ({accessor}) lw_run({mutex}, {name}, {context});\n{indent}  else {{ {lock} {name}({context}); {unlock} }}").expect("a String");
    } else {
        write!(place, "lw_run({mutex}, {name}, {context});").expect("a String");
    }
    if let Some(waits) = &section.waits {
        let number = section.waiting_exit();
        let waits = &text[waits.whole.clone()];
        let is_cut = waits.contains("\\\n"); // a string may go on there
        let waits = if is_cut { waits.to_owned() } else { waits.replace('\n', "\n    ") };
        let lock = &text[section.lock.clone()];
        let lines =
            [lock, &waits, &format!("{name}(&lw);"), unlock].join(&format!("\n{indent}    "));
        write!(place, "\n{indent}  if (lw.lw_exit == {number}) {{\n{indent}    {lines} }}")
            .expect("a String");
    }
    for (number, exit) in section.exits.iter().enumerate() {
        let tails: Vec<&str> = exit.tail.iter().map(|tail| text[tail.clone()].trim_end()).collect();
        let tail = tails.join(" ");
        if tail.is_empty() {
            continue;
        }
        write!(place, "\n{indent}  if (lw.lw_exit == {}) {{ {tail} }}", number + 1)
            .expect("a String");
    }
    place += " }";
    Emitted { place: Edit { range: section.lock.start..section.end, text: place }, before }
}

/// The section's text, as its function has it.
fn body(file: &SourceFile, function: &Function, section: &Section, captures: &Captures) -> String {
    let mut edits = Vec::new();
    for (number, exit) in section.exits.iter().enumerate() {
        let text = format!("{{ lw->lw_exit = {}; return; }}", number + 1);
        edits.push(Edit { range: exit.dropped.clone(), text });
    }
    if let Some(CondWait { whole, keyword, body }) = &section.waits {
        // Its thread calls it again once it has waited: what has been done is not done twice.
        let number = section.waiting_exit();
        let again = format!("lw->lw_exit != {number}");
        let insert = |at: usize, text: String| Edit { range: at..at, text };
        let first = section.body.start;
        if file.text[first..whole.start].trim().is_empty() {
            edits.push(Edit { range: keyword.clone(), text: format!("if ({again} &&") });
            edits.push(insert(body.start, ") ".to_owned()));
        } else {
            edits.push(insert(first, format!("\n    if ({again}) {{")));
            edits.push(Edit { range: keyword.clone(), text: "if".to_owned() });
            edits.push(insert(whole.end, "\n    }".to_owned()));
        }
        let text = format!("{{ lw->lw_exit = {number}; return; }}");
        edits.push(Edit { range: body.clone(), text });
    }
    let unseen = capture::unseen(file, function, section);
    let statements = function.body.all();
    let mentions = statements.iter().flat_map(|it| it.mentions.iter()).chain(&unseen);
    {
        for mention in mentions {
            let Some(at) = mention.at.filter(|at| section.runs(*at)) else {
                continue;
            };
            if captures.needed.get(&mention.variable) == Some(&Passing::Address) {
                let name = &function.variables[mention.variable].name;
                let text = format!("(*lw->{name})");
                edits.push(Edit { range: at..at + name.len(), text });
            }
        }
    }
    for statement in statements {
        // A declaration that has moved leaves its value behind.
        if let StatementKind::Declaration(declared) = &statement.kind
            && let [number] = declared.as_slice()
            && captures.moved.contains(number)
            && section.body.contains(&statement.range.start)
        {
            let variable = &function.variables[*number];
            let at = variable.at.unwrap_or(variable.declared);
            let text =
                if variable.is_set { format!("(*lw->{})", variable.name) } else { String::new() };
            let end = if variable.is_set { at + variable.name.len() } else { statement.range.end };
            edits.push(Edit { range: statement.range.start..end, text });
        }
    }
    edits.sort_by_key(|edit| edit.range.start);
    edits.dedup_by(|next, last| next.range == last.range);
    let from = section.body.start;
    let edits = edits
        .into_iter()
        .map(|edit| Edit { range: edit.range.start - from..edit.range.end - from, ..edit })
        .collect();
    apply(&file.text[section.body.clone()], edits)
}
