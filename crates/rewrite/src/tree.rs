//! A function as the rewriter sees it: statements with their places in the file, the variables that they name, and the functions that they
//! call. What is hidden in a macro has no place of its own.

use std::ops::Range;

/// What a statement is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// `{ ... }`.
    Block,
    /// `if`, with its condition's parts among the references; children: then, else.
    If,
    /// `while`, `do`, `for`. `true`: it may run its body again.
    Loop,
    /// `switch`.
    Switch,
    /// `case X:`, `default:`, and a label with its name; the child is the statement behind it.
    Label(Option<String>),
    /// `goto`, with the label's name; `None`: a computed one.
    Goto(Option<String>),
    /// `return`.
    Return,
    /// `break`.
    Break,
    /// `continue`.
    Continue,
    /// Declarations of variables, by their numbers.
    Declaration(Vec<usize>),
    /// An expression, or anything else.
    Other,
}

/// A variable of the function that is named.
#[derive(Clone, Debug)]
pub struct Mention {
    /// Where in the file; `None`: hidden in a macro.
    pub at: Option<usize>,
    /// Its number.
    pub variable: usize,
}

/// A call of a function by its name.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who is called.
    pub name: String,
    /// The arguments' text, if it is in the file.
    pub arguments: Option<Vec<String>>,
    /// Where its statement begins, in the file.
    pub at: usize,
    /// Is it all that the statement does?
    pub is_whole: bool,
}

/// A statement.
#[derive(Clone, Debug)]
pub struct Statement {
    /// What it is.
    pub kind: StatementKind,
    /// Where it is, with its semicolon.
    pub range: Range<usize>,
    /// The statements in it.
    pub children: Vec<Statement>,
    /// The variables that it names itself, outside of its children.
    pub mentions: Vec<Mention>,
    /// The functions that it calls itself.
    pub calls: Vec<Call>,
    /// It begins or ends inside of a macro.
    pub is_hidden: bool,
}

impl Statement {
    /// It, and all statements in it.
    pub fn all(&self) -> Vec<&Statement> {
        let mut found = vec![self];
        let mut next = 0;
        while next < found.len() {
            let children = &found[next].children;
            found.extend(children);
            next += 1;
        }
        found
    }
}

/// What a variable's type lets us do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A number or a pointer: it may be copied.
    Scalar,
    /// It is passed by its address.
    Whole,
    /// As `Whole`.
    Array,
    /// Its type has no name outside of the function, or its size is known only there.
    Local,
}

/// A variable of a function, or a parameter.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its type, as C writes it without the name.
    pub type_text: String,
    /// What its type lets us do.
    pub shape: Shape,
    /// Where its name is declared; `None`: in a macro.
    pub at: Option<usize>,
    /// Where it is declared, maybe by a macro.
    pub declared: usize,
    /// Its declaration is `static`.
    pub is_static: bool,
    /// Its declaration has an initial value.
    pub is_set: bool,
    /// It belongs to the thread.
    pub is_of_thread: bool,
    /// Nobody may take its address.
    pub is_register: bool,
}

/// A function with a body.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Where it is, with its result's type.
    pub range: Range<usize>,
    /// The parameters' numbers.
    pub parameters: Vec<usize>,
    /// Its variables.
    pub variables: Vec<Variable>,
    /// Types and enumerators that it declares, and where.
    pub local_names: Vec<(String, usize)>,
    /// Its body.
    pub body: Statement,
    /// Only its file sees it.
    pub is_static: bool,
    /// The type of what it returns.
    pub result: String,
}

/// A file of the program.
#[derive(Clone, Debug, Default)]
pub struct SourceFile {
    /// What is in it.
    pub text: String,
    /// Its functions, and those of headers without places: only `body`'s calls count there.
    pub functions: Vec<Function>,
    /// Macros by name: parameters (`None`: it takes none), and tokens.
    pub macros: std::collections::HashMap<String, Macro>,
    /// Where the file defines macros: also those that it defines anew, or undefines.
    pub definitions: Vec<(String, usize)>,
    /// Macros of the system's headers that write to something.
    pub writers: std::collections::HashSet<String>,
    /// Macros of the system's headers that drop what they are given.
    pub droppers: std::collections::HashSet<String>,
    /// Parts that this build leaves out.
    pub skipped: Vec<std::ops::Range<usize>>,
    /// It is C++.
    pub is_cpp: bool,
    /// C++: where its first declaration is.
    pub first: Option<usize>,
    /// Functions with an `#include` in their bodies: nobody looks for sections there.
    pub left_out: Vec<String>,
    /// Functions of C++, and those that are left out, and whom they call.
    pub callees: Vec<(String, Vec<String>)>,
    /// C++: scopes whose mutex a guard holds.
    pub scopes: Vec<crate::scope::GuardScope>,
    /// What clang says against it.
    pub errors: Vec<String>,
}

/// A macro.
#[derive(Clone, Debug)]
pub struct Macro {
    /// The names of its parameters; `None`: it isn't called.
    pub parameters: Option<Vec<String>>,
    /// What it stands for.
    pub tokens: Vec<String>,
}

impl Macro {
    /// Is none of what it is given in what it stands for?
    pub fn drops_all(&self) -> bool {
        let given = self.parameters.as_deref().unwrap_or_default();
        let is_given = |token: &String| given.contains(token) || token == "__VA_ARGS__";
        !given.is_empty() && !self.tokens.iter().any(is_given)
    }
}
