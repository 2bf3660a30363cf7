//! Loads, stores and atomic operations.

use super::bits::Bits;
use super::fault::{Fault, Wrong};
use super::scalar::Scalar;
use super::state::{Known, Reg, SLOTS, Slot};
use super::step::{NULL_HINT, read};
use super::walk::Walk;
use crate::op::{Atomic, Op, Operand, STACK};
use lockwright_platform::hooks::{CLOCK, Context, LENGTHS, Node, THREADS, WAITERS};
use std::mem::offset_of;

/// Bytes of the context.
const CONTEXT: i64 = size_of::<Context>() as i64;
/// Those at its start that are the kernel's.
const RESERVED: i64 = 8;
const STACK_BYTES: i64 = STACK as i64;
/// Where a context has what takes time to know: first byte, size, and which of [`READS`](lockwright_platform::hooks::READS) that is.
const COSTLY: [(usize, usize, u32); 7] = {
    let length = offset_of!(Node, cs_ns);
    [
        (offset_of!(Context, nwaiters), 4, WAITERS),
        (offset_of!(Context, now_ns), 8, CLOCK),
        (offset_of!(Context, avg_cs_ns), 8, LENGTHS),
        (offset_of!(Context, own), 3 * size_of::<Node>(), THREADS), // and `best` and `curr` behind it
        (offset_of!(Context, own) + length, 8, LENGTHS),
        (offset_of!(Context, best) + length, 8, LENGTHS),
        (offset_of!(Context, curr) + length, 8, LENGTHS),
    ]
};

/// Where an access may be: its first byte, and where it ends at most.
#[derive(Clone, Copy)]
struct Span {
    first: i64,
    end: i64,
}

impl Span {
    fn new(off: &Scalar, more: i64, size: u32) -> Self {
        let first = off.wide.smin + more;
        Self { first, end: off.wide.smax + more + i64::from(size) }
    }

    /// `at 8`, `at 0 to 60`: where its first byte may be.
    fn place(self, size: u32) -> String {
        match self.end - i64::from(size) {
            last if last == self.first => format!("at {last}"),
            last => format!("at {} to {last}", self.first),
        }
    }
}

/// Is it a multiple of the size, whatever it is?
fn is_aligned(off: &Scalar, more: i64, size: u8) -> bool {
    let place = off.bits.add(Bits::known(more.cast_unsigned()));
    place.max() & u64::from(size - 1) == 0
}

fn bytes(size: u32) -> String {
    if size == 1 { "1 byte".into() } else { format!("{size} bytes") }
}

/// The slots of the stack that a span touches, and which of their bytes.
fn slots(span: Span) -> impl Iterator<Item = (usize, u8)> {
    let (first, end) = (span.first + STACK_BYTES, span.end + STACK_BYTES);
    (first.div_euclid(8)..=(end - 1).div_euclid(8)).map(move |from_bottom| {
        let byte = |at: i64| (at - 8 * from_bottom).clamp(0, 8);
        let ones = |count: i64| (1_u16 << count) - 1;
        let touched = ones(byte(end)) & !ones(byte(first));
        (SLOTS - 1 - from_bottom as usize, touched as u8)
    })
}

impl Walk<'_> {
    pub(super) fn load(
        &mut self,
        state: &Known,
        register: u8,
        off: i16,
        size: u8,
    ) -> Result<Reg, Wrong> {
        let more = i64::from(off);
        match read(state, register)? {
            Reg::Context(off) => {
                let at = off + more;
                let number = context(register, at, size)?;
                let is_in = |first: usize, len: usize| {
                    at < (first + len) as i64 && at + i64::from(size) > first as i64
                };
                for (_, _, what) in COSTLY.iter().filter(|(first, len, _)| is_in(*first, *len)) {
                    self.reads(*what);
                }
                Ok(Reg::Number(number))
            }
            Reg::Stack(off) => {
                let span = self.in_stack(register, &off, more, size, "reads")?;
                if off.constant().is_some() {
                    return self.load_slot(state, register, span, size);
                }
                self.is_written(state, span, register, "reads")?;
                Ok(Reg::Number(Scalar::of_size(size)))
            }
            Reg::Value { map, off } => {
                self.in_value(register, map, &off, more, u32::from(size), "reads")?;
                Ok(Reg::Number(Scalar::of_size(size)))
            }
            other => Err(no_memory(register, &other, "reads")),
        }
    }

    /// Reads the stack at a place that is known.
    fn load_slot(
        &mut self,
        state: &Known,
        register: u8,
        span: Span,
        size: u8,
    ) -> Result<Reg, Wrong> {
        let (slot, touched) = slots(span).next().unwrap_or_default();
        let known = state.slot(slot);
        self.read_slot(slot);
        if let (Slot::Whole(reg), 8) = (known, size) {
            return Ok(reg);
        }
        self.is_written(state, span, register, "reads")?;
        Ok(Reg::Number(match (size, known) {
            (4, _) => known.half(touched & 1 == 0).unwrap_or(Scalar::of_size(4)),
            (8, Slot::Bytes { halves: [Some(low), Some(high)], .. }) => {
                let high = high.alu(crate::op::Alu::Lsh, Scalar::known(32), true);
                high.alu(crate::op::Alu::Or, low, true)
            }
            (_, Slot::Whole(Reg::Number(number))) if touched & 1 != 0 => number.bytes(size).alone(),
            _ => Scalar::of_size(size),
        }))
    }

    /// All bytes of the span have been written, and none belongs to a pointer.
    pub(super) fn is_initialised(
        &mut self,
        state: &Known,
        register: u8,
        (off, size): (&Scalar, u32),
        does: &str,
    ) -> Result<(), Wrong> {
        let span = self.spanned(register, off, 0, size, does)?;
        self.is_written(state, span, register, does)
    }

    fn is_written(
        &mut self,
        state: &Known,
        span: Span,
        register: u8,
        does: &str,
    ) -> Result<(), Wrong> {
        for (slot, touched) in slots(span) {
            let known = state.slot(slot);
            self.read_slot(slot);
            let missing = touched & !known.written();
            if missing == 0 {
                continue;
            }
            if let Slot::Whole(_) = known {
                let what = format!("{does} a part of a pointer on the stack as a number");
                return Err(Wrong::new(Fault::Leak, what).by(register));
            }
            let at = missing.trailing_zeros() as usize + 8 * (SLOTS - 1 - slot);
            let at = at as i64 - STACK_BYTES;
            let what = format!("{does} the stack at {at}, where nothing has been written");
            let wrong = Wrong::new(Fault::UninitialisedStack, what).by(register);
            return Err(wrong.hint("initialise it: struct key key = {};"));
        }
        Ok(())
    }

    /// An access of the stack lies in it, and is aligned.
    fn in_stack(
        &self,
        register: u8,
        off: &Scalar,
        more: i64,
        size: u8,
        does: &str,
    ) -> Result<Span, Wrong> {
        let span = self.spanned(register, off, more, u32::from(size), does)?;
        if !is_aligned(off, more, size) {
            let place = span.place(u32::from(size));
            let what =
                format!("{does} {} of the stack {place}: not aligned", bytes(u32::from(size)));
            return Err(Wrong::new(Fault::Alignment, what).by(register));
        }
        Ok(span)
    }

    fn spanned(
        &self,
        register: u8,
        off: &Scalar,
        more: i64,
        size: u32,
        does: &str,
    ) -> Result<Span, Wrong> {
        let span = Span::new(off, more, size);
        if span.first < -STACK_BYTES || span.end > 0 {
            let place = span.place(size);
            let what = format!(
                "{does} {} of the stack {place}, but it lies at -{STACK} to -1",
                bytes(size)
            );
            let wrong = Wrong::new(Fault::Stack, what).by(register);
            return Err(wrong.hint("bound the index first: if (i < 16), or mask it: i & 15"));
        }
        Ok(span)
    }

    /// Does it point into its memory, or right behind it, wherever it may be? Then it can't be NULL.
    pub(super) fn is_inside(&self, reg: &Reg) -> bool {
        match reg {
            Reg::Context(off) => (0..=CONTEXT).contains(off),
            Reg::Stack(off) => off.wide.smin >= -STACK_BYTES && off.wide.smax <= 0,
            Reg::Value { map, off } => {
                off.wide.smin >= 0 && off.wide.smax <= i64::from(self.value_of(*map).1)
            }
            Reg::Nothing | Reg::Number(_) | Reg::Map(_) | Reg::OrNull { .. } => true,
        }
    }

    /// An access of a map's value lies in it.
    pub(super) fn in_value(
        &self,
        register: u8,
        map: u32,
        off: &Scalar,
        more: i64,
        size: u32,
        does: &str,
    ) -> Result<(), Wrong> {
        let span = Span::new(off, more, size);
        let (name, has) = self.value_of(map);
        if span.first >= 0 && span.end <= i64::from(has) {
            return Ok(());
        }
        let what = format!(
            "{does} {} of '{name}' {}, but a value has {has}",
            bytes(size),
            span.place(size)
        );
        let wrong = Wrong::new(Fault::Value, what).by(register);
        Err(if off.constant().is_some() {
            wrong
        } else {
            wrong.hint(self.bound_hint(&Reg::Value { map, off: *off }, off))
        })
    }

    /// How to bound an index, in numbers that fit what it is an index of.
    pub(super) fn bound_hint(&self, pointer: &Reg, index: &Scalar) -> String {
        let has = match pointer {
            Reg::Value { map, .. } => self.value_of(*map).1,
            _ => STACK as u32,
        };
        // The bytes of an element: the index has been multiplied by them.
        let step = 1 << index.bits.mask.trailing_zeros().min(12);
        let count = (has / step).max(1);
        let bound = format!("bound the index first: if (i >= {count}) return 0;");
        if count.is_power_of_two() && count > 1 {
            return format!("{bound} or mask it: i & {}", count - 1);
        }
        bound
    }

    pub(super) fn store(
        &mut self,
        state: &mut Known,
        (register, off, size): (u8, i16, u8),
        operand: Operand,
        value: Reg,
    ) -> Result<(), Wrong> {
        let more = i64::from(off);
        let leak = |what: &str| {
            let wrong = Wrong::new(Fault::Leak, what);
            match operand {
                Operand::Register(source) => wrong.by(source),
                Operand::Number(_) => wrong,
            }
        };
        match read(state, register)? {
            Reg::Context(_) => {
                let what = "writes to the context, which is only to be read";
                Err(Wrong::new(Fault::ReadOnly, what).by(register))
            }
            Reg::Stack(off) => {
                let span = self.in_stack(register, &off, more, size, "writes")?;
                let number = match value {
                    Reg::Number(number) => Some(number),
                    _ if size == 8 && off.constant().is_some() => None,
                    _ => return Err(leak("stores a part of a pointer, or at no certain place")),
                };
                if off.constant().is_some() {
                    store_slot(state, span, size, value, number);
                } else {
                    blur(state, span);
                }
                Ok(())
            }
            Reg::Value { map, off } => {
                self.in_value(register, map, &off, more, u32::from(size), "writes")?;
                if value.is_pointer() {
                    return Err(leak("stores a pointer in a map")
                        .hint("store a number: an index, or a thread's id"));
                }
                Ok(())
            }
            other => Err(no_memory(register, &other, "writes")),
        }
    }

    pub(super) fn atomic(&mut self, state: &mut Known, op: &Op) -> Result<(), Wrong> {
        let Op::Atomic { atomic, fetch, wide, dst, off, src } = *op else { return Ok(()) };
        let size = if wide { 8 } else { 4 };
        let exchanges = atomic == Atomic::CompareExchange;
        for register in [Some(src), exchanges.then_some(0)].into_iter().flatten() {
            if read(state, register)?.is_pointer() {
                let what = "stores a pointer in a map";
                return Err(Wrong::new(Fault::Leak, what).by(register));
            }
        }
        let more = i64::from(off);
        match read(state, dst)? {
            Reg::Value { map, off } => {
                self.in_value(dst, map, &off, more, u32::from(size), "changes")?;
                if !is_aligned(&off, more, size) {
                    let place = Span::new(&off, more, u32::from(size)).place(u32::from(size));
                    let name = self.value_of(map).0;
                    let what =
                        format!("changes {size} bytes of '{name}' {place} at once: not aligned");
                    return Err(Wrong::new(Fault::Alignment, what).by(dst));
                }
            }
            Reg::Stack(_) | Reg::Context(_) => {
                let what = "changes something at once that is not in a map";
                let wrong = Wrong::new(Fault::Atomic, what).by(dst);
                return Err(wrong.hint("only values of maps need atomic operations"));
            }
            other => return Err(no_memory(dst, &other, "changes")),
        }
        if fetch {
            let gets = if exchanges { 0 } else { src };
            state.set(gets, Reg::Number(Scalar::of_size(size)));
        }
        Ok(())
    }
}

/// A read of the context.
fn context(register: u8, at: i64, size: u8) -> Result<Scalar, Wrong> {
    let wrong = |fault, what: String| Err(Wrong::new(fault, what).by(register));
    let bytes = bytes(u32::from(size));
    if at < 0 || at + i64::from(size) > CONTEXT {
        let what = format!("reads {bytes} of the context at {at}, but it has {CONTEXT}");
        return wrong(Fault::Context, what);
    }
    if at < RESERVED {
        return wrong(Fault::Context, format!("reads ctx->reserved: {bytes} at {at}"));
    }
    if at % i64::from(size) != 0 {
        return wrong(
            Fault::Alignment,
            format!("reads {bytes} of the context at {at}: not aligned"),
        );
    }
    Ok(Scalar::of_size(size))
}

fn no_memory(register: u8, reg: &Reg, does: &str) -> Wrong {
    match reg {
        Reg::OrNull { .. } => {
            let what = format!("{does} a value that may be NULL");
            Wrong::new(Fault::Null, what).by(register).hint(NULL_HINT)
        }
        Reg::Map(_) => {
            let what = format!("{does} a map itself");
            let wrong = Wrong::new(Fault::NoPointer, what).by(register);
            wrong.hint("look a value up: lw_lookup(&map, &key)")
        }
        _ => {
            let what = format!("{does} memory through a number");
            Wrong::new(Fault::NoPointer, what).by(register)
        }
    }
}

/// Writes the stack at a place that is known.
fn store_slot(state: &mut Known, span: Span, size: u8, value: Reg, number: Option<Scalar>) {
    let (number_of_slot, touched) = slots(span).next().unwrap_or_default();
    let slot = state.slot_mut(number_of_slot);
    if size == 8 {
        *slot = Slot::Whole(value);
        return;
    }
    let (mut written, mut halves) = (slot.written(), [slot.half(false), slot.half(true)]);
    written |= touched;
    let upper = touched & 0x0f == 0;
    halves = halves.map(|half| half.map(Scalar::alone));
    halves[usize::from(upper)] =
        number.filter(|_| size == 4).map(|number| number.truncated().alone());
    *slot = Slot::Bytes { written, halves };
}

/// Writes a number somewhere in a part of the stack.
fn blur(state: &mut Known, span: Span) {
    for (number, _) in slots(span) {
        let slot = state.slot_mut(number);
        *slot = Slot::Bytes { written: slot.written(), halves: [None; 2] };
    }
}
