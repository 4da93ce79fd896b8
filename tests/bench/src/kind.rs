// SPDX-License-Identifier: GPL-2.0

//! Kinds of instructions, of x86-64 in AT&T syntax.

use serde::{Deserialize, Serialize};

/// The kind of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Calls and returns.
    Call,
    /// Jumps, also conditional ones.
    Jump,
    /// Comparisons and tests.
    Compare,
    /// Moves between registers, and of constants.
    Register,
    /// Moves to and from the stack, push and pop among them.
    Stack,
    /// Moves to and from other memory.
    Memory,
    /// Instructions that lock the bus.
    Locked,
    /// Arithmetic, and all the rest.
    Other,
}

impl Kind {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 8] = [
        Self::Stack,
        Self::Register,
        Self::Compare,
        Self::Jump,
        Self::Call,
        Self::Memory,
        Self::Locked,
        Self::Other,
    ];

    /// The name for output.
    pub fn word(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Jump => "jump",
            Self::Compare => "compare",
            Self::Register => "register",
            Self::Stack => "stack",
            Self::Memory => "memory",
            Self::Locked => "locked",
            Self::Other => "other",
        }
    }

    /// The kind of an instruction, in the text that QEMU prints.
    pub fn of(text: &str) -> Self {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or("");
        let operands = text[name.len().min(text.len())..].trim();
        let memory = operands.contains('(') || operands.contains(':');
        if name == "lock" || (name.starts_with("xchg") && memory) {
            return Self::Locked;
        }
        let is = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
        if is(&["call", "ret"]) {
            return Self::Call;
        }
        if name.starts_with('j') {
            return Self::Jump;
        }
        if is(&["push", "pop"]) && !name.starts_with("popcnt") {
            return Self::Stack;
        }
        if is(&["cmp", "test"]) && !name.starts_with("cmpxchg") {
            return Self::Compare;
        }
        if is(&["mov", "cmov"]) {
            return match memory {
                true if operands.contains("(%rsp") || operands.contains("(%rbp") => Self::Stack,
                true => Self::Memory,
                false => Self::Register,
            };
        }
        Self::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        for (text, kind) in [
            ("movq %rax, %rbx", Kind::Register),
            ("movl $1, %eax", Kind::Register),
            ("movq %rax, 8(%rsp)", Kind::Stack),
            ("movq 8(%rdi), %rax", Kind::Memory),
            ("movq %gs:0x1f, %rax", Kind::Memory),
            ("pushq %rbp", Kind::Stack),
            ("popcntq %rax, %rax", Kind::Other),
            ("lock cmpxchgq %rcx, (%rdi)", Kind::Locked),
            ("xchgl %eax, (%rdi)", Kind::Locked),
            ("xchgl %eax, %ebx", Kind::Other),
            ("testb $1, 3(%rdi)", Kind::Compare),
            ("jne 0xffffffffc0000000", Kind::Jump),
            ("callq 0xffffffffc0000000", Kind::Call),
            ("retq", Kind::Call),
            ("leaq 8(%rdi), %rax", Kind::Other),
            ("", Kind::Other),
        ] {
            assert_eq!(Kind::of(text), kind, "{text}");
        }
    }
}
