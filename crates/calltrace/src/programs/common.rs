//! Instructions that several BPF programs share: they read kernel memory, describe a file, or write
//! a record.

use super::{Context, Lost, Program, WATCHED};
use crate::assembler::{Assembler, Do, FRAME, Helper, If, Label, Register, Width};
use crate::record::Kind;

/// Flag of `bpf_ringbuf_submit` (`BPF_RB_NO_WAKEUP`). The reader polls, so it need not be woken.
const NO_WAKEUP: i32 = 1;
/// Bits of a file mode that contain the file type, and the type of a block device (`inode(7)`).
const TYPE_MASK: i32 = 0o170_000;
const TYPE_DEVICE: i32 = 0o060_000;

/// Maximum length of kernel memory that is copied at once to read several members (bytes).
const SPAN_MAX: i32 = 128;
/// Stack offset of copied structure members in functions that call no other function. Other
/// functions use less stack ([`FEW_MEMBERS`]), because a chain of function calls may use at most
/// 512 bytes of stack before Linux 6.13. The kernel rounds the usage of each function up to a
/// multiple of 32 bytes.
const MEMBERS: i16 = -144;
/// Stack offset of two adjacent structure members in functions that call other functions.
const FEW_MEMBERS: i16 = -32;

/// Directory descriptor that means the working directory (`AT_FDCWD`).
pub const CURRENT_FOLDER: i32 = -100;

/// Size of a file description, which contains the inode, device, mode, flags and position (bytes).
pub const FILE_BYTES: i16 = 32;

/// Assembles one BPF program.
pub struct Writer<'a> {
    pub asm: Assembler,
    pub context: &'a Context<'a>,
    /// Label of the function that describes the file of a descriptor.
    descriptor: Label,
    /// Label of the function that describes the kernel's `struct file`.
    file: Label,
    /// Label of the function that describes a `struct file` without its inode.
    open_file: Label,
    /// Label of the function that describes the kernel's `struct inode`.
    inode: Label,
    /// Label of the function that describes the working directory.
    folder: Label,
    uses: [bool; 4],
}

impl<'a> Writer<'a> {
    pub fn new(context: &'a Context<'a>) -> Writer<'a> {
        let mut asm = Assembler::default();
        let [descriptor, file, open_file, inode, folder] = std::array::from_fn(|_| asm.label());
        Writer { asm, context, descriptor, file, open_file, inode, folder, uses: [false; 4] }
    }

    /// Copies `bytes` bytes of kernel memory at `from + offset` to the stack at `to`.
    pub fn read_kernel(&mut self, to: i16, bytes: i32, from: Register, offset: i32) {
        self.asm.copy(3, from);
        self.asm.number(Do::Add, 3, offset);
        self.asm.stack(1, to);
        self.asm.set(2, bytes);
        self.asm.call(Helper::ReadKernel);
    }

    /// Sets `to` to the pointer at `from + offset` in kernel memory. Uses the stack at `place`.
    pub fn follow(&mut self, to: Register, from: Register, offset: i32, place: i16) {
        self.read_kernel(place, 8, from, offset);
        self.asm.load(Width::Double, to, FRAME, place);
    }

    /// Sets r7 to the ids of the current process and thread, and r1 to the value of the process in
    /// the map of watched processes. Jumps to `out` if the map does not contain the process. Uses
    /// the stack at -8.
    pub fn load_watched(&mut self, out: Label) {
        self.asm.call(Helper::ProcessAndThread);
        self.asm.copy(7, 0);
        self.asm.copy(1, 0);
        self.asm.number(Do::ShiftRight, 1, 32);
        self.asm.store(Width::Word, FRAME, -8, 1);
        self.look_up(self.context.maps.watched.descriptor(), -8);
        self.asm.jump_if(If::Equal, 0, 0, out);
        self.asm.load(Width::Double, 1, 0, 0);
    }

    /// Like [`Writer::load_watched`], but also jumps to `out` unless the process itself is watched.
    pub fn only_watched(&mut self, out: Label) {
        self.load_watched(out);
        self.asm.jump_if(If::NotEqual, 1, WATCHED as i32, out);
    }

    /// Looks up the key at the stack offset `key` in a map. Sets r0 to the address of the value, or
    /// to 0 if the map does not contain the key.
    pub fn look_up(&mut self, map: i32, key: i16) {
        self.asm.map(1, map);
        self.asm.stack(2, key);
        self.asm.call(Helper::MapLookup);
    }

    /// Copies members of a kernel structure to the stack at `to`, and returns their stack offsets.
    /// Each member has at most 8 bytes. Members that are close together are copied at once.
    pub fn read_members<const N: usize>(
        &mut self,
        to: i16,
        from: Register,
        offsets: [i32; N],
    ) -> [i16; N] {
        let first = offsets.into_iter().min().unwrap_or(0);
        let span = offsets.into_iter().max().unwrap_or(0) - first + 8;
        if span <= SPAN_MAX {
            self.read_kernel(to, span, from, first);
            return offsets.map(|offset| to + (offset - first) as i16);
        }
        let places = std::array::from_fn(|at| to + at as i16 * 8);
        for (place, offset) in places.into_iter().zip(offsets) {
            self.read_kernel(place, 8, from, offset);
        }
        places
    }

    /// Sets an entry of a map. `key` and `value` are stack offsets. If the map is full, counts a
    /// lost request.
    pub fn update(&mut self, map: i32, key: i16, value: i16) {
        self.update_or_count(map, key, value, Lost::InProgress);
    }

    /// Like [`Writer::update`], but counts a failed update as `loss`.
    pub fn update_or_count(&mut self, map: i32, key: i16, value: i16, loss: Lost) {
        self.asm.map(1, map);
        self.asm.stack(2, key);
        self.asm.stack(3, value);
        self.asm.set(4, 0);
        self.asm.call(Helper::MapUpdate);
        let done = self.asm.label();
        self.asm.jump_if(If::Equal, 0, 0, done);
        self.count(loss, key);
        self.asm.place(done);
    }

    /// Removes the key at the stack offset `key` from a map.
    pub fn delete(&mut self, map: i32, key: i16) {
        self.asm.map(1, map);
        self.asm.stack(2, key);
        self.asm.call(Helper::MapDelete);
    }

    /// Counts one lost event. Uses the stack at `place`.
    pub fn count(&mut self, what: Lost, place: i16) {
        self.count_loss(what, place, None);
    }

    /// Counts several lost events. Their number is in the register `number`, one of r6 to r9.
    pub fn count_many(&mut self, what: Lost, place: i16, number: Register) {
        self.count_loss(what, place, Some(number));
    }

    fn count_loss(&mut self, what: Lost, place: i16, number: Option<Register>) {
        self.asm.store_number(Width::Word, FRAME, place, what as i32);
        self.look_up(self.context.maps.lost.descriptor(), place);
        let none = self.asm.label();
        self.asm.jump_if(If::Equal, 0, 0, none);
        match number {
            Some(number) => self.asm.copy(1, number),
            None => self.asm.set(1, 1),
        }
        self.asm.add_atomically(0, 0, 1);
        self.asm.place(none);
    }

    /// Reserves a record of `bytes` bytes in the ring buffer and sets r0 to its address. Writes the
    /// kind, and the process and thread ids from r7. If the buffer is full, counts the loss and
    /// jumps to `out`. Uses the stack at `place`.
    pub fn reserve(&mut self, kind: Kind, bytes: usize, place: i16, out: Label) {
        self.asm.map(1, self.context.ring);
        self.asm.set(2, bytes as i32);
        self.asm.set(3, 0);
        self.asm.call(Helper::RingReserve);
        let there = self.asm.label();
        self.asm.jump_if(If::NotEqual, 0, 0, there);
        self.count(Lost::Records, place);
        self.asm.jump(out);
        self.asm.place(there);
        self.asm.store_number(Width::Double, 0, 0, kind as i32);
        self.asm.store(Width::Double, 0, 8, 7);
    }

    /// Copies `bytes` bytes from the stack at `from` into the record at r0. Overwrites r1.
    pub fn put_stack(&mut self, at: i16, from: i16, bytes: i16) {
        self.put(at, FRAME, from, bytes);
    }

    /// Copies `bytes` bytes from `base + from` into the record at r0. Overwrites r1.
    pub fn put(&mut self, at: i16, base: Register, from: i16, bytes: i16) {
        for step in (0..bytes).step_by(8) {
            self.asm.load(Width::Double, 1, base, from + step);
            self.asm.store(Width::Double, 0, at + step, 1);
        }
    }

    /// Publishes the record at r0.
    pub fn submit(&mut self) {
        self.asm.copy(1, 0);
        self.asm.set(2, NO_WAKEUP);
        self.asm.call(Helper::RingSubmit);
    }

    /// Writes zeros to the stack at `at`.
    pub fn clear(&mut self, at: i16, bytes: i16) {
        for step in (0..bytes).step_by(8) {
            self.asm.store_number(Width::Double, FRAME, at + step, 0);
        }
    }

    /// Describes the file whose descriptor is in r1. Writes the description to the stack at `to`.
    /// Sets r0 to the type of the file, or to 0 if there is no file.
    pub fn describe_descriptor(&mut self, to: i16) {
        self.uses[0] = true;
        self.asm.stack(2, to);
        self.asm.call_label(self.descriptor);
    }

    /// Describes the `struct file` at the address in r1. Writes the description to the stack at
    /// `to`.
    pub fn describe_file(&mut self, to: i16) {
        self.uses[1] = true;
        self.asm.stack(2, to);
        self.asm.call_label(self.file);
    }

    /// Describes the inode at the address in r1. Writes the description to the stack at `to`.
    pub fn describe_inode(&mut self, to: i16) {
        self.uses[2] = true;
        self.asm.stack(2, to);
        self.asm.call_label(self.inode);
    }

    /// Describes the working directory of the process. Writes the description to the stack at `to`.
    pub fn describe_folder(&mut self, to: i16) {
        self.uses[3] = true;
        self.asm.stack(2, to);
        self.asm.call_label(self.folder);
    }

    /// Puts the label `out` at the end of the program, adds the functions that the program calls,
    /// and returns the program.
    pub fn finish(mut self, tracepoint: &'static str, out: Label) -> Program {
        self.asm.place(out);
        self.asm.set(0, 0);
        self.asm.exit();
        let [descriptor, file, inode, folder] = self.uses;
        if descriptor {
            self.descriptor_function();
        }
        if descriptor || file {
            self.file_function();
            self.open_file_function();
        }
        if descriptor || file || inode || folder {
            self.inode_function();
        }
        if folder {
            self.folder_function();
        }
        Program { tracepoint, instructions: self.asm.finish() }
    }

    /// Adds the function that describes the file of a descriptor. Arguments: r1 = descriptor, r2 =
    /// address of the description.
    fn descriptor_function(&mut self) {
        let layout = self.context.layout.file;
        let none = self.begin_function(self.descriptor);
        self.asm.number(Do::ShiftLeft, 6, 32);
        self.asm.number(Do::ShiftRight, 6, 32);
        self.asm.call(Helper::CurrentTask);
        self.asm.copy(8, 0);
        self.follow(8, 8, layout.task_files, -8);
        self.follow(8, 8, layout.files_table, -8);
        let [most, array] =
            self.read_members(FEW_MEMBERS, 8, [layout.table_max, layout.table_array]);
        self.asm.load(Width::Word, 1, FRAME, most);
        self.asm.jump_if_register(If::AtLeast, 6, 1, none);
        self.asm.load(Width::Double, 8, FRAME, array);
        self.asm.number(Do::ShiftLeft, 6, 3);
        self.asm.register(Do::Add, 8, 6);
        self.follow(1, 8, 0, -8);
        self.asm.jump_if(If::Equal, 1, 0, none);
        self.asm.copy(2, 7);
        self.asm.call_label(self.file);
        self.asm.exit();
        self.end_function(none);
    }

    /// Adds the function that describes a file. Arguments: r1 = address of the file, r2 = address
    /// of the description.
    fn file_function(&mut self) {
        let none = self.begin_function(self.file);
        self.asm.call_label(self.open_file);
        self.asm.jump_if(If::Equal, 0, 0, none);
        self.asm.copy(1, 0);
        self.asm.copy(2, 7);
        self.asm.call_label(self.inode);
        self.asm.exit();
        self.end_function(none);
    }

    /// Adds the function that describes the flags and the position of an open file. Arguments: r1 =
    /// address of the file, r2 = address of the description. Result: r0 = address of the inode.
    fn open_file_function(&mut self) {
        let layout = self.context.layout.file;
        self.begin_function(self.open_file);
        let [inode, flags, position] = self.read_members(
            MEMBERS,
            6,
            [layout.file_inode, layout.file_flags, layout.file_position],
        );
        self.asm.load(Width::Word, 1, FRAME, flags);
        self.asm.store(Width::Word, 7, 16, 1);
        self.asm.load(Width::Double, 1, FRAME, position);
        self.asm.store(Width::Double, 7, 24, 1);
        self.asm.load(Width::Double, 0, FRAME, inode);
        self.asm.exit();
    }

    /// Adds the function that describes an inode. Arguments: r1 = address of the inode, r2 =
    /// address of the description. A device is described by its device number, with 0 as the inode
    /// number.
    fn inode_function(&mut self) {
        let layout = self.context.layout.file;
        let none = self.begin_function(self.inode);
        let (other, described) = (self.asm.label(), self.asm.label());
        let [number, mode, device, on] = self.read_members(
            MEMBERS,
            6,
            [layout.inode_number, layout.inode_mode, layout.inode_device, layout.inode_super],
        );
        self.asm.load(Width::Double, 1, FRAME, number);
        self.asm.load(Width::Half, 8, FRAME, mode);
        self.asm.load(Width::Word, 2, FRAME, device);
        self.asm.load(Width::Double, 6, FRAME, on);
        self.asm.store(Width::Word, 7, 12, 8);
        self.asm.number(Do::And, 8, TYPE_MASK);
        self.asm.jump_if(If::NotEqual, 8, TYPE_DEVICE, other);
        self.asm.store(Width::Word, 7, 8, 2);
        self.asm.store_number(Width::Double, 7, 0, 0);
        self.asm.jump(described);
        self.asm.place(other);
        self.asm.store(Width::Double, 7, 0, 1);
        self.asm.jump_if(If::Equal, 6, 0, none);
        self.read_into(8, 4, 6, layout.super_device);
        self.asm.place(described);
        self.asm.copy(0, 8);
        self.asm.exit();
        self.end_function(none);
    }

    /// Adds the function that describes the working directory. Argument: r2 = address of the
    /// description.
    fn folder_function(&mut self) {
        let layout = self.context.layout.file;
        let none = self.begin_function(self.folder);
        self.asm.call(Helper::CurrentTask);
        self.asm.copy(8, 0);
        self.follow(8, 8, layout.task_fs, -8);
        self.follow(8, 8, layout.fs_folder, -8);
        self.follow(1, 8, layout.dentry_inode, -8);
        self.asm.jump_if(If::Equal, 1, 0, none);
        self.asm.copy(2, 7);
        self.asm.call_label(self.inode);
        self.asm.exit();
        self.end_function(none);
    }

    /// Begins a function: copies its first argument to r6 and its second argument to r7. Returns a
    /// label for [`Writer::end_function`].
    fn begin_function(&mut self, label: Label) -> Label {
        self.asm.place(label);
        self.asm.copy(6, 1);
        self.asm.copy(7, 2);
        self.asm.label()
    }

    fn end_function(&mut self, none: Label) {
        self.asm.place(none);
        self.asm.set(0, 0);
        self.asm.exit();
    }

    /// Copies `bytes` bytes of kernel memory at `from + offset` into the description at r7.
    fn read_into(&mut self, at: i32, bytes: i32, from: Register, offset: i32) {
        self.asm.copy(3, from);
        self.asm.number(Do::Add, 3, offset);
        self.asm.copy(1, 7);
        self.asm.number(Do::Add, 1, at);
        self.asm.set(2, bytes);
        self.asm.call(Helper::ReadKernel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::calls;

    #[test]
    fn the_longest_chain_of_functions_fits_the_stack_of_older_kernels() {
        let rounded = |bytes: i16| bytes.unsigned_abs().max(1).next_multiple_of(32);
        // The exit program calls the function for descriptors, which calls the function for files,
        // which calls the function for inodes.
        let chain = [calls::LOWEST, FEW_MEMBERS, 0, MEMBERS];
        assert!(chain.into_iter().map(rounded).sum::<u16>() <= 512);
    }
}
