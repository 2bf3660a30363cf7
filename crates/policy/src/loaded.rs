//! A policy in this process: for simulations, for tests, and to measure what it costs.

mod code;

use crate::image::{self, ImageError};
use crate::interpret::Interpreter;
use crate::maps::Maps;
use crate::object::Object;
use crate::verify::Verified;
use crate::world::{self, HELPER_FUNCTIONS};
use code::Mapping;
use lockwright_contract::programs::env::{Code, Env};
use lockwright_platform::hooks::{Answer, Context, Hook, Policy, World};
use std::hint::black_box;
use std::io;

/// How a policy is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Checks each access, and counts instructions. On every machine.
    Interpreter,
    /// The machine's own code.
    Jit,
}

/// Why a policy was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// There is no code, or a map can't be.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The system doesn't map the code.
    #[error("can't map a policy's code: {0}")]
    Map(#[from] io::Error),
}

/// How many rows a per-CPU array has here. The machine may be a simulated one with many CPUs.
const ROWS: u32 = 128;

/// The code of an instruction that calls a helper.
const CALL: u8 = 0x85;

/// A policy in this process, with maps of its own. Threads may hand it over, but not use it at once.
#[derive(Debug)]
pub struct Loaded {
    hooks: u32,
    engine: Running,
}

#[derive(Debug)]
enum Running {
    Interpreted(Box<Interpreter>),
    Compiled(Box<Compiled>),
}

#[derive(Debug)]
struct Compiled {
    hooks: [Option<CompiledHook>; Hook::ALL.len()],
    env: Env,
    maps: Maps,
    _code: Mapping,
}

#[derive(Clone, Copy, Debug)]
struct CompiledHook {
    code: Code,
    /// The most instructions that it takes.
    longest: u32,
    /// Does it call helpers? They ask the world.
    calls: bool,
}

impl Compiled {
    /// # Safety
    /// The hook does only what a verified one can do.
    #[inline]
    unsafe fn ask(&self, hook: CompiledHook, context: &Context, world: &dyn World) -> u64 {
        // SAFETY: our caller's promise; it was compiled for this environment.
        let ask = || unsafe { (hook.code)(context, &self.env) };
        if hook.calls { world::during(world, ask) } else { ask() }
    }
}

// SAFETY: what it points to is its own. What `ask` keeps for a thread is gone when `ask` returns.
unsafe impl Send for Loaded {}

impl Loaded {
    /// Loads a policy.
    ///
    /// # Errors
    /// A map can't be, this machine has no compiler, or the system doesn't map code.
    pub fn new(verified: &Verified, engine: Engine) -> Result<Self, LoadError> {
        let object = verified.object();
        let loaded = match engine {
            Engine::Interpreter => Self::interpreted(object),
            Engine::Jit => {
                let depths: Vec<_> = verified.reports().iter().map(|report| report.stack).collect();
                let longest: Vec<_> =
                    verified.reports().iter().map(|report| report.longest).collect();
                // SAFETY: it is verified.
                unsafe { Self::compiled(object, &depths, &longest) }
            }
        }?;
        Ok(Self { hooks: verified.hooks(), ..loaded })
    }

    /// Loads an object that nobody need have verified: it is interpreted.
    pub(crate) fn interpreted(object: &Object) -> Result<Self, LoadError> {
        let maps = Maps::new(&object.maps, ROWS).map_err(ImageError::from)?;
        let engine = Running::Interpreted(Box::new(Interpreter::new(object, maps)));
        Ok(Self { hooks: object.hooks(), engine })
    }

    /// Loads a compiled object. `depths` and `longest`: of each hook, in the object's order, how many bytes of stack it uses, and how
    /// many instructions it takes.
    ///
    /// # Safety
    /// It does only what a verified program can do.
    pub(crate) unsafe fn compiled(
        object: &Object,
        depths: &[usize],
        longest: &[u32],
    ) -> Result<Self, LoadError> {
        let maps = Maps::new(&object.maps, ROWS).map_err(ImageError::from)?;
        let image = image::assemble(object, &maps, depths, object.hooks(), ("", 0))?;
        let header = code::header(&image);
        let code = Mapping::new(&image)?;
        let mut hooks = [None; Hook::ALL.len()];
        for (hook, longest) in object.hooks.iter().zip(longest) {
            let at = header.hooks[hook.hook as usize] as usize;
            // SAFETY: a function begins there.
            let code = unsafe { code.function(at) };
            let calls = hook.insns.iter().any(|insn| insn.code == CALL);
            hooks[hook.hook as usize] = Some(CompiledHook { code, longest: *longest, calls });
        }
        let env =
            Env { data: maps.data(), data_len: maps.size() as u64, helpers: HELPER_FUNCTIONS };
        let compiled = Compiled { hooks, env, maps, _code: code };
        let engine = Running::Compiled(Box::new(compiled));
        Ok(Self { hooks: object.hooks(), engine })
    }

    /// Its maps.
    pub fn maps(&self) -> &Maps {
        match &self.engine {
            Running::Interpreted(interpreter) => interpreter.maps(),
            Running::Compiled(compiled) => &compiled.maps,
        }
    }

    /// Asks many times, for measurements.
    pub(crate) fn repeat(&self, hook: Hook, context: &Context, times: u32, world: &dyn World) {
        match &self.engine {
            Running::Compiled(compiled) => {
                let Some(hook) = compiled.hooks[hook as usize] else { return };
                world::during(world, || {
                    for _ in 0..times {
                        // SAFETY: the promise of `compiled`.
                        black_box(unsafe { (hook.code)(black_box(context), &compiled.env) });
                    }
                });
            }
            Running::Interpreted(_) => {
                for _ in 0..times {
                    black_box(self.ask(hook, black_box(context), world));
                }
            }
        }
    }
}

impl Policy for Loaded {
    fn hooks(&self) -> u32 {
        self.hooks
    }

    /// # Panics
    /// If an interpreted policy does what no verified one can: then the verifier is wrong, or nobody asked it.
    fn ask(&self, hook: Hook, context: &Context, world: &dyn World) -> Answer {
        if self.hooks & hook.bit() == 0 {
            return Answer::default();
        }
        match &self.engine {
            Running::Interpreted(interpreter) => match interpreter.ask(hook, context, world) {
                Ok(answer) => answer,
                Err(escape) => panic!("{}: a policy escaped its verifier: {escape}", hook.name()),
            },
            Running::Compiled(compiled) => match compiled.hooks[hook as usize] {
                Some(hook) => {
                    // SAFETY: the promise of `compiled`.
                    let value = unsafe { compiled.ask(hook, context, world) };
                    Answer { value, insns: hook.longest }
                }
                None => Answer::default(),
            },
        }
    }
}

#[cfg(test)]
mod tests;
