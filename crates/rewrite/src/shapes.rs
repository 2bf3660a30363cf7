//! What a statement that a macro makes has in it.

use clang::{Entity, EntityKind};

/// Is it so of anything in it?
pub fn any(entity: &Entity<'_>, is: &dyn Fn(&Entity<'_>) -> bool) -> bool {
    entity.get_children().iter().any(|child| is(child) || any(child, is))
}

/// Does a macro's statement call one function, whatever else it may do if that has failed?
pub fn is_one_call(entity: &Entity<'_>) -> bool {
    use EntityKind as E;
    fn parts<'a>(entity: &Entity<'a>, into: &mut Vec<Entity<'a>>) {
        for child in entity.get_children() {
            match child.get_kind() {
                E::CompoundStmt => parts(&child, into),
                _ => into.push(child),
            }
        }
    }
    let has_call = |it: &Entity<'_>| {
        let is_call = |it: &Entity<'_>| it.get_kind() == E::CallExpr;
        is_call(it) || any(it, &is_call)
    };
    let mut all = Vec::new();
    match entity.get_kind() {
        E::IfStmt => all.push(*entity),
        _ => parts(entity, &mut all),
    }
    if entity.get_kind() == E::DoStmt
        && !all.last().is_some_and(|it| it.get_kind() == E::IntegerLiteral)
    {
        return false;
    }
    let mut calls = 0;
    let is_plain = all.iter().all(|it| match it.get_kind() {
        E::NullStmt | E::IntegerLiteral => true,
        E::IfStmt => {
            let inner = it.get_children();
            let condition = inner.first().is_some_and(has_call);
            calls += usize::from(condition);
            condition || calls > 0
        }
        E::DeclStmt if !has_call(it) => {
            it.get_children().iter().all(|it| it.get_children().is_empty())
        }
        _ => {
            calls += 1;
            has_call(it)
        }
    });
    is_plain && calls == 1
}

/// Is there a statement in it that may leave it?
pub fn leaves(entity: &Entity<'_>) -> bool {
    use EntityKind as E;
    let leaves = matches!(
        entity.get_kind(),
        E::ReturnStmt
            | E::GotoStmt
            | E::IndirectGotoStmt
            | E::BreakStmt
            | E::ContinueStmt
            | E::LabelStmt
    );
    leaves || entity.get_children().iter().any(self::leaves)
}
