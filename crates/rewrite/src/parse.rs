//! Reads a file by libclang.

use crate::c::{closing, declared, tokens};
use crate::callees;
use crate::config::GuardType;
use crate::guards;
use crate::place::{is_in_macro, offset, place};
use crate::shapes::{any, is_one_call, leaves};
use crate::tree::{
    Call, Function, Macro, Mention, Shape, SourceFile, Statement, StatementKind, Variable,
};
use crate::writes;
use clang::diagnostic::Severity;
use clang::{Entity, EntityKind, Index, StorageClass, Type, TypeKind};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

/// Reads `path`, which the compiler gets with these flags.
///
/// # Errors
/// The file can't be read, or libclang gives up.
pub fn file(
    index: &Index<'_>,
    path: &Path,
    flags: &[String],
    guards: &[GuardType],
) -> Result<SourceFile, String> {
    let text = std::fs::read_to_string(path).map_err(|cause| cause.to_string())?;
    let extension = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
    let is_cpp = ["cc", "cpp", "cxx", "c++", "C", "CPP", "cp"].contains(&extension);
    // What gcc takes if nobody says; clang's own may be older.
    let standard = if is_cpp { "-std=gnu++17" } else { "-std=gnu17" };
    let flags: Vec<String> =
        [standard.to_owned()].into_iter().chain(flags.iter().cloned()).collect();
    let (mut parser, mut flags) = (index.parser(path), flags);
    let (unit, errors) = loop {
        let unit = parser
            .arguments(&flags)
            .detailed_preprocessing_record(true)
            .keep_going(true)
            .parse()
            .map_err(|cause| cause.to_string())?;
        let said = unit.get_diagnostics();
        let errors = said.iter().filter(|said| said.get_severity() >= Severity::Error);
        let errors: Vec<String> = errors.map(|said| said.to_string()).collect();
        // What gcc alone takes says nothing about the text.
        let is_unknown = |flag: &String| {
            errors.iter().any(|it| it.ends_with(&format!("unknown argument: '{flag}'")))
        };
        let before = flags.len();
        flags.retain(|flag| !is_unknown(flag));
        if flags.len() == before {
            break (unit, errors);
        }
        drop(unit);
        parser = index.parser(path);
    };
    let main = unit.get_file(path);
    let skipped = unit.get_skipped_ranges();
    let skipped = skipped.iter().filter_map(|range| {
        let [start, end] = [range.get_start(), range.get_end()].map(|at| at.get_file_location());
        (start.file == main).then_some(start.offset as usize..end.offset as usize)
    });
    let skipped = skipped.collect();
    let mut file = SourceFile { text, skipped, errors, is_cpp, ..SourceFile::default() };
    if is_cpp {
        guards::read(&unit.get_entity(), guards, &flags, &mut file);
    }
    for entity in unit.get_entity().get_children() {
        match entity.get_kind() {
            EntityKind::MacroDefinition => {
                let Some((name, macro_)) = macro_of(&entity) else { continue };
                if entity.is_in_system_header() {
                    if macro_.drops_all() {
                        file.droppers.insert(name);
                    } else if macro_.tokens.iter().any(|token| writes::writes(token)) {
                        file.writers.insert(name);
                    }
                } else {
                    if let Some(place) = place(&entity).filter(|_| entity.is_in_main_file()) {
                        file.definitions.push((name.clone(), place.start));
                    }
                    file.macros.insert(name, macro_);
                }
            }
            EntityKind::FunctionDecl if entity.is_definition() && entity.is_in_main_file() => {
                let reader = FunctionReader::new(&file.text);
                if let Some(function) = reader.function(&entity) {
                    file.functions.push(function);
                } else if let Some(name) = entity.get_name() {
                    let called = callees::called(&entity, None);
                    file.left_out.push(name.clone());
                    file.callees.push((name, called));
                }
            }
            _ => {}
        }
    }
    Ok(file)
}

fn macro_of(entity: &Entity<'_>) -> Option<(String, Macro)> {
    let name = entity.get_name()?;
    let mut tokens: Vec<String> =
        entity.get_range()?.tokenize().iter().map(|token| token.get_spelling()).collect();
    tokens.remove(0);
    let parameters = entity.is_function_like_macro().then(|| {
        let end = tokens.iter().position(|token| token == ")").unwrap_or(0);
        let head: Vec<String> = tokens.drain(..=end).collect();
        head.into_iter().filter(|token| !"(),".contains(token.as_str())).collect()
    });
    Some((name, Macro { parameters, tokens }))
}

/// Reads one function.
struct FunctionReader<'a> {
    text: &'a str,
    variables: Vec<Variable>,
    numbers: HashMap<(usize, String), usize>,
    local_names: Vec<(String, usize)>,
}

impl<'a> FunctionReader<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, variables: Vec::new(), numbers: HashMap::new(), local_names: Vec::new() }
    }

    fn function(mut self, entity: &Entity<'_>) -> Option<Function> {
        let main = entity.get_location()?.get_expansion_location().file;
        let is_elsewhere = |it: &Entity<'_>| {
            it.get_location().is_some_and(|at| at.get_expansion_location().file != main)
        };
        let children = entity.get_children();
        let mut parameters = Vec::new();
        for child in children.iter().filter(|child| child.get_kind() == EntityKind::ParmDecl) {
            parameters.push(self.declare(child)?);
        }
        let body = children.iter().find(|child| child.get_kind() == EntityKind::CompoundStmt)?;
        if any(body, &is_elsewhere) {
            return None; // an #include in its body
        }
        let body = self.statement(body)?;
        Some(Function {
            name: entity.get_name()?,
            range: place(entity)?,
            parameters,
            body,
            is_static: entity.get_storage_class() == Some(StorageClass::Static),
            result: entity.get_result_type()?.get_display_name(),
            variables: self.variables,
            local_names: self.local_names,
        })
    }

    fn declare(&mut self, entity: &Entity<'_>) -> Option<usize> {
        let name = entity.get_name().unwrap_or_default();
        let at = offset(&entity.get_location()?);
        let is_spelled = self.text.get(at..).is_some_and(|rest| rest.starts_with(&name));
        let type_ = entity.get_type()?;
        let has_value = |child: &Entity<'_>| child.is_expression() || child.is_unexposed();
        let is_set = match type_.get_kind() {
            // Its length is an expression, too.
            TypeKind::VariableArray => false,
            TypeKind::ConstantArray => {
                place(entity).is_some_and(|range| self.text[range].contains('='))
            }
            _ => entity.get_children().iter().any(has_value),
        };
        // A parameter that is written as an array is a pointer.
        let element =
            type_.get_element_type().filter(|_| entity.get_kind() == EntityKind::ParmDecl);
        let (type_text, shape) = match element {
            Some(element) => (declared(&element.get_display_name(), "*"), Shape::Scalar),
            None => (type_.get_display_name(), shape(&type_)),
        };
        let number = self.variables.len();
        self.numbers.insert((at, name.clone()), number);
        self.variables.push(Variable {
            name,
            type_text,
            shape,
            at: is_spelled.then_some(at),
            declared: at,
            is_static: entity.get_storage_class() == Some(StorageClass::Static),
            is_set,
            is_of_thread: entity.get_tls_kind().is_some(),
            is_register: entity.get_storage_class() == Some(StorageClass::Register),
        });
        Some(number)
    }

    /// The names of a type, and of what an enumeration has.
    fn declare_names(&mut self, entity: &Entity<'_>) {
        use EntityKind as E;
        let is_type = matches!(
            entity.get_kind(),
            E::StructDecl
                | E::UnionDecl
                | E::EnumDecl
                | E::TypedefDecl
                | E::EnumConstantDecl
                | E::FunctionDecl
        );
        if let (true, Some(name), Some(at)) = (is_type, entity.get_name(), entity.get_location()) {
            self.local_names.push((name, offset(&at)));
        }
        if entity.get_kind() == E::EnumDecl {
            entity.get_children().iter().for_each(|it| self.declare_names(it));
        }
    }

    fn statement(&mut self, entity: &Entity<'_>) -> Option<Statement> {
        use EntityKind as E;
        let mut range = place(entity)?;
        let is_hidden = is_in_macro(entity);
        let kind = match entity.get_kind() {
            E::CompoundStmt => StatementKind::Block,
            E::IfStmt => StatementKind::If,
            E::WhileStmt | E::DoStmt | E::ForStmt => StatementKind::Loop,
            E::SwitchStmt => StatementKind::Switch,
            E::CaseStmt | E::DefaultStmt => StatementKind::Label(None),
            E::LabelStmt => StatementKind::Label(Some(entity.get_name().unwrap_or_default())),
            E::GotoStmt => {
                let label = entity.get_children().first().and_then(Entity::get_name);
                StatementKind::Goto(Some(label.unwrap_or_default()))
            }
            E::IndirectGotoStmt => StatementKind::Goto(None),
            E::ReturnStmt => StatementKind::Return,
            E::BreakStmt => StatementKind::Break,
            E::ContinueStmt => StatementKind::Continue,
            E::DeclStmt => StatementKind::Declaration(Vec::new()),
            _ => StatementKind::Other,
        };
        if !matches!(
            kind,
            StatementKind::Block
                | StatementKind::If
                | StatementKind::Loop
                | StatementKind::Switch
                | StatementKind::Label(_)
        ) {
            range.end = self.semicolon(range.end);
        }
        if let Some(range) =
            self.macro_call(entity, &range).filter(|_| !leaves(entity) && is_one_call(entity))
        {
            let mut new = Statement {
                kind: StatementKind::Other,
                range,
                children: Vec::new(),
                mentions: Vec::new(),
                calls: Vec::new(),
                is_hidden: true,
            };
            self.flat(entity, &mut new);
            return Some(new);
        }
        let mut new = Statement {
            kind,
            range,
            children: Vec::new(),
            mentions: Vec::new(),
            calls: Vec::new(),
            is_hidden,
        };
        if let StatementKind::Declaration(_) = new.kind {
            let mut declared = Vec::new();
            for child in entity.get_children() {
                if child.get_kind() == E::VarDecl {
                    declared.push(self.declare(&child)?);
                } else {
                    self.declare_names(&child);
                }
                self.expressions(&child, &mut new);
            }
            new.kind = StatementKind::Declaration(declared);
        } else if new.kind == StatementKind::Other && entity.is_statement() {
            self.expressions(entity, &mut new);
        } else if new.kind == StatementKind::Other {
            self.expression(entity, &mut new, true);
        } else {
            for child in entity.get_children() {
                let is_statement = child.is_statement() || new.kind == StatementKind::Block;
                if is_statement || self.is_body(&new, &child, entity) {
                    new.children.extend(self.statement(&child));
                } else {
                    self.expression(&child, &mut new, false);
                }
            }
        }
        if matches!(
            new.kind,
            StatementKind::If
                | StatementKind::Loop
                | StatementKind::Switch
                | StatementKind::Label(_)
        ) && let Some(last) = new.children.last()
        {
            new.range.end = new.range.end.max(last.range.end);
        }
        if new.kind == StatementKind::Loop && self.text[new.range.clone()].starts_with("do") {
            new.range.end = self.semicolon(new.range.end);
        }
        Some(new)
    }

    /// The call of a macro that makes a whole statement of several: with its semicolon.
    fn macro_call(&self, entity: &Entity<'_>, range: &Range<usize>) -> Option<Range<usize>> {
        let text = self.text.get(range.clone())?;
        let own = match entity.get_kind() {
            EntityKind::DoStmt => "do",
            EntityKind::CompoundStmt => "{",
            EntityKind::IfStmt => "if",
            _ => return None,
        };
        let is_word = |it: char| it.is_alphanumeric() || it == '_';
        let name = &text[..text.find(|it| !is_word(it)).unwrap_or(0)];
        if name.is_empty() || name == own {
            return None;
        }
        let all = tokens(text);
        let is_call = all.get(1)?.1 == "(" && closing(&all, 1)? == all.len() - 1;
        is_call.then(|| range.start..self.semicolon(range.end))
    }

    /// All that is in a statement, as its own.
    fn flat(&mut self, entity: &Entity<'_>, into: &mut Statement) {
        match entity.get_kind() {
            EntityKind::DeclRefExpr => self.mention(entity, into),
            EntityKind::CallExpr => self.call(entity, into, false),
            EntityKind::VarDecl => {
                let _ = self.declare(entity);
            }
            _ => {}
        }
        for child in entity.get_children() {
            self.flat(&child, into);
        }
    }

    /// An expression may be a body (`if (x) f();`), or a condition.
    fn is_body(&self, parent: &Statement, child: &Entity<'_>, entity: &Entity<'_>) -> bool {
        let children = entity.get_children();
        let is_last = children.last() == Some(child);
        match parent.kind {
            StatementKind::If => children.first() != Some(child),
            StatementKind::Loop if self.text[parent.range.clone()].starts_with("do") => {
                children.first() == Some(child)
            }
            StatementKind::Loop | StatementKind::Switch | StatementKind::Label(_) => is_last,
            _ => false,
        }
    }

    /// Behind the semicolon that follows, if one does.
    fn semicolon(&self, end: usize) -> usize {
        let rest = self.text.get(end..).unwrap_or_default();
        let blank = rest.len() - rest.trim_start().len();
        if rest[blank..].starts_with(';') { end + blank + 1 } else { end }
    }

    fn expressions(&mut self, entity: &Entity<'_>, into: &mut Statement) {
        for child in entity.get_children() {
            self.expression(&child, into, false);
        }
    }

    fn expression(&mut self, entity: &Entity<'_>, into: &mut Statement, is_whole: bool) {
        if entity.is_statement() && entity.get_kind() != EntityKind::StmtExpr {
            if let Some(statement) = self.statement(entity) {
                into.children.push(statement);
            }
            return;
        }
        match entity.get_kind() {
            EntityKind::DeclRefExpr => self.mention(entity, into),
            EntityKind::CallExpr => self.call(entity, into, is_whole),
            EntityKind::VarDecl => {
                let _ = self.declare(entity);
            }
            // `(void)call()`
            EntityKind::CStyleCastExpr | EntityKind::ParenExpr if is_whole => {
                for child in entity.get_children() {
                    self.expression(&child, into, true);
                }
                return;
            }
            _ => {}
        }
        self.expressions(entity, into);
    }

    fn mention(&mut self, entity: &Entity<'_>, into: &mut Statement) {
        let Some(target) = entity.get_reference() else { return };
        let Some(name) = target.get_name() else { return };
        let Some(declared) = target.get_location() else { return };
        let key = (offset(&declared), name);
        let is_of_thread = target.get_tls_kind().is_some();
        let known = self.numbers.get(&key).copied();
        let known = known.or_else(|| is_of_thread.then(|| self.declare(&target))?);
        let Some(variable) = known else { return };
        let at = entity.get_location().map(|at| offset(&at));
        let name = &key.1;
        let at = at.filter(|&at| self.text.get(at..).is_some_and(|rest| rest.starts_with(name)));
        into.mentions.push(Mention { at, variable });
    }

    fn call(&self, entity: &Entity<'_>, into: &mut Statement, is_whole: bool) {
        let name = entity.get_reference().and_then(|callee| callee.get_name());
        let name = name.or_else(|| entity.get_name()).unwrap_or_default();
        let Some(range) = place(entity) else { return };
        let spelled = self.text.get(range.start..).is_some_and(|rest| rest.starts_with(&name));
        let arguments = entity.get_arguments().filter(|_| spelled && !name.is_empty());
        let arguments = arguments.map(|all| {
            all.iter()
                .filter_map(place)
                .map(|range| self.text.get(range).unwrap_or_default().to_owned())
                .collect()
        });
        into.calls.push(Call { name, arguments, at: range.start, is_whole });
    }
}

fn shape(type_: &Type<'_>) -> Shape {
    let whole = type_.get_display_name();
    let canonical = type_.get_canonical_type();
    if whole.contains("(unnamed") || whole.contains("(anonymous") {
        return Shape::Local;
    }
    let is_local = |type_: &Type<'_>| {
        let (mut type_, mut next) = (*type_, Some(*type_));
        while let Some(it) = next {
            type_ = it;
            next = it.get_pointee_type().or_else(|| it.get_element_type());
        }
        let declared = type_.get_declaration().and_then(|it| it.get_semantic_parent());
        declared.is_some_and(|it| it.get_kind() == EntityKind::FunctionDecl)
    };
    if is_local(type_) || is_local(&canonical) {
        return Shape::Local;
    }
    match canonical.get_kind() {
        TypeKind::VariableArray | TypeKind::DependentSizedArray => Shape::Local,
        TypeKind::ConstantArray | TypeKind::IncompleteArray => Shape::Array,
        TypeKind::Pointer | TypeKind::Enum | TypeKind::Bool => Shape::Scalar,
        TypeKind::Float | TypeKind::Double | TypeKind::LongDouble => Shape::Scalar,
        _ if canonical.is_integer() => Shape::Scalar,
        _ => Shape::Whole,
    }
}
