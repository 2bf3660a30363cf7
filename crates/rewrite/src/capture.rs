//! Which variables a section needs from its function, and how it gets them.

use crate::c::tokens;
use crate::macros;
use crate::section::Section;
use crate::tree::{Function, Macro, Mention, Shape, SourceFile, StatementKind, Variable};
use crate::writes;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

/// How a section gets a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// A copy: nobody writes it meanwhile.
    Copy,
    /// By its address.
    Address,
}

/// What a section needs.
#[derive(Clone, Debug, Default)]
pub struct Captures {
    /// Variables by number, and how the section gets them.
    pub needed: BTreeMap<usize, Passing>,
    /// Those of them that are declared inside, and used behind the section: their declarations move before it.
    pub moved: Vec<usize>,
}

/// By names: how each variable is passed, its type, and whether its declaration moves.
pub type Named = BTreeMap<String, (Passing, String, bool)>;

impl Captures {
    /// The same for every build that makes the same function of the section.
    pub fn named(&self, function: &Function) -> Named {
        let named = |(number, how): (&usize, &Passing)| {
            let variable = &function.variables[*number];
            let is_moved = self.moved.contains(number);
            (variable.name.clone(), (*how, variable.type_text.clone(), is_moved))
        };
        self.needed.iter().map(named).collect()
    }
}

/// The variables that others may write to meanwhile, by a pointer that is taken anywhere in the function; and volatile ones.
fn shared(file: &SourceFile, function: &Function) -> HashSet<usize> {
    let body = function.body.range.clone();
    let all = tokens(&file.text[body.clone()]);
    let numbers: HashMap<usize, usize> =
        all.iter().enumerate().map(|(number, (at, _))| (body.start + at, number)).collect();
    let statements = function.body.all();
    let mentions = statements.iter().flat_map(|it| &it.mentions);
    let pointed = mentions.filter(|mention| {
        let number = mention.at.and_then(|at| numbers.get(&at));
        number.is_some_and(|number| writes::has_address_taken(&all, *number))
    });
    let is_volatile = |number: &usize| {
        function.variables[*number].type_text.split_whitespace().any(|word| word == "volatile")
    };
    let volatile = (0..function.variables.len()).filter(is_volatile);
    pointed.map(|mention| mention.variable).chain(volatile).collect()
}

/// What `section` needs; or why that can't be had.
///
/// # Errors
/// A variable whose type has no name outside, or one that only a macro names.
pub fn of(file: &SourceFile, function: &Function, section: &Section) -> Result<Captures, String> {
    let runs = |at: usize| section.runs(at);
    let is_inside = |variable: &Variable| !variable.is_of_thread && runs(variable.declared);
    let text = &file.text[section.body.clone()];
    let all: Vec<(usize, &str)> =
        tokens(text).into_iter().map(|(at, token)| (at + section.body.start, token)).collect();
    let mut captures = Captures::default();
    let mut hidden = Vec::new();
    let (shared, writing) = (shared(file, function), writes::writing_calls(file, &all));
    let unseen = unseen(file, function, section);
    let statements = function.body.all().into_iter();
    let mentions = statements.map(|it| (it.range.start, &it.mentions));
    for (start, mentions) in mentions.chain([(section.body.start, &unseen)]) {
        for mention in mentions {
            let variable = &function.variables[mention.variable];
            let place = mention.at.unwrap_or(start);
            if is_inside(variable) {
                if !runs(place) {
                    if variable.is_static {
                        return Err(format!("'{}' is static, and used behind it", variable.name));
                    }
                    if !captures.moved.contains(&mention.variable) {
                        captures.moved.push(mention.variable);
                    }
                    captures.needed.insert(mention.variable, Passing::Address);
                }
                continue;
            }
            if !runs(place) {
                continue;
            }
            let how = match (mention.at, variable.shape) {
                (_, Shape::Local) => {
                    return Err(format!("the type of '{}' is known only there", variable.name));
                }
                (None, _) => {
                    hidden.push(mention.variable);
                    Passing::Copy
                }
                (Some(at), Shape::Scalar) => {
                    let number = all.iter().position(|(place, _)| *place == at);
                    let is_written = number.is_none_or(|number| {
                        let mut calls = writing.iter();
                        writes::is_written(&all, number) || calls.any(|call| call.contains(&number))
                    });
                    if is_written { Passing::Address } else { Passing::Copy }
                }
                _ => Passing::Address,
            };
            let now = captures.needed.entry(mention.variable).or_insert(how);
            let changes = variable.is_static || variable.is_of_thread;
            if how == Passing::Address || changes || shared.contains(&mention.variable) {
                *now = Passing::Address;
            }
        }
    }
    // Its own thread may write to these while it waits, and then runs the rest.
    let in_wait = |at: usize| section.waits.as_ref().is_some_and(|it| it.body.contains(&at));
    for it in function.body.all() {
        for mention in &it.mentions {
            if in_wait(mention.at.unwrap_or(it.range.start))
                && let Some(now) = captures.needed.get_mut(&mention.variable)
            {
                *now = Passing::Address;
            }
        }
    }
    let words: Vec<&str> = all.iter().filter(|(at, _)| runs(*at)).map(|(_, it)| *it).collect();
    let is_own = |name: &str| {
        let mut all = file.definitions.iter();
        all.any(|(it, at)| it == name && (function.range.start..section.body.start).contains(at))
    };
    if let Some(name) = macros::names(file, words.iter().copied()).into_iter().find(|it| is_own(it))
    {
        return Err(format!("the macro '{name}' is defined in its function"));
    }
    let is_local = |name: &str| {
        function.local_names.iter().any(|(it, at)| it == name && !section.body.contains(at))
    };
    if let Some(name) = words.iter().find(|name| is_local(name)) {
        return Err(format!("'{name}' is declared in its function"));
    }
    let head = &file.text[function.range.start..function.body.range.start];
    if head.lines().any(|line| line.trim_start().starts_with('#')) {
        return Err("an #if is in the middle of its function's head".to_owned());
    }
    if words.contains(&"lw") {
        return Err("names 'lw'".to_owned());
    }
    for (number, how) in &captures.needed {
        let variable = &function.variables[*number];
        if variable.is_register && *how == Passing::Address {
            return Err(format!("'{}' has no address", variable.name));
        }
        if variable.type_text.contains("typeof") || file.macros.contains_key(&variable.name) {
            return Err(format!("the type of '{}' is known only there", variable.name));
        }
        if variable.type_text.contains("va_list") {
            return Err("reads its function's own arguments (va_list)".to_owned());
        }
    }
    let mutex = tokens(&section.act.mutex);
    for (_, name) in names(&mutex) {
        let is_member = |at: usize| at > 0 && ["->", "."].contains(&all[at - 1].1);
        let mut places = (0..all.len()).filter(|at| all[*at].1 == name && !is_member(*at));
        if places.any(|at| writes::is_assigned(&all, at)) {
            return Err(format!("'{name}', by which the mutex is found, may change inside"));
        }
    }
    other_builds(file, function, section, &captures)?;
    for number in captures.moved.clone() {
        can_move(file, function, section, number)?;
    }
    let used = macros::used(file, all.iter().map(|(_, token)| *token));
    for number in hidden {
        let variable = &function.variables[number];
        let names = |macro_: &Macro| {
            let own = macro_.tokens.iter().map(String::as_str);
            let inner = macros::used(file, own).into_iter().flat_map(|it| &it.tokens);
            let is_own = macro_.parameters.iter().flatten().any(|name| *name == variable.name);
            !is_own && macro_.tokens.iter().chain(inner).any(|it| *it == variable.name)
        };
        let writes = |macro_: &Macro| {
            names(macro_) && macro_.tokens.iter().any(|it| writes::writes(it) || it == "&")
        };
        let is_copy = captures.needed.get(&number) == Some(&Passing::Copy);
        if !is_copy || variable.shape != Shape::Scalar || used.iter().any(|it| writes(it)) {
            return Err(format!("'{}' is hidden in a macro", variable.name));
        }
    }
    Ok(captures)
}

/// Does each `#if` of the text end in it, and each `#endif` begin in it?
fn is_balanced(text: &str) -> bool {
    let mut depth = 0;
    for line in text.lines() {
        let directive = line.trim_start().strip_prefix('#').map_or("", str::trim_start);
        if directive.starts_with("if") {
            depth += 1;
        } else if directive.starts_with("e") && depth == 0 {
            return false; // else, elif, endif
        } else if directive.starts_with("endif") {
            depth -= 1;
        }
    }
    depth == 0
}

/// Parts that the preprocessor may leave out (`#if` to `#endif`), in a text.
pub fn conditional(text: &str) -> Vec<Range<usize>> {
    let (mut depth, mut start, mut at, mut found) = (0_u32, 0, 0, Vec::new());
    for line in text.split_inclusive('\n') {
        let directive = line.trim_start().strip_prefix('#').map_or("", str::trim_start);
        if directive.starts_with("if") {
            if depth == 0 {
                start = at;
            }
            depth += 1;
        } else if directive.starts_with("endif") {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                found.push(start..at + line.len());
            }
        }
        at += line.len();
    }
    found
}

/// Names among tokens that may be variables: neither members nor functions.
fn names<'a>(all: &[(usize, &'a str)]) -> Vec<(usize, &'a str)> {
    let at = |number: usize| all.get(number).map_or("", |(_, token)| *token);
    let is_name = |number: usize| {
        let is_word = at(number).starts_with(|it: char| it.is_alphabetic() || it == '_');
        let before = number.checked_sub(1).map_or("", at);
        is_word && !["->", ".", "#"].contains(&before) && at(number + 1) != "("
    };
    (0..all.len()).filter(|number| is_name(*number)).map(|number| all[number]).collect()
}

/// Where a section's text names variables from before the section that clang doesn't see there: in what a macro drops (`assert`, in some
/// builds), or `#if` leaves out.
pub fn unseen(file: &SourceFile, function: &Function, section: &Section) -> Vec<Mention> {
    let text = &file.text[section.body.clone()];
    let all = tokens(text);
    let seen: HashSet<usize> = function
        .body
        .all()
        .into_iter()
        .flat_map(|it| it.mentions.iter().filter_map(|mention| mention.at))
        .chain(function.variables.iter().map(|it| it.declared))
        .collect();
    let is_tag = |at: usize| {
        let before = text[..at].trim_end();
        ["struct", "union", "enum"].iter().any(|word| before.ends_with(word))
    };
    let skipped = |at: usize| file.skipped.iter().any(|part| part.contains(&at));
    let dropped = macros::dropping_calls(file, &all);
    let is_left_out = |at: usize| {
        skipped(section.body.start + at) || dropped.iter().any(|call| call.contains(&at))
    };
    let named = names(&all)
        .into_iter()
        .filter(|(at, _)| is_left_out(*at))
        .filter(|(at, _)| !seen.contains(&(section.body.start + at)) && !is_tag(*at));
    let of = |name: &str| {
        let is_before = |it: &Variable| it.name == name && it.declared < section.lock.start;
        function.variables.iter().rposition(is_before)
    };
    named
        .filter_map(|(at, name)| {
            Some(Mention { at: Some(section.body.start + at), variable: of(name)? })
        })
        .collect()
}

/// Would the section compile in another build, too, in which `#if`s say something else?
fn other_builds(
    file: &SourceFile,
    function: &Function,
    section: &Section,
    captures: &Captures,
) -> Result<(), String> {
    let text = &file.text[section.body.clone()];
    let cut = section.exits.iter().map(|exit| exit.dropped.clone());
    let cut = cut.chain(section.waits.iter().map(|waits| waits.body.clone()));
    let cut = cut.chain(section.exits.iter().flat_map(|exit| exit.tail.clone()));
    let cut = cut.chain(section.waits.iter().flat_map(|waits| {
        let head = waits.whole.start..waits.body.start;
        [section.body.start..waits.whole.start, head, waits.whole.clone()]
    }));
    if !cut.chain([section.body.clone()]).all(|range| is_balanced(&file.text[range])) {
        return Err("an #if begins or ends in the middle of it".to_owned());
    }
    let parts = conditional(text);
    if parts.is_empty() {
        return Ok(());
    }
    let all = tokens(text);
    let is_directive = |at: usize| {
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        text[line..].trim_start().starts_with('#')
    };
    let is_part = |at: usize| parts.iter().any(|part| part.contains(&at));
    let (inside, outside): (Vec<_>, Vec<_>) =
        names(&all).into_iter().partition(|(at, _)| is_part(*at));
    let is_always = |name: &str| outside.iter().any(|(_, other)| *other == name);
    let whole = function.range.start..function.body.range.end;
    let parts_around = conditional(&file.text[whole.clone()]);
    let is_everywhere = |it: &Variable| {
        let at = it.declared.checked_sub(whole.start);
        at.is_some_and(|at| !parts_around.iter().any(|part| part.contains(&at)))
    };
    let captured = |name: &str| {
        let mut needed = captures.needed.keys().map(|number| &function.variables[*number]);
        needed.any(|it| it.name == name && !is_everywhere(it))
    };
    // What this build leaves out of the function may declare more variables.
    let skipped = file.skipped.iter().filter(|part| whole.contains(&part.start));
    let skipped = skipped.filter(|part| !section.body.contains(&part.start));
    let around: HashSet<&str> =
        skipped.flat_map(|part| may_be_declared(&tokens(&file.text[part.clone()]))).collect();
    for (_, name) in inside.into_iter().filter(|(at, _)| !is_directive(*at)) {
        if !is_always(name) && (captured(name) || around.contains(name)) && !is_keyword(name) {
            return Err(format!("'{name}' is used in a part that #if may leave out"));
        }
    }
    Ok(())
}

/// Names that these tokens may declare: behind a type, or behind another variable.
fn may_be_declared<'a>(all: &[(usize, &'a str)]) -> Vec<&'a str> {
    let is_word = |token: &str| token.starts_with(|it: char| it.is_alphabetic() || it == '_');
    let (mut depth, mut found) = (0, Vec::new());
    for pair in all.windows(2) {
        let (before, token) = (pair[0].1, pair[1].1);
        depth += i32::from(before == "(") - i32::from(before == ")");
        let is_behind = match before {
            "return" | "case" | "goto" | "sizeof" | "else" | "do" => false,
            "*" => true,
            "," => depth <= 0,
            _ => is_word(before),
        };
        if is_behind && is_word(token) {
            found.push(token);
        }
    }
    found
}

/// Words that name no variable.
fn is_keyword(name: &str) -> bool {
    let all = "if else for while do switch case default return break continue goto sizeof int char long \
               short unsigned signed void const static struct union enum bool true false NULL float \
               double endif ifdef ifndef elif defined size_t";
    all.split_whitespace().any(|word| word == name)
}

/// Can the declaration move before the section?
fn can_move(
    file: &SourceFile,
    function: &Function,
    section: &Section,
    number: usize,
) -> Result<(), String> {
    let variable = &function.variables[number];
    let refused = |why: &str| Err(format!("'{}' is used behind it, and {why}", variable.name));
    if variable.shape == Shape::Local {
        return refused("its type is known only there");
    }
    if variable.shape != Shape::Scalar && variable.is_set {
        return refused("can't be declared before it");
    }
    if variable.type_text.contains("const") && !variable.type_text.contains('*')
        || variable.type_text.ends_with("const")
    {
        return refused("is constant");
    }
    let alone = function.body.all().into_iter().any(|it| {
        section.body.contains(&it.range.start)
            && it.kind == StatementKind::Declaration(vec![number])
            && !it.is_hidden
    });
    if !alone {
        return refused("is declared with others");
    }
    let same =
        |other: &Variable| other.name == variable.name && other.declared != variable.declared;
    // Something else has the name: where the declaration comes, that would be another variable.
    let all = function.body.all();
    let own: HashSet<usize> = all
        .iter()
        .flat_map(|it| &it.mentions)
        .filter(|it| it.variable == number)
        .filter_map(|it| it.at)
        .chain(variable.at)
        .collect();
    let text = tokens(&file.text[function.body.range.clone()]);
    let is_other = |(at, name): &(usize, &str)| {
        *name == variable.name && !own.contains(&(function.body.range.start + at))
    };
    if function.variables.iter().any(same) || names(&text).iter().any(is_other) {
        return refused("its name is used twice");
    }
    Ok(())
}
