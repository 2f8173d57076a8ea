//! Assembles programs for the kernel's BPF machine from instructions (64-bit words) and labels. The
//! instruction set is described in the kernel's document `bpf/standardization/instruction-set.rst`.

use std::collections::HashMap;

/// A register. Register 0 holds the result of a call, 1 to 5 hold its arguments, 6 to 9 survive
/// calls, and 10 is the frame pointer.
pub type Register = u8;

/// The register that holds the frame pointer.
pub const FRAME: Register = 10;

/// The width of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 2 bytes.
    Half = 0x08,
    /// 4 bytes.
    Word = 0x00,
    /// 8 bytes.
    Double = 0x18,
}

/// A condition of a jump. Numbers are compared as unsigned 64-bit numbers, except by
/// [`If::SignedBelow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum If {
    Equal = 0x10,
    NotEqual = 0x50,
    /// Greater than or equal.
    AtLeast = 0x30,
    /// Greater than.
    Above = 0x20,
    /// Less than, for signed numbers.
    SignedBelow = 0xC0,
}

/// An arithmetic operation. The second operand is an immediate number or a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Do {
    Add = 0x00,
    Subtract = 0x10,
    Multiply = 0x20,
    /// Bitwise or.
    Or = 0x40,
    /// Bitwise and.
    And = 0x50,
    ShiftLeft = 0x60,
    /// Shifts to the right, filling with zeros.
    ShiftRight = 0x70,
    /// Replaces the first operand with the second.
    Set = 0xB0,
}

/// Helper functions of the kernel (`include/uapi/linux/bpf.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helper {
    /// Looks up the value of a key in a map.
    MapLookup = 1,
    /// Sets the value of a key in a map.
    MapUpdate = 2,
    /// Removes a key from a map.
    MapDelete = 3,
    /// Returns the time of `CLOCK_MONOTONIC` (ns).
    Now = 5,
    /// Returns the process id in the upper 32 bits, and the thread id in the lower 32 bits.
    ProcessAndThread = 14,
    /// Returns the address of the current task.
    CurrentTask = 35,
    /// Copies from the memory of the current process.
    ReadUser = 112,
    /// Copies from kernel memory.
    ReadKernel = 113,
    /// Copies a string from the memory of the current process.
    ReadUserString = 114,
    /// Reserves space for a record in a ring buffer.
    RingReserve = 131,
    /// Publishes a reserved record.
    RingSubmit = 132,
}

/// A position in the program, as the target of jumps and calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label(usize);

/// A program that is being assembled.
#[derive(Debug, Default)]
pub struct Assembler {
    words: Vec<u64>,
    labels: usize,
    places: HashMap<Label, usize>,
    /// Instructions whose label is not resolved yet: the index of the instruction, the label, and
    /// whether the instruction is a call. The distance to the label is stored in the offset field
    /// of a jump, and in the immediate field of a call.
    targets: Vec<(usize, Label, bool)>,
}

impl Assembler {
    fn push(&mut self, opcode: u8, to: Register, from: Register, offset: i16, immediate: i32) {
        let registers = to | (from << 4);
        let word = u64::from(opcode)
            | u64::from(registers) << 8
            | u64::from(offset as u16) << 16
            | u64::from(immediate as u32) << 32;
        self.words.push(word);
    }

    /// Creates a label. Every label that is used must be placed with [`Self::place`].
    pub fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels)
    }

    /// Places a label at the next instruction.
    pub fn place(&mut self, label: Label) {
        self.places.insert(label, self.words.len());
    }

    /// Appends `to = to OP number` (64-bit arithmetic).
    pub fn number(&mut self, what: Do, to: Register, number: i32) {
        self.push(0x07 | what as u8, to, 0, 0, number);
    }

    /// Appends `to = to OP from` (64-bit arithmetic).
    pub fn register(&mut self, what: Do, to: Register, from: Register) {
        self.push(0x0F | what as u8, to, from, 0, 0);
    }

    /// Appends `to = number`.
    pub fn set(&mut self, to: Register, number: i32) {
        self.number(Do::Set, to, number);
    }

    /// Appends `to = from`.
    pub fn copy(&mut self, to: Register, from: Register) {
        self.register(Do::Set, to, from);
    }

    /// Appends `to = frame + offset`, the address of a location on the stack.
    pub fn stack(&mut self, to: Register, offset: i16) {
        self.copy(to, FRAME);
        self.number(Do::Add, to, offset.into());
    }

    /// Appends `to = *(from + offset)`.
    pub fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        self.push(0x61 | width as u8, to, from, offset, 0);
    }

    /// Appends `*(to + offset) = from`.
    pub fn store(&mut self, width: Width, to: Register, offset: i16, from: Register) {
        self.push(0x63 | width as u8, to, from, offset, 0);
    }

    /// Appends `*(to + offset) = number`.
    pub fn store_number(&mut self, width: Width, to: Register, offset: i16, number: i32) {
        self.push(0x62 | width as u8, to, 0, offset, number);
    }

    /// Appends an atomic 64-bit addition, `*(to + offset) += from`.
    pub fn add_atomically(&mut self, to: Register, offset: i16, from: Register) {
        self.push(0xDB, to, from, offset, 0);
    }

    /// Appends a jump to `label` if `register CONDITION number`.
    pub fn jump_if(&mut self, condition: If, register: Register, number: i32, label: Label) {
        self.targets.push((self.words.len(), label, false));
        self.push(0x05 | condition as u8, register, 0, 0, number);
    }

    /// Appends a jump to `label` if `register CONDITION other`.
    pub fn jump_if_register(
        &mut self,
        condition: If,
        register: Register,
        other: Register,
        label: Label,
    ) {
        self.targets.push((self.words.len(), label, false));
        self.push(0x0D | condition as u8, register, other, 0, 0);
    }

    /// Appends a jump to the label.
    pub fn jump(&mut self, label: Label) {
        self.targets.push((self.words.len(), label, false));
        self.push(0x05, 0, 0, 0, 0);
    }

    /// Appends an instruction that sets `to` to the map with this file descriptor.
    pub fn map(&mut self, to: Register, descriptor: i32) {
        // The source register 1 is BPF_PSEUDO_MAP_FD: the immediate field holds a file descriptor.
        self.push(0x18, to, 1, 0, descriptor);
        self.push(0, 0, 0, 0, 0);
    }

    /// Appends a call of a helper function of the kernel.
    pub fn call(&mut self, helper: Helper) {
        self.push(0x85, 0, 0, 0, helper as i32);
    }

    /// Appends a call of a function of this program.
    pub fn call_label(&mut self, label: Label) {
        self.targets.push((self.words.len(), label, true));
        // The source register 1 is BPF_PSEUDO_CALL: the immediate field holds the distance to the
        // function.
        self.push(0x85, 0, 1, 0, 0);
    }

    /// Appends an instruction that returns from a function or ends the program.
    pub fn exit(&mut self) {
        self.push(0x95, 0, 0, 0, 0);
    }

    /// Resolves all labels and returns the instructions of the program.
    ///
    /// # Panics
    /// If a label was used but never placed, or if a jump is too far. Both are programming errors.
    pub fn finish(mut self) -> Vec<u64> {
        for (at, label, is_call) in self.targets {
            let place = *self.places.get(&label).expect("every label is placed");
            let distance = place as i64 - at as i64 - 1;
            self.words[at] |= if is_call {
                u64::from(distance as i32 as u32) << 32
            } else {
                u64::from(i16::try_from(distance).expect("jumps are short") as u16) << 16
            };
        }
        self.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_and_calls_have_the_distance_to_their_labels() {
        let mut asm = Assembler::default();
        let (end, function) = (asm.label(), asm.label());
        asm.jump_if(If::Equal, 1, 7, end);
        asm.call_label(function);
        asm.place(end);
        asm.exit();
        asm.place(function);
        asm.set(0, -1);
        asm.exit();
        let words = asm.finish();
        assert_eq!(words[0], 0x0000_0007_0001_0115, "if r1 == 7 goto +1");
        assert_eq!(words[1], 0x0000_0001_0000_1085, "call +1");
        assert_eq!(words[3], 0xFFFF_FFFF_0000_00B7, "r0 = -1");
    }

    #[test]
    fn a_map_takes_two_instructions() {
        let mut asm = Assembler::default();
        asm.map(1, 5);
        asm.store(Width::Double, FRAME, -8, 1);
        assert_eq!(asm.finish(), [0x0000_0005_0000_1118, 0, 0x0000_0000_FFF8_1A7B]);
    }
}
