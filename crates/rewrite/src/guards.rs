//! C++'s guards: a scope that `std::lock_guard`, `unique_lock` or `scoped_lock` protects is a section, and becomes a lambda.
//!
//! ```text
//!     int Queue::size() {
//!         std::lock_guard<std::mutex> guard(m_);     return lw_sections::run(m_.native_handle(), [&]() -> int {
//!         return items_.size();                      return items_.size();
//!                                                    });
//!     }
//! ```
//!
//! A lambda sees its function's variables, so the section's own text stays as it is. A section in the middle of a function that is left by
//! `return`, `break` or `continue` says so by what its lambda returns; only these statements change.

use crate::c::{is_balanced, tokens};
use crate::callees::{called, name_of, short};
use crate::config::GuardType;
use crate::place::{is_in_macro, place};
use crate::scope::{Form, GuardScope, Lambda, Leave};
use crate::tree::SourceFile;
use clang::{Entity, EntityKind as E, EntityVisitResult};
use std::ops::Range;

/// The standard's guards, as clang writes their types.
const GUARDS: &[&str] = &["std::lock_guard<", "std::unique_lock<", "std::scoped_lock<"];

/// Who calls whom in a C++ file and its headers, and the scopes of its guards.
pub fn read(root: &Entity<'_>, guards: &[GuardType], flags: &[String], file: &mut SourceFile) {
    let older = ["98", "03", "0x", "11", "1y", "14"];
    let mut standards = flags.iter().filter(|flag| flag.starts_with("-std="));
    let has_optional = !standards.any(|flag| older.iter().any(|it| flag.ends_with(it)));
    let Some(first) = root.get_children().into_iter().find(|it| {
        it.is_in_main_file() && !it.is_preprocessing() && it.get_kind() != E::InclusionDirective
    }) else {
        return;
    };
    file.first = place(&first).map(|range| range.start);
    let mut found = Vec::new();
    root.visit_children(|it, _| {
        if it.is_in_system_header() || it.is_preprocessing() {
            return EntityVisitResult::Continue;
        }
        let is_function = matches!(
            it.get_kind(),
            E::FunctionDecl
                | E::Method
                | E::Constructor
                | E::Destructor
                | E::ConversionFunction
                | E::FunctionTemplate
        );
        if !is_function {
            return EntityVisitResult::Recurse;
        }
        if it.is_definition() {
            let body = it.get_children().into_iter().find(|it| it.get_kind() == E::CompoundStmt);
            if let Some(body) = body {
                file.callees.push((name_of(&it), called(&body, None)));
                if it.is_in_main_file() {
                    let (text, skipped) = (&file.text, &file.skipped);
                    let reader = ScopeReader { text, skipped, guards, has_optional };
                    reader.function(&it, &body, &mut found);
                }
            }
        }
        EntityVisitResult::Continue
    });
    file.scopes = found;
}

/// The function, or lambda, around a section.
#[derive(Clone)]
struct Around {
    name: String,
    /// What it returns; `None`: nothing.
    result: Option<String>,
    /// The same type, whatever it is called.
    canonical: Option<String>,
    body: Range<usize>,
    is_main: bool,
}

struct ScopeReader<'a> {
    text: &'a str,
    skipped: &'a [Range<usize>],
    guards: &'a [GuardType],
    /// The file is C++17, or newer.
    has_optional: bool,
}

impl ScopeReader<'_> {
    fn function(&self, it: &Entity<'_>, body: &Entity<'_>, found: &mut Vec<GuardScope>) {
        let Some(range) = place(body) else { return };
        let is_special = matches!(it.get_kind(), E::Constructor | E::Destructor);
        let type_ = it.get_result_type();
        let canonical = type_.map(|it| it.get_canonical_type().get_display_name());
        let result = type_.map(|it| it.get_display_name());
        let around = Around {
            name: short(&name_of(it)),
            result: result.filter(|it| it != "void" && !is_special),
            canonical,
            is_main: it.get_name().as_deref() == Some("main"),
            body: range,
        };
        self.statements(body, &around, found);
    }

    fn statements(&self, it: &Entity<'_>, around: &Around, found: &mut Vec<GuardScope>) {
        if it.get_kind() == E::StmtExpr {
            return; // its last expression is its value
        }
        if matches!(
            it.get_kind(),
            E::Method
                | E::Constructor
                | E::Destructor
                | E::ConversionFunction
                | E::FunctionTemplate
        ) {
            // Of a local class.
            let body = it.get_children().into_iter().find(|it| it.get_kind() == E::CompoundStmt);
            if let Some(body) = body {
                self.function(it, &body, found);
            }
            return;
        }
        let lambda;
        let around = if it.get_kind() == E::LambdaExpr {
            lambda = self.lambda(it, around);
            &lambda
        } else {
            around
        };
        if it.get_kind() == E::CompoundStmt {
            self.block(it, around, found);
        }
        for child in it.get_children() {
            self.statements(&child, around, found);
        }
    }

    /// A lambda's own result: as written, or deduced.
    fn lambda(&self, it: &Entity<'_>, around: &Around) -> Around {
        let body = it.get_children().into_iter().rfind(|it| it.get_kind() == E::CompoundStmt);
        let body = body.as_ref().and_then(place).unwrap_or(0..0);
        let head = place(it).and_then(|all| self.text.get(all.start..body.start)).unwrap_or("");
        let tokens = tokens(head);
        // Not one in a capture or a parameter's default.
        let (mut depth, mut arrow) = (0, None);
        for (at, token) in tokens {
            match token {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                "->" if depth == 0 => arrow = Some(at + 2),
                _ => {}
            }
        }
        let result = arrow.map_or("auto", |at| head[at..].trim()).to_owned();
        let result = Some(result).filter(|it| it != "void");
        Around { name: around.name.clone(), result, canonical: None, body, is_main: false }
    }

    /// Its guards. What comes behind the first is inside of its section.
    fn block(&self, block: &Entity<'_>, around: &Around, found: &mut Vec<GuardScope>) {
        let Some(range) = place(block) else { return };
        for statement in block.get_children() {
            let declared = statement.get_children();
            let [variable] = declared.as_slice() else { continue };
            if statement.get_kind() != E::DeclStmt || variable.get_kind() != E::VarDecl {
                continue;
            }
            let Some(type_) = variable.get_type() else { continue };
            let type_ = type_.get_canonical_type().get_display_name();
            let type_ = type_.trim_start_matches("const ");
            let own = self.guards.iter().find(|it| it.name == type_);
            if own.is_none() && !GUARDS.iter().any(|it| type_.starts_with(it)) {
                continue;
            }
            let Some(guard) = place(&statement) else { continue };
            let name = variable.get_name().unwrap_or_default();
            let Some(mutex) = self.mutex(variable, &name) else { continue };
            let end = range.end.saturating_sub(1);
            let body = guard.end..end;
            let is_hidden = is_in_macro(&statement) || self.text.get(end..end + 1) != Some("}");
            let fate = if is_hidden || guard.end > end {
                Err("inside of a macro".to_owned())
            } else {
                mutex.clone().and_then(|mutex| {
                    let handle = match own {
                        Some(it) => it.mutex.replace("$1", &mutex),
                        None if !type_.ends_with("<std::mutex>") => {
                            return Err(format!("a mutex of another kind ({type_})"));
                        }
                        None if !self.is_mutex(variable, &mutex) => {
                            return Err(format!("'{mutex}' is no std::mutex itself"));
                        }
                        None => {
                            let is_name = |it: char| it.is_alphanumeric() || "_.>-:".contains(it);
                            let is_plain = mutex.chars().all(is_name) && !mutex.starts_with('-');
                            let mutex = if is_plain { mutex } else { format!("({mutex})") };
                            format!("{mutex}.native_handle()")
                        }
                    };
                    let body = body.clone();
                    let scope = Scope { block, around, body, guard: &name, variable };
                    let (form, exits) = self.check(&scope)?;
                    Ok(Lambda { handle, form, exits })
                })
            };
            let mutex = mutex.unwrap_or_else(|_| name.clone());
            found.push(GuardScope {
                function: around.name.clone(),
                mutex,
                guard,
                end,
                called: called(block, Some(&body)),
                fate,
            });
        }
    }

    /// What a guard locks, from its declaration. `None`: nothing yet.
    fn mutex(&self, variable: &Entity<'_>, name: &str) -> Option<Result<String, String>> {
        let all = place(variable)?;
        let at = variable.get_location()?.get_file_location().offset as usize + name.len();
        let rest = self.text.get(at..all.end).unwrap_or("").trim();
        let inner = match (rest.chars().next(), rest.chars().last()) {
            (None, _) => return None,
            (Some('('), Some(')')) | (Some('{'), Some('}')) => rest[1..rest.len() - 1].trim(),
            _ => return Some(Err("its guard comes from elsewhere".to_owned())),
        };
        let mut depth = 0;
        for (_, token) in tokens(inner) {
            match token {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                "," if depth == 0 => {
                    let why = "locks by a rule of its own, or several mutexes";
                    return Some(Err(why.to_owned()));
                }
                _ => {}
            }
        }
        if inner.contains("//") || inner.contains("/*") {
            return Some(Err("a comment stands in its guard's declaration".to_owned()));
        }
        if inner.is_empty() { None } else { Some(Ok(inner.to_owned())) }
    }

    /// Is what the guard gets a mutex as it stands there, and nothing that becomes one?
    fn is_mutex(&self, guard: &Entity<'_>, text: &str) -> bool {
        let (mut seen, mut others) = (false, false);
        guard.visit_children(|it, _| {
            let is_it = it.is_expression() || it.is_unexposed();
            let here = place(&it).and_then(|range| self.text.get(range));
            if is_it && here == Some(text) {
                let type_ = it.get_type().map(|it| it.get_canonical_type().get_display_name());
                let is_mutex = type_.as_deref() == Some("std::mutex");
                seen |= is_mutex;
                others |= !is_mutex;
            }
            EntityVisitResult::Recurse
        });
        seen && !others
    }

    /// May the section be a lambda? Of which form, and who leaves it?
    #[allow(clippy::type_complexity, reason = "two things that belong together for one caller")]
    fn check(&self, it: &Scope<'_, '_>) -> Result<(Form, Vec<(Leave, Range<usize>)>), String> {
        let text = &self.text[it.body.clone()];
        let words = tokens(text);
        let has = |word: &str| words.iter().any(|(_, token)| *token == word);
        if text.trim().is_empty() {
            return Err("empty: it waits for others, and does nothing".to_owned());
        }
        if has(it.guard) {
            let waits = ["wait", "wait_for", "wait_until"].iter().any(|word| has(word));
            return Err(if waits {
                "waits for a condition variable".to_owned()
            } else {
                format!("its guard, '{}', is used inside", it.guard)
            });
        }
        let mut is_named = false;
        let mut moves = false;
        it.block.visit_children(|child, _| {
            let at = child.get_location().map(|at| at.get_expansion_location().offset as usize);
            if at.is_some_and(|at| at >= it.body.start) {
                is_named |= child.get_reference().as_ref() == Some(it.variable);
                moves |= child.get_kind() == E::ReturnStmt && self.moves(&child, it);
            }
            EntityVisitResult::Recurse
        });
        if is_named {
            return Err(format!("its guard, '{}', is used inside", it.guard));
        }
        if moves {
            return Err("returns a variable of its function, which would be copied".to_owned());
        }
        if ["__func__", "__FUNCTION__", "__PRETTY_FUNCTION__"].iter().any(|word| has(word)) {
            return Err("names its function (__func__)".to_owned());
        }
        if has("co_await") || has("co_yield") || has("co_return") {
            return Err("is part of a coroutine".to_owned());
        }
        if has("va_start") {
            return Err("reads its function's own arguments (va_start)".to_owned());
        }
        for name in self.bindings(it.around.body.start..it.body.start) {
            if has(name) {
                return Err(format!("a lambda can't see '{name}', a structured binding"));
            }
        }
        if !is_balanced(text) {
            return Err("an #if begins or ends in the middle of it".to_owned());
        }
        let mut exits = Vec::new();
        for child in it.block.get_children() {
            if place(&child).is_some_and(|range| range.start >= it.body.start) {
                self.exits(&child, &mut exits, true, true)?;
            }
        }
        let leaves = |leave: Leave| exits.iter().any(|(it, ..)| *it == leave);
        let is_whole = place(it.block).is_some_and(|range| range == it.around.body);
        let result = &it.around.result;
        let skipped = self.skipped.iter().filter(|part| it.body.contains(&part.start));
        let mut skipped = skipped.flat_map(|part| tokens(&self.text[part.clone()]));
        let words = ["return", "break", "continue", "goto", it.guard];
        let unseen = skipped.any(|(_, token)| words.contains(&token));
        let last = it.block.get_children().last().map(Entity::get_kind);
        let returns = is_whole || last == Some(E::ReturnStmt);
        let is_loops_own = !leaves(Leave::Break) && !leaves(Leave::Continue);
        if unseen && !(is_whole && is_loops_own) {
            return Err("is left, or names its guard, in a part that #if leaves out".to_owned());
        }
        if is_loops_own && (is_whole && result.is_none() || !leaves(Leave::Return)) && !unseen {
            // `main` may end without a return.
            return if is_whole && result.is_some() && !it.around.is_main && last.is_some() {
                Ok((Form::Returns(trailing(result.as_deref())?), Vec::new()))
            } else {
                Ok((Form::Falls, Vec::new()))
            };
        }
        if is_loops_own && returns && !(it.around.is_main && last != Some(E::ReturnStmt)) {
            let type_ = if result.is_none() {
                Some("void".to_owned())
            } else {
                trailing(result.as_deref())?
            };
            return Ok((Form::Returns(type_), Vec::new()));
        }
        // From here on, the statements that leave it change.
        let mut plain = Vec::new();
        for (leave, range) in exits {
            let Some(range) = range else {
                return Err("is left inside of a macro".to_owned());
            };
            plain.push((leave, range));
        }
        let Some(result) =
            result.as_deref().filter(|_| plain.iter().any(|(leave, _)| *leave == Leave::Return))
        else {
            let is_bare =
                |(leave, range): &(Leave, Range<usize>)| self.text[range.clone()] == *leave.word();
            if !plain.iter().all(is_bare) {
                return Err("returns what a function returns that returns nothing".to_owned());
            }
            return Ok((Form::MayLeave, plain));
        };
        if !is_loops_own {
            return Err("returns a value, and leaves a loop".to_owned());
        }
        let unlike = ["auto", "decltype(", "optional", "&", "type-parameter"];
        let canonical = it.around.canonical.as_deref().unwrap_or(result);
        let is_plain = !unlike.iter().any(|it| result.contains(it) || canonical.contains(it));
        let braced = plain.iter().any(|(_, range)| {
            let text = self.text[range.clone()].trim_start_matches("return").trim_start();
            text.starts_with('{')
        });
        if !self.has_optional {
            return Err("returns a value from its middle, and std::optional is C++17's".to_owned());
        }
        let type_ = trailing(Some(result))?;
        match type_.filter(|_| is_plain && !braced) {
            Some(type_) => Ok((Form::MayReturn(type_), plain)),
            None => Err("returns a reference, or a value whose type isn't written".to_owned()),
        }
    }

    /// Does this statement return an object of the function, declared before the section? A lambda would copy it.
    fn moves(&self, it: &Entity<'_>, scope: &Scope<'_, '_>) -> bool {
        let mut all = Vec::new();
        it.visit_children(|child, _| {
            all.push(child);
            EntityVisitResult::Recurse
        });
        let text = place(it).and_then(|range| self.text.get(range)).unwrap_or_default();
        let named = text.trim_start_matches("return").trim();
        all.iter().filter(|it| it.get_kind() == E::DeclRefExpr).any(|it| {
            let Some(target) = it.get_reference() else { return false };
            let at = target.get_location().map(|at| at.get_file_location().offset as usize);
            let is_local = target.get_kind() == E::ParmDecl
                || target.get_kind() == E::VarDecl
                    && at.is_some_and(|at| scope.around.body.contains(&at))
                    && at.is_some_and(|at| at < scope.body.start);
            let is_before = at.is_some_and(|at| at < scope.body.start);
            let type_ = target.get_type().map(|it| it.get_canonical_type());
            let is_object = type_.is_some_and(|it| {
                use clang::TypeKind as T;
                let kinds = [
                    T::Pointer,
                    T::Enum,
                    T::Float,
                    T::Double,
                    T::LongDouble,
                    T::Bool,
                    T::LValueReference,
                    T::RValueReference,
                ];
                !it.is_integer() && !kinds.contains(&it.get_kind())
            });
            let is_all = target.get_name().as_deref() == Some(named.trim_matches(['(', ')']));
            is_local && is_before && is_object && is_all
        })
    }

    /// The names of structured bindings in this part.
    fn bindings(&self, part: Range<usize>) -> Vec<&str> {
        let all = tokens(self.text.get(part).unwrap_or(""));
        let (mut names, mut at) = (Vec::new(), 0);
        while at < all.len() {
            if all[at].1 == "auto" {
                let open =
                    (at + 1..all.len()).find(|&it| !["&", "&&", "const"].contains(&all[it].1));
                if let Some(open) = open.filter(|&it| all[it].1 == "[") {
                    let inside = all[open + 1..].iter().take_while(|(_, token)| *token != "]");
                    names.extend(inside.map(|(_, token)| *token).filter(|it| *it != ","));
                }
            }
            at += 1;
        }
        names
    }

    /// The statements that leave a section. `None`: hidden in a macro.
    fn exits(
        &self,
        it: &Entity<'_>,
        into: &mut Vec<(Leave, Option<Range<usize>>)>,
        breaks: bool,
        continues: bool,
    ) -> Result<(), String> {
        let kind = it.get_kind();
        let leave = match kind {
            E::LambdaExpr | E::ClassDecl | E::StructDecl => return Ok(()),
            E::GotoStmt | E::IndirectGotoStmt => return Err("leaves by goto".to_owned()),
            E::LabelStmt => return Err("has a label".to_owned()),
            E::ReturnStmt => Some(Leave::Return),
            E::BreakStmt if breaks => Some(Leave::Break),
            E::ContinueStmt if continues => Some(Leave::Continue),
            _ => None,
        };
        if let Some(leave) = leave {
            let range = place(it).filter(|range| {
                let text = self.text.get(range.clone());
                !is_in_macro(it) && text.is_some_and(|text| text.starts_with(leave.word()))
            });
            into.push((leave, range));
        }
        let is_loop = matches!(kind, E::ForStmt | E::ForRangeStmt | E::WhileStmt | E::DoStmt);
        let breaks = breaks && !is_loop && kind != E::SwitchStmt;
        for child in it.get_children() {
            self.exits(&child, into, breaks, continues && !is_loop)?;
        }
        Ok(())
    }
}

/// A guard's scope.
struct Scope<'a, 'tu> {
    block: &'a Entity<'tu>,
    around: &'a Around,
    body: Range<usize>,
    guard: &'a str,
    variable: &'a Entity<'tu>,
}

/// A lambda's trailing type; `None`: it has none.
fn trailing(result: Option<&str>) -> Result<Option<String>, String> {
    let Some(written) = result.filter(|it| *it != "auto") else { return Ok(None) };
    // Where the function stands, what is in such a namespace has its plain name.
    let written = written.replace("(anonymous namespace)::", "");
    if ["(anonymous", "(unnamed", "(lambda"].iter().any(|it| written.contains(it)) {
        return Err("returns a type that has no name".to_owned());
    }
    if written.ends_with("&&") {
        return Err("returns an rvalue reference".to_owned());
    }
    Ok(Some(written))
}
