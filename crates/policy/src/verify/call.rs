//! Calls of helpers: what their arguments must be.

use super::fault::{Fault, Wrong};
use super::scalar::Scalar;
use super::state::{Known, Reg};
use super::step::{NULL_HINT, read};
use super::walk::Walk;
use lockwright_contract::programs::helpers::{self, Arg, Helper, Returns};
use lockwright_contract::programs::maps::MapKind;

/// The most bytes that a helper takes at once.
const LARGEST_SIZE: u64 = 512;

impl Walk<'_> {
    pub(super) fn call(&mut self, state: &mut Known, number: u32) -> Result<(), Wrong> {
        let Some(helper) = helpers::find(number) else {
            return Err(Wrong::new(Fault::Helper, format!("calls helper {number}")));
        };
        let mut map = None;
        for (register, arg) in (1..).zip(helper.args) {
            let reg = read(state, register).map_err(|wrong| Wrong {
                what: format!("calls {} without its argument {register}", helper.name),
                ..wrong
            })?;
            match arg {
                Arg::Number if reg.is_pointer() => {
                    let what = format!("passes a pointer to {}, which takes a number", helper.name);
                    return Err(Wrong::new(Fault::Argument, what).by(register));
                }
                Arg::Number | Arg::Size => {}
                Arg::Map | Arg::Hash | Arg::Ring => {
                    map = Some(self.map(register, reg, helper, *arg)?)
                }
                Arg::Key | Arg::Value => {
                    let spec = map.and_then(|map| self.map_at(map)).map(|map| map.spec);
                    let size = spec.map_or(0, |spec| {
                        if *arg == Arg::Key { spec.key_size } else { spec.value_size }
                    });
                    self.memory(state, register, reg, size, helper)?;
                }
                Arg::Memory => {
                    let size = size(state, register + 1, helper)?;
                    self.memory(state, register, reg, size, helper)?;
                }
            }
        }
        for register in 0..=5 {
            state.set(register, Reg::Nothing);
        }
        let answer = match (helper.returns, map) {
            (Returns::ValueOrNull, Some(map)) => Reg::OrNull { map, id: self.identity() },
            (Returns::Number32, _) => Reg::Number(Scalar::of_size(4)),
            _ => Reg::unknown(),
        };
        state.set(0, answer);
        self.uses_helper(helper);
        Ok(())
    }

    fn map(&self, register: u8, reg: Reg, helper: &Helper, arg: Arg) -> Result<u32, Wrong> {
        let name = helper.name;
        let Reg::Map(number) = reg else {
            let what = format!("passes {name} something else than a map");
            return Err(Wrong::new(Fault::Argument, what)
                .by(register)
                .hint(format!("pass the map's address: {name}(&map, ...)")));
        };
        let kind = self.map_at(number).map(|map| map.spec.kind);
        let (fits, wants) = match arg {
            Arg::Hash => (kind == Some(MapKind::Hash), "an LW_HASH"),
            Arg::Ring => (kind == Some(MapKind::Ring), "an LW_RINGBUF"),
            _ => (kind != Some(MapKind::Ring), "a map with keys"),
        };
        if fits {
            return Ok(number);
        }
        let map = self.value_of(number).0;
        let what = format!("passes '{map}' to {name}, which takes {wants}");
        Err(Wrong::new(Fault::Argument, what).by(register))
    }

    /// The argument is memory that has been written.
    fn memory(
        &mut self,
        state: &Known,
        register: u8,
        reg: Reg,
        size: u32,
        helper: &Helper,
    ) -> Result<(), Wrong> {
        let does = format!("passes {}", helper.name);
        match reg {
            Reg::Stack(off) => self.is_initialised(state, register, (&off, size), &does),
            Reg::Value { map, off } => self.in_value(register, map, &off, 0, size, &does),
            Reg::OrNull { .. } => {
                let what = format!("{does} a value that may be NULL");
                Err(Wrong::new(Fault::Null, what).by(register).hint(NULL_HINT))
            }
            Reg::Context(_) => {
                let what = format!("{does} a part of the context");
                let wrong = Wrong::new(Fault::Argument, what).by(register);
                Err(wrong.hint("copy it first: __u64 key = ctx->curr.tid;"))
            }
            _ => {
                let what = format!("{does} a number instead of an address");
                let wrong = Wrong::new(Fault::Argument, what).by(register);
                Err(wrong.hint("pass the variable's address: &key"))
            }
        }
    }
}

/// How many bytes an argument has, at most.
fn size(state: &Known, register: u8, helper: &Helper) -> Result<u32, Wrong> {
    let name = helper.name;
    let Reg::Number(size) = read(state, register)? else {
        let what = format!("passes a pointer to {name} as a size");
        return Err(Wrong::new(Fault::Argument, what).by(register));
    };
    let range = size.wide;
    match u32::try_from(range.umax) {
        Ok(most) if range.umin >= 1 && range.umax <= LARGEST_SIZE => Ok(most),
        _ => {
            let what =
                format!("passes {name} a size of {size}, and 1 to {LARGEST_SIZE} are allowed");
            Err(Wrong::new(Fault::Argument, what).by(register).hint("pass sizeof(record)"))
        }
    }
}
