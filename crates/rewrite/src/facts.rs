//! What functions do that a section must not, directly or through those that they call.

use crate::tree::{Function, SourceFile, StatementKind};
use crate::writes;
use std::collections::{HashMap, HashSet, VecDeque};

/// Calls that tie a section to its own thread, or stop the thread that runs it.
const BAD: &[(&str, &str)] = &[
    ("std::condition_variable::wait", "waits for a condition variable"),
    ("std::condition_variable::wait_for", "waits for a condition variable"),
    ("std::condition_variable::wait_until", "waits for a condition variable"),
    ("std::condition_variable_any::wait", "waits for a condition variable"),
    ("std::condition_variable_any::wait_for", "waits for a condition variable"),
    ("std::condition_variable_any::wait_until", "waits for a condition variable"),
    ("std::thread::join", "waits for a thread"),
    ("std::future::get", "waits for a thread"),
    ("std::future::wait", "waits for a thread"),
    ("std::shared_future::get", "waits for a thread"),
    ("std::__basic_future::wait", "waits for a thread"),
    ("std::this_thread::get_id", "asks which thread it is"),
    ("pthread_cond_wait", "waits for a condition variable"),
    ("pthread_cond_timedwait", "waits for a condition variable"),
    ("pthread_cond_clockwait", "waits for a condition variable"),
    ("pthread_barrier_wait", "waits at a barrier"),
    ("pthread_join", "waits for a thread"),
    ("pthread_self", "asks which thread it is"),
    ("gettid", "asks which thread it is"),
    ("pthread_getspecific", "uses its thread's own data"),
    ("pthread_setspecific", "uses its thread's own data"),
    ("pthread_exit", "may end its thread"),
    ("longjmp", "may leave by longjmp"),
    ("_longjmp", "may leave by longjmp"),
    ("siglongjmp", "may leave by longjmp"),
    ("__longjmp_chk", "may leave by longjmp"),
    ("setjmp", "is returned to by longjmp"),
    ("_setjmp", "is returned to by longjmp"),
    ("__sigsetjmp", "is returned to by longjmp"),
    ("fork", "forks"),
    ("vfork", "forks"),
    ("alloca", "allocates on its caller's stack"),
    ("__builtin_alloca", "allocates on its caller's stack"),
    ("pthread_setaffinity_np", "sets its thread's CPUs"),
    ("sched_setaffinity", "sets its thread's CPUs"),
    ("pthread_setcancelstate", "sets how its thread is cancelled"),
    ("pthread_setcanceltype", "sets how its thread is cancelled"),
    ("pthread_sigmask", "sets its thread's signals"),
];

/// An objection, in words.
pub fn told((way, what): (Vec<String>, &str)) -> String {
    match way.as_slice() {
        [only] => format!("{what} ({only})"),
        _ => format!("a callee {what}: {}", way.join(" > ")),
    }
}

/// A thread-local variable, as if it were a function that is called.
pub fn of_thread(name: &str) -> String {
    format!("thread_local {name}")
}

/// Who calls whom, in all files.
#[derive(Debug, Default)]
pub struct Calls {
    callees: HashMap<String, HashSet<String>>,
    /// Functions that any thread may call for another one, whatever they do.
    harmless: HashSet<String>,
    /// Functions that wait for a condition variable, and do nothing else.
    waits: HashSet<String>,
}

/// What a program makes its own wait of: the wait, and what ends a program that can't.
const WAITS: [&str; 3] = ["pthread_cond_wait", "pthread_cond_timedwait", "pthread_cond_clockwait"];
const ENDS: [&str; 2] = ["abort", "__assert_fail"];

impl Calls {
    /// Of all functions. `harmless`: those that any thread may call for another one, whatever they do.
    pub fn of(files: &[SourceFile], harmless: HashSet<String>) -> Self {
        let mut calls: HashMap<String, HashSet<String>> = HashMap::new();
        for function in files.iter().flat_map(|file| &file.functions) {
            calls.entry(function.name.clone()).or_default().extend(of(function));
        }
        for (name, callees) in files.iter().flat_map(|file| &file.callees) {
            calls.entry(name.clone()).or_default().extend(callees.iter().cloned());
        }
        let all = files.iter().flat_map(|file| file.functions.iter().map(move |it| (file, it)));
        let waits = all.filter(|(file, it)| is_wait(file, it)).map(|(_, it)| it.name.clone());
        let waits = waits.collect();
        Self { callees: calls, harmless, waits }
    }

    /// Does the function wait for a condition variable, and do nothing else?
    pub fn only_waits(&self, name: &str) -> bool {
        WAITS.contains(&name) || self.waits.contains(name)
    }

    /// Why a section that calls these functions must run on its own thread: the way to the call, and what that does.
    pub fn objection(&self, called: &[&str]) -> Option<(Vec<String>, &'static str)> {
        let mut seen: HashSet<&str> = called.iter().copied().collect();
        let mut next: VecDeque<Vec<&str>> = called.iter().map(|name| vec![*name]).collect();
        while let Some(way) = next.pop_front() {
            let last = way[way.len() - 1];
            if self.harmless.contains(last) {
                continue;
            }
            if last.starts_with("thread_local ") {
                let way = way.into_iter().map(str::to_owned).collect();
                return Some((way, "uses its thread's own data"));
            }
            if let Some((_, what)) = BAD.iter().find(|(name, _)| *name == last) {
                return Some((way.into_iter().map(str::to_owned).collect(), what));
            }
            let mut callees: Vec<&str> =
                self.callees.get(last).into_iter().flatten().map(String::as_str).collect();
            callees.sort_unstable();
            for callee in callees {
                if seen.insert(callee) {
                    let mut longer = way.clone();
                    longer.push(callee);
                    next.push_back(longer);
                }
            }
        }
        None
    }
}

/// Is its whole body one wait?
fn is_wait(file: &SourceFile, function: &Function) -> bool {
    let [only] = function.body.children.as_slice() else { return false };
    let all = only.all();
    let mut called = all.iter().flat_map(|it| &it.calls).map(|call| call.name.as_str());
    let is_plain = !all.iter().any(|it| it.kind == StatementKind::Loop);
    let mut names = called.clone();
    let text = file.text.get(only.range.clone()).unwrap_or_default();
    is_plain
        && !writes::may_assign(file, text)
        && names.any(|name| WAITS.contains(&name))
        && called.all(|name| WAITS.contains(&name) || ENDS.contains(&name))
}

fn of(function: &Function) -> impl Iterator<Item = String> + '_ {
    let own = function.variables.iter().filter(|it| it.is_of_thread);
    let own = own.map(|variable| of_thread(&variable.name));
    let statements = function.body.all().into_iter();
    statements.flat_map(|it| it.calls.iter().map(|call| call.name.clone())).chain(own)
}
