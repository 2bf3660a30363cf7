//! Which functions lock and unlock, and which mutex a call means.
//!
//! A *wrapper* is a function whose whole body locks or unlocks one mutex, or one that the configuration names.

use crate::c::{declared, tokens};
use crate::tree::{Function, Macro, SourceFile, Statement, StatementKind};
use std::collections::HashMap;

/// What a statement does to a mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockOp {
    /// Locks it, and waits for it if need be.
    Lock,
    /// Unlocks it.
    Unlock,
    /// Locks it, if nobody holds it.
    Try,
}

/// A function that locks or unlocks.
#[derive(Clone, Debug)]
pub struct Wrapper {
    /// What it does.
    pub what: LockOp,
    /// The mutex, as an expression of the type `pthread_mutex_t *`, with the parameters' names in it.
    pub mutex: String,
    /// Its parameters.
    pub parameters: Vec<String>,
    /// `None`: everybody may write the mutex. Else what gives it to others: a function in the wrapper's file.
    pub accessor: Option<Accessor>,
}

/// A function that gives a wrapper's mutex.
#[derive(Clone, Debug)]
pub struct Accessor {
    /// The number of the wrapper's file.
    pub file: usize,
    /// Where the wrapper ends.
    pub behind: usize,
    /// The function's declaration, without a semicolon.
    pub head: String,
    /// Other files define a function of the wrapper's name, too: programs that link those have no accessor.
    pub is_weak: bool,
}

/// The name of the function that gives a wrapper's mutex.
pub fn accessor(wrapper: &str) -> String {
    format!("lw_mutex_of_{wrapper}")
}

/// All of them, by name.
#[derive(Clone, Debug)]
pub struct LockNames(pub HashMap<String, Wrapper>);

impl Default for LockNames {
    /// Those of pthreads.
    fn default() -> Self {
        let all = [
            ("pthread_mutex_lock", LockOp::Lock),
            ("pthread_mutex_unlock", LockOp::Unlock),
            ("pthread_mutex_trylock", LockOp::Try),
        ];
        let wrapper = |what| Wrapper {
            what,
            mutex: "mutex".to_owned(),
            parameters: vec!["mutex".to_owned()],
            accessor: None,
        };
        Self(all.map(|(name, what)| (name.to_owned(), wrapper(what))).into_iter().collect())
    }
}

/// What a call does, and to which mutex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// What it does.
    pub what: LockOp,
    /// The mutex, in one spelling.
    pub mutex: String,
    /// The wrapper that is called, and its arguments, if its file alone can write the mutex.
    pub through: Option<(String, Vec<String>)>,
}

/// Joins tokens to text.
fn joined<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    let is_word = |it: char| it.is_alphanumeric() || it == '_';
    for token in all {
        if text.ends_with(is_word) && token.starts_with(is_word) {
            text.push(' ');
        }
        text.push_str(token);
    }
    text
}

/// The same text in one spelling.
pub fn normal(text: &str) -> String {
    joined(tokens(text).into_iter().map(|(_, token)| token))
}

/// An expression without parentheses around all of it.
pub fn bare(text: &str) -> &str {
    let Some(inner) = text.strip_prefix('(').and_then(|it| it.strip_suffix(')')) else {
        return text;
    };
    let mut depth = 1;
    let is_closed = inner.chars().any(|it| {
        depth += i32::from(it == '(') - i32::from(it == ')');
        depth == 0
    });
    if is_closed { text } else { bare(inner) }
}

/// Puts arguments for parameters.
fn substituted(text: &str, parameters: &[String], arguments: &[String]) -> String {
    let all = tokens(text);
    let replaced = all.iter().enumerate().map(|(number, (_, token))| {
        let is_member = number > 0 && ["->", "."].contains(&all[number - 1].1);
        let place = parameters.iter().position(|name| name == token && !is_member);
        match place.and_then(|place| arguments.get(place)) {
            Some(argument) if all.len() > 1 && tokens(argument).len() > 1 => {
                format!("({argument})")
            }
            Some(argument) => argument.clone(),
            None => (*token).to_owned(),
        }
    });
    let replaced: Vec<String> = replaced.collect();
    joined(replaced.iter().map(String::as_str))
}

/// The arguments between these parentheses: `all[0]` is the opening one. Also how many tokens that are.
fn arguments(all: &[String]) -> Option<(Vec<String>, usize)> {
    let (mut depth, mut found, mut now) = (0, Vec::new(), Vec::new());
    for (number, token) in all.iter().enumerate() {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 && number > 0 {
            if !now.is_empty() || !found.is_empty() {
                found.push(joined(now.into_iter()));
            }
            return Some((found, number + 1));
        }
        match token.as_str() {
            "," if depth == 1 => found.push(joined(std::mem::take(&mut now).into_iter())),
            _ if number > 0 => now.push(token.as_str()),
            _ => {}
        }
    }
    None
}

/// Text as tokens, with macros put in, a few levels deep.
fn expanded(text: &str, macros: &HashMap<String, Macro>, depth: u32) -> Vec<String> {
    let all: Vec<String> = tokens(text).into_iter().map(|(_, token)| token.to_owned()).collect();
    if depth == 0 {
        return all;
    }
    let (mut result, mut at) = (Vec::new(), 0);
    while at < all.len() {
        let found = macros.get(&all[at]);
        let called = all.get(at + 1).is_some_and(|next| next == "(");
        match found {
            Some(Macro { parameters: None, tokens }) => {
                result.extend(expanded(
                    &joined(tokens.iter().map(String::as_str)),
                    macros,
                    depth - 1,
                ));
                at += 1;
            }
            Some(Macro { parameters: Some(parameters), tokens }) if called => {
                let Some((given, length)) = arguments(&all[at + 1..]) else { return all };
                let body = joined(tokens.iter().map(String::as_str));
                let body = substituted(&body, parameters, &given);
                result.extend(expanded(&body, macros, depth - 1));
                at += 1 + length;
            }
            _ => {
                result.push(all[at].clone());
                at += 1;
            }
        }
    }
    result
}

/// Macros are put in so many levels deep.
const DEPTH: u32 = 4;

impl LockNames {
    /// What this call does: its name, and its arguments if they are known.
    fn meant(&self, name: &str, given: &[String]) -> Option<Act> {
        let wrapper = self.0.get(name)?;
        let mutex = normal(&substituted(&wrapper.mutex, &wrapper.parameters, given));
        let through = wrapper.accessor.as_ref().map(|_| (name.to_owned(), given.to_vec()));
        Some(Act { what: wrapper.what, mutex, through })
    }

    /// What the statement does, if that is all it does.
    pub fn act(&self, file: &SourceFile, statement: &Statement) -> Option<Act> {
        if statement.kind != StatementKind::Other || !statement.children.is_empty() {
            return None;
        }
        let text = file.text.get(statement.range.clone())?;
        let mut known = statement.calls.iter().filter(|call| self.0.contains_key(&call.name));
        let Some(call) = statement.calls.iter().find(|call| call.is_whole) else {
            // A macro of several statements.
            let name = tokens(text).first()?.1;
            let is_macro = statement.is_hidden && file.macros.contains_key(name);
            if is_macro && self.0.contains_key(name) {
                let all: Vec<_> = tokens(text).into_iter().map(|(_, it)| it.to_owned()).collect();
                return self.meant(name, &arguments(&all[1..])?.0);
            }
            let call = known.next().filter(|_| is_macro && known.next().is_none())?;
            return self.expanded_call(file, text, &call.name);
        };
        self.0.get(&call.name)?;
        if let Some(given) = &call.arguments {
            return self.meant(&call.name, given);
        }
        self.expanded_call(file, text, &call.name)
    }

    /// What a call does that is hidden in a macro.
    fn expanded_call(&self, file: &SourceFile, text: &str, name: &str) -> Option<Act> {
        let all = expanded(text, &file.macros, DEPTH);
        let at = all.iter().position(|token| token == name)?;
        let (given, _) = arguments(&all[at + 1..])?;
        self.meant(name, &given)
    }

    /// All that a statement's own calls do.
    pub fn acts(&self, file: &SourceFile, statement: &Statement) -> Vec<(LockOp, Option<String>)> {
        if let Some(act) = self.act(file, statement) {
            return vec![(act.what, Some(act.mutex))];
        }
        let calls = statement.calls.iter();
        let acts = calls.filter_map(|call| {
            let wrapper = self.0.get(&call.name)?;
            let given = call.arguments.as_deref().and_then(|given| self.meant(&call.name, given));
            Some((wrapper.what, given.map(|act| act.mutex)))
        });
        acts.collect()
    }

    /// Finds the functions whose whole body locks, or unlocks, a mutex.
    pub fn find_wrappers(&mut self, files: &[SourceFile]) {
        loop {
            let mut found = Vec::new();
            for (number, file) in files.iter().enumerate() {
                for function in &file.functions {
                    let [only] = function.body.children.as_slice() else { continue };
                    let Some(act) = self.act(file, only) else { continue };
                    if act.what == LockOp::Try || self.0.contains_key(&function.name) {
                        continue;
                    }
                    let all = function.parameters.iter().map(|&number| &function.variables[number]);
                    let parameters = all.clone().map(|it| it.name.clone()).collect();
                    let typed: Vec<String> =
                        all.map(|it| declared(&it.type_text, &it.name)).collect();
                    let typed = if typed.is_empty() { "void".to_owned() } else { typed.join(", ") };
                    let is_static = if function.is_static { "static " } else { "" };
                    let name = accessor(&function.name);
                    let head = format!("{is_static}pthread_mutex_t *{name}({typed})");
                    let is_same = |it: &Function| it.name == function.name && !it.is_static;
                    let others = files.iter().filter(|it| it.functions.iter().any(is_same));
                    let is_weak = !function.is_static && others.count() > 1;
                    let accessor =
                        Some(Accessor { file: number, behind: function.range.end, head, is_weak });
                    let wrapper =
                        Wrapper { what: act.what, mutex: act.mutex, parameters, accessor };
                    found.push((function.name.clone(), wrapper));
                }
            }
            if found.is_empty() {
                return;
            }
            self.0.extend(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macros_are_put_in() {
        let lock = Macro {
            parameters: Some(vec!["c".to_owned()]),
            tokens: ["pthread_mutex_lock", "(", "&", "c", "->", "stats", ".", "mutex", ")"]
                .map(str::to_owned)
                .to_vec(),
        };
        let macros = HashMap::from([("STATS_LOCK".to_owned(), lock)]);
        let all = expanded("STATS_LOCK(all[i, 2].c);", &macros, DEPTH);
        assert_eq!(
            joined(all.iter().map(String::as_str)),
            "pthread_mutex_lock(&(all[i,2].c)->stats.mutex);"
        );
        let (given, _) = arguments(&all[1..]).unwrap();
        assert_eq!(given, ["&(all[i,2].c)->stats.mutex"]);
    }
}
