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

use crate::c::{open_ifs, tokens};
use crate::callees::{called, name_of, short};
use crate::config::GuardType;
use crate::lambda::trailing;
use crate::place::{is_in_macro, place};
use crate::scope::{Exits, Form, GuardScope, Lambda, Leave};
use crate::tree::SourceFile;
use clang::{Entity, EntityKind as E, EntityVisitResult, Type};
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

/// The statements that leave a section. `None`: hidden in a macro.
type FoundExits = Vec<(Leave, Option<Range<usize>>)>;

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
            let type_ = guard_type(&type_);
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
    fn check(&self, it: &Scope<'_, '_>) -> Result<(Form, Exits), String> {
        self.objection(it).map_or(Ok(()), Err)?;
        let mut exits = Vec::new();
        for child in it.block.get_children() {
            if place(&child).is_some_and(|range| range.start >= it.body.start) {
                self.exits(&child, &mut exits, true, true)?;
            }
        }
        self.form(it, exits)
    }

    /// Why it can't, whoever leaves it.
    fn objection(&self, it: &Scope<'_, '_>) -> Option<String> {
        let text = &self.text[it.body.clone()];
        let words = tokens(text);
        let has = |word: &str| words.iter().any(|(_, token)| *token == word);
        if text.trim().is_empty() {
            return Some("empty: it waits for others, and does nothing".to_owned());
        }
        if has(it.guard) && ["wait", "wait_for", "wait_until"].iter().any(|word| has(word)) {
            return Some("waits for a condition variable".to_owned());
        }
        let (mut uses_own, mut other, mut moves) = (has(it.guard), None, false);
        it.block.visit_children(|child, _| {
            let at = child.get_location().map(|at| at.get_expansion_location().offset as usize);
            if at.is_some_and(|at| at >= it.body.start) {
                let target = child.get_reference();
                uses_own |= target.as_ref() == Some(it.variable);
                // Whoever runs the section would let go of a mutex that another thread holds.
                let earlier = target.filter(|target| self.is_guard(target) && it.is_before(target));
                other = other.take().or(earlier.and_then(|guard| guard.get_name()));
                moves |= child.get_kind() == E::ReturnStmt && self.moves(&child, it);
            }
            EntityVisitResult::Recurse
        });
        if uses_own {
            return Some(format!("its guard, '{}', is used inside", it.guard));
        }
        if let Some(other) = other {
            return Some(format!("uses another guard, '{other}'"));
        }
        if moves {
            return Some("returns a variable of its function, which would be copied".to_owned());
        }
        if ["__func__", "__FUNCTION__", "__PRETTY_FUNCTION__"].iter().any(|word| has(word)) {
            return Some("names its function (__func__)".to_owned());
        }
        if has("co_await") || has("co_yield") || has("co_return") {
            return Some("is part of a coroutine".to_owned());
        }
        if has("va_start") {
            return Some("reads its function's own arguments (va_start)".to_owned());
        }
        let mut bindings = self.bindings(it.around.body.start..it.body.start).into_iter();
        if let Some(name) = bindings.find(|name| has(name)) {
            return Some(format!("a lambda can't see '{name}', a structured binding"));
        }
        let is_whole = open_ifs(text).is_some_and(|open| open.is_empty());
        (!is_whole).then(|| "an #if begins or ends in the middle of it".to_owned())
    }

    /// How it goes on behind the section, by who leaves it.
    fn form(&self, it: &Scope<'_, '_>, exits: FoundExits) -> Result<(Form, Exits), String> {
        let leaves = |leave: Leave| exits.iter().any(|(it, ..)| *it == leave);
        let is_loops_own = !leaves(Leave::Break) && !leaves(Leave::Continue);
        let is_whole = place(it.block).is_some_and(|range| range == it.around.body);
        let last = it.block.get_children().last().map(Entity::get_kind);
        // `main` may end without a return.
        let returns = last == Some(E::ReturnStmt) || is_whole && !it.around.is_main;
        let result = it.around.result.as_deref();
        let skipped = self.skipped.iter().filter(|part| it.body.contains(&part.start));
        let mut skipped = skipped.flat_map(|part| tokens(&self.text[part.clone()]));
        let words = ["return", "break", "continue", "goto", it.guard];
        if skipped.any(|(_, token)| words.contains(&token)) && !(is_whole && is_loops_own) {
            return Err("is left, or names its guard, in a part that #if leaves out".to_owned());
        }
        if is_loops_own {
            match result {
                None if is_whole || !leaves(Leave::Return) => return Ok((Form::Falls, Vec::new())),
                None if returns => return Ok((Form::Ends, Vec::new())),
                Some(_) if returns => return Ok((Form::Returns(trailing(result)?), Vec::new())),
                Some(_) if !leaves(Leave::Return) => return Ok((Form::Falls, Vec::new())),
                _ => {}
            }
        }
        // From here on, the statements that leave it change.
        let mut plain = Vec::new();
        for (leave, range) in exits {
            plain.push((leave, range.ok_or("is left inside of a macro")?));
        }
        let is_value = plain.iter().any(|(leave, _)| *leave == Leave::Return);
        let Some(result) = result.filter(|_| is_value) else {
            let mut texts = plain.iter().map(|(leave, range)| (leave, &self.text[range.clone()]));
            if !texts.all(|(leave, text)| text == leave.word()) {
                return Err("returns what a function returns that returns nothing".to_owned());
            }
            return Ok((Form::MayLeave, plain));
        };
        if !is_loops_own {
            return Err("returns a value, and leaves a loop".to_owned());
        }
        if !self.has_optional {
            return Err("returns a value from its middle, and std::optional is C++17's".to_owned());
        }
        let unlike = ["auto", "decltype(", "optional", "&", "type-parameter"];
        let canonical = it.around.canonical.as_deref().unwrap_or(result);
        let is_plain = !unlike.iter().any(|it| result.contains(it) || canonical.contains(it));
        let is_braced = plain.iter().any(|(_, range)| {
            let text = self.text[range.clone()].trim_start_matches("return").trim_start();
            text.starts_with('{')
        });
        match trailing(Some(result))?.filter(|_| is_plain && !is_braced) {
            Some(type_) => Ok((Form::MayReturn(type_), plain)),
            None => Err("returns a reference, or a value whose type isn't written".to_owned()),
        }
    }

    /// Is it a variable that holds a mutex for as long as it lives, or may?
    fn is_guard(&self, it: &Entity<'_>) -> bool {
        let Some(type_) =
            it.get_type().filter(|_| it.get_kind() == E::VarDecl || it.get_kind() == E::ParmDecl)
        else {
            return false;
        };
        let type_ = guard_type(&type_);
        GUARDS.iter().any(|it| type_.starts_with(it))
            || self.guards.iter().any(|it| it.name == type_)
    }

    /// Does this statement return an object of the function, declared before the section? A lambda would copy it.
    fn moves(&self, it: &Entity<'_>, scope: &Scope<'_, '_>) -> bool {
        use clang::TypeKind as T;
        let text = place(it).and_then(|range| self.text.get(range)).unwrap_or_default();
        let named = text.trim_start_matches("return").trim().trim_matches(['(', ')']);
        let scalars = [T::Pointer, T::Enum, T::Float, T::Double, T::LongDouble, T::Bool];
        let references = [T::LValueReference, T::RValueReference];
        let mut moves = false;
        it.visit_children(|child, _| {
            let target = child.get_reference().filter(|_| child.get_kind() == E::DeclRefExpr);
            let target = target.filter(|it| it.get_name().as_deref() == Some(named));
            let type_ = target.filter(|it| scope.is_before(it)).and_then(|it| it.get_type());
            moves |= type_.is_some_and(|type_| {
                let type_ = type_.get_canonical_type();
                let kind = type_.get_kind();
                !type_.is_integer() && !scalars.contains(&kind) && !references.contains(&kind)
            });
            EntityVisitResult::Recurse
        });
        moves
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

    fn exits(
        &self,
        it: &Entity<'_>,
        into: &mut FoundExits,
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

impl Scope<'_, '_> {
    /// Is it a variable or parameter of the function, declared before the section?
    fn is_before(&self, it: &Entity<'_>) -> bool {
        let at = it.get_location().map(|at| at.get_file_location().offset as usize);
        at.is_some_and(|at| match it.get_kind() {
            E::ParmDecl => at < self.body.start,
            E::VarDecl => (self.around.body.start..self.body.start).contains(&at),
            _ => false,
        })
    }
}

/// The type of a guard, or of what refers to one, as the configuration and [`GUARDS`] have it.
fn guard_type(type_: &Type<'_>) -> String {
    let name = type_.get_canonical_type().get_display_name();
    let name = name.trim_start_matches("const ").trim_end_matches([' ', '&']);
    name.replace("(anonymous namespace)::", "")
}
