//! Who is called in a part of a C++ file, by names with classes and namespaces.

use clang::{Entity, EntityKind as E, EntityVisitResult};
use std::collections::HashSet;
use std::ops::Range;

/// A function's name with its class, as far as namespaces that have one: the same for all overloads.
pub fn name_of(entity: &Entity<'_>) -> String {
    let mut name = entity.get_name().unwrap_or_default();
    let mut outer = entity.get_semantic_parent();
    while let Some(it) = outer.filter(|it| it.get_kind() != E::TranslationUnit) {
        if !it.is_inline_namespace()
            && it.get_kind() != E::LinkageSpec
            && let Some(of) = it.get_name()
        {
            name = format!("{of}::{name}");
        }
        outer = it.get_semantic_parent();
    }
    name
}

/// The functions that are called in this part of the file, and the thread-local variables that are named.
pub fn called(body: &Entity<'_>, part: Option<&Range<usize>>) -> Vec<String> {
    let mut names = HashSet::new();
    body.visit_children(|it, _| {
        let at = it.get_location().map(|at| at.get_expansion_location().offset as usize);
        if part.is_none_or(|part| at.is_some_and(|at| part.contains(&at))) {
            match it.get_kind() {
                E::CallExpr => {
                    let callee = it.get_reference().map(|callee| name_of(&callee));
                    names.extend(callee.or_else(|| it.get_name()).filter(|it| !it.is_empty()));
                }
                E::DeclRefExpr | E::MemberRefExpr => {
                    let target = it.get_reference().filter(|it| it.get_tls_kind().is_some());
                    names.extend(target.map(|it| crate::facts::of_thread(&name_of(&it))));
                }
                _ => {}
            }
        }
        EntityVisitResult::Recurse
    });
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_unstable();
    names
}

/// The last two parts: class and method.
pub fn short(name: &str) -> String {
    let parts: Vec<&str> = name.split("::").collect();
    parts[parts.len().saturating_sub(2)..].join("::")
}
