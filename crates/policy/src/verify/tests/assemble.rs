//! Programs as text, in the notation of `asm.rs`, with labels: `again:` and `goto again`.

use crate::object::{Insn, NamedMap};
use crate::op::{Alu, Atomic, Condition, Constant, Op, Operand};
use crate::testing::encode;
use lockwright_contract::programs::helpers;
use std::collections::BTreeMap;

/// Assembles a program that uses these maps.
pub(super) fn assemble(text: &str, maps: &[NamedMap]) -> Vec<Insn> {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
    let (mut labels, mut at) = (BTreeMap::new(), 0_i64);
    let mut code = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        match line.strip_suffix(':') {
            Some(label) => {
                labels.insert(label.to_owned(), at);
            }
            None => {
                code.push((at, line));
                at += if line.contains(" ll") || line.contains("= map ") { 2 } else { 1 };
            }
        }
    }
    let mut insns = Vec::new();
    for (at, line) in code {
        let target = |to: &str| match labels.get(to) {
            Some(place) => i16::try_from(place - at - 1).unwrap(),
            None => to.parse().unwrap_or_else(|_| panic!("no label '{to}' in: {line}")),
        };
        match raw(line) {
            Some(insn) => insns.push(insn),
            None => {
                let op =
                    parse(line, maps, &target).unwrap_or_else(|| panic!("not understood: {line}"));
                insns.extend(encode(op));
            }
        }
    }
    insns
}

/// `.insn 0x8d 0 1 0 0`: code, dst, src, off, imm.
fn raw(line: &str) -> Option<Insn> {
    let fields: Vec<&str> = line.strip_prefix(".insn ")?.split(' ').collect();
    let [code, dst, src, off, imm] = fields[..] else { panic!("five fields: {line}") };
    let code = u8::from_str_radix(code.trim_start_matches("0x"), 16).unwrap();
    let small = |text: &str| text.parse::<u8>().unwrap();
    let (off, imm) = (off.parse().unwrap(), imm.parse().unwrap());
    Some(Insn { code, dst: small(dst), src: small(src), off, imm })
}

/// `r3`: 64 bits; `w3`: 32.
fn register(text: &str) -> Option<(u8, bool)> {
    let number = text.get(1..)?.parse().ok()?;
    match text.as_bytes().first()? {
        b'r' => Some((number, true)),
        b'w' => Some((number, false)),
        _ => None,
    }
}

fn operand(text: &str) -> Option<Operand> {
    match register(text) {
        Some((number, _)) => Some(Operand::Register(number)),
        None => text.parse().ok().map(Operand::Number),
    }
}

/// `*(u32 *)(r1 + 8)`: size, register, offset.
fn access(text: &str) -> Option<(u8, u8, i16)> {
    let (size, place) = text.strip_prefix("*(u")?.split_once(" *)(")?;
    let words: Vec<&str> = place.strip_suffix(')')?.split(' ').collect();
    let [base, sign, off] = words[..] else { return None };
    let off: i16 = format!("{sign}{off}").parse().ok()?;
    Some((size.parse::<u8>().ok()? / 8, register(base)?.0, off))
}

fn parse(line: &str, maps: &[NamedMap], target: &dyn Fn(&str) -> i16) -> Option<Op> {
    if line == "exit" {
        return Some(Op::Exit);
    }
    if let Some(name) = line.strip_prefix("call ") {
        let known = helpers::ALL.iter().find(|helper| helper.name == name);
        return Some(Op::Call {
            helper: known.map_or_else(|| name.parse().unwrap(), |one| one.id),
        });
    }
    if let Some(to) = line.strip_prefix("goto ") {
        return Some(Op::Jump { off: target(to) });
    }
    if let Some(rest) = line.strip_prefix("if ") {
        let words: Vec<&str> = rest.split(' ').collect();
        let [left, sign, right, "goto", to] = words[..] else { return None };
        let (dst, wide) = register(left)?;
        let condition = condition(sign)?;
        return Some(Op::Branch {
            condition,
            wide,
            dst,
            operand: operand(right)?,
            off: target(to),
        });
    }
    if let Some(rest) = line.strip_prefix("lock ") {
        return atomic(rest, false);
    }
    let (left, right) = line.split_once(" = ").unwrap_or((line, ""));
    if right.is_empty() {
        let words: Vec<&str> = line.split(' ').collect();
        let [left, sign, right] = words[..] else { return None };
        let (dst, wide) = register(left)?;
        return Some(Op::Alu { alu: alu(sign)?, wide, dst, operand: operand(right)? });
    }
    if let Some((size, dst, off)) = access(left) {
        return Some(Op::Store { size, dst, off, operand: operand(right)? });
    }
    let (dst, wide) = register(left)?;
    assigned(dst, wide, right, maps)
}

/// What stands to the right of `r1 =`.
fn assigned(dst: u8, wide: bool, right: &str, maps: &[NamedMap]) -> Option<Op> {
    if let Some((size, src, off)) = access(right) {
        return Some(Op::Load { size, dst, src, off });
    }
    if let Some(rest) = right.strip_prefix("fetch lock ") {
        return atomic(rest, true);
    }
    if let Some(rest) = right.strip_prefix("xchg(") {
        let (place, src) = rest.strip_suffix(')')?.rsplit_once(", ")?;
        return exchange(Atomic::Exchange, place, src);
    }
    if let Some(rest) = right.strip_prefix("cmpxchg(") {
        let (place, src) = rest.strip_suffix(')')?.split_once(", r0, ")?;
        return exchange(Atomic::CompareExchange, place, src);
    }
    if let Some(rest) = right.strip_prefix("map ") {
        let number = |name: &str| {
            let known = maps.iter().position(|map| map.name == name);
            known.map_or_else(|| name.parse().unwrap(), |at| u32::try_from(at).unwrap())
        };
        let constant = match rest.split_once(" value + ") {
            Some((map, off)) => Constant::Value(number(map), off.parse().ok()?),
            None => Constant::Map(number(rest)),
        };
        return Some(Op::Load64 { dst, constant });
    }
    if let Some(value) = right.strip_suffix(" ll") {
        let value = u64::from_str_radix(value.trim_start_matches("0x"), 16).ok()?;
        return Some(Op::Load64 { dst, constant: Constant::Number(value) });
    }
    if right.starts_with("-r") || right.starts_with("-w") {
        return Some(Op::Neg { wide, dst });
    }
    if let Some((bits, _)) = right.split_once(' ') {
        let big = bits.starts_with("be");
        return Some(Op::Swap { big, bits: bits.get(2..)?.parse().ok()?, dst });
    }
    Some(Op::Alu { alu: Alu::Mov, wide, dst, operand: operand(right)? })
}

/// `*(u64 *)(r1 + 0) += r2`.
fn atomic(text: &str, fetch: bool) -> Option<Op> {
    let (place, rest) = text.split_once(") ")?;
    let (size, dst, off) = access(&format!("{place})"))?;
    let (sign, src) = rest.split_once(' ')?;
    let atomic = match sign {
        "+=" => Atomic::Add,
        "|=" => Atomic::Or,
        "&=" => Atomic::And,
        _ => Atomic::Xor,
    };
    Some(Op::Atomic { atomic, fetch, wide: size == 8, dst, off, src: register(src)?.0 })
}

fn exchange(atomic: Atomic, place: &str, src: &str) -> Option<Op> {
    let (size, dst, off) = access(place)?;
    Some(Op::Atomic { atomic, fetch: true, wide: size == 8, dst, off, src: register(src)?.0 })
}

fn alu(sign: &str) -> Option<Alu> {
    Some(match sign {
        "+=" => Alu::Add,
        "-=" => Alu::Sub,
        "*=" => Alu::Mul,
        "/=" => Alu::Div,
        "|=" => Alu::Or,
        "&=" => Alu::And,
        "<<=" => Alu::Lsh,
        ">>=" => Alu::Rsh,
        "%=" => Alu::Mod,
        "^=" => Alu::Xor,
        "s>>=" => Alu::Arsh,
        _ => return None,
    })
}

fn condition(sign: &str) -> Option<Condition> {
    Some(match sign {
        "==" => Condition::Eq,
        ">" => Condition::Gt,
        ">=" => Condition::Ge,
        "&" => Condition::Set,
        "!=" => Condition::Ne,
        "s>" => Condition::Sgt,
        "s>=" => Condition::Sge,
        "<" => Condition::Lt,
        "<=" => Condition::Le,
        "s<" => Condition::Slt,
        "s<=" => Condition::Sle,
        _ => return None,
    })
}
