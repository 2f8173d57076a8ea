//! Reads the kernel's type information (BTF). It contains the offsets of structure members (bytes)
//! and the positions of tracepoint arguments, which differ between kernel versions.

use crate::btf::Btf;

/// Offsets for finding the open files and the working directory of the current process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLayout {
    pub task_files: i32,
    pub files_table: i32,
    pub table_max: i32,
    pub table_array: i32,
    pub file_inode: i32,
    pub file_flags: i32,
    pub file_position: i32,
    pub inode_number: i32,
    pub inode_mode: i32,
    pub inode_device: i32,
    pub inode_super: i32,
    pub super_device: i32,
    pub task_fs: i32,
    pub fs_folder: i32,
    pub dentry_inode: i32,
}

/// Offsets in `struct task_struct`, which describes a thread, and in `struct signal_struct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLayout {
    pub process: i32,
    pub thread: i32,
    pub name: i32,
    /// Offset of `nvcsw`, the number of voluntary context switches.
    pub sleeps: i32,
    pub signal: i32,
    pub signal_live: i32,
}

/// Offsets for requests of the block layer, and the position of the `struct request` argument in
/// each tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    pub issue_argument: usize,
    pub complete_argument: usize,
    pub sector: i32,
    pub bytes: i32,
    pub flags: i32,
    pub queue: i32,
    pub queue_disk: i32,
    pub disk_major: i32,
    pub disk_minor: i32,
}

/// Offsets in `struct bio`, and the position of the bio argument in the tracepoint
/// `block_bio_queue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BioLayout {
    pub argument: usize,
    pub bytes: i32,
    pub flags: i32,
}

/// Offsets in io_uring requests, and the positions of arguments in the io_uring tracepoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UringLayout {
    pub submit_argument: usize,
    pub complete_argument: usize,
    /// Position of the result argument. On newer kernels, this argument is a pointer to the
    /// completion, which contains the result.
    pub result_argument: usize,
    /// Offset of the result in the completion. None if the argument is the result itself.
    pub result: Option<i32>,
    pub file: i32,
    pub opcode: i32,
    pub position: i32,
    pub length: i32,
}

/// Offsets and argument positions for the tracepoint of page faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultLayout {
    pub mapping_argument: usize,
    pub index_argument: usize,
    pub mapping_host: i32,
}

/// All offsets for the running kernel. An optional field has the offsets for one kind of event. It
/// is None if such events cannot be recorded on this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub file: FileLayout,
    pub task: TaskLayout,
    pub block: Option<BlockLayout>,
    pub bio: Option<BioLayout>,
    pub uring: Option<UringLayout>,
    pub fault: Option<FaultLayout>,
}

impl Layout {
    /// Reads the offsets from the type information. None if a required offset is missing.
    pub fn of(btf: &Btf) -> Option<Layout> {
        let task = TaskLayout {
            process: offset(btf, "task_struct", "tgid")?,
            thread: offset(btf, "task_struct", "pid")?,
            name: offset(btf, "task_struct", "comm")?,
            sleeps: offset(btf, "task_struct", "nvcsw")?,
            signal: offset(btf, "task_struct", "signal")?,
            signal_live: offset(btf, "signal_struct", "live")?,
        };
        Some(Layout {
            file: file(btf)?,
            task,
            block: block(btf),
            bio: bio(btf),
            uring: uring(btf),
            fault: fault(btf),
        })
    }
}

fn offset(btf: &Btf, structure: &str, path: &str) -> Option<i32> {
    i32::try_from(btf.offset(structure, path)?).ok()
}

/// Returns the position of the tracepoint argument that is a pointer to this structure.
fn argument(btf: &Btf, tracepoint: &str, structure: &str) -> Option<usize> {
    btf.arguments(tracepoint)?.iter().position(|name| *name == structure)
}

fn file(btf: &Btf) -> Option<FileLayout> {
    Some(FileLayout {
        task_files: offset(btf, "task_struct", "files")?,
        files_table: offset(btf, "files_struct", "fdt")?,
        table_max: offset(btf, "fdtable", "max_fds")?,
        table_array: offset(btf, "fdtable", "fd")?,
        file_inode: offset(btf, "file", "f_inode")?,
        file_flags: offset(btf, "file", "f_flags")?,
        file_position: offset(btf, "file", "f_pos")?,
        inode_number: offset(btf, "inode", "i_ino")?,
        inode_mode: offset(btf, "inode", "i_mode")?,
        inode_device: offset(btf, "inode", "i_rdev")?,
        inode_super: offset(btf, "inode", "i_sb")?,
        super_device: offset(btf, "super_block", "s_dev")?,
        task_fs: offset(btf, "task_struct", "fs")?,
        fs_folder: offset(btf, "fs_struct", "pwd.dentry")?,
        dentry_inode: offset(btf, "dentry", "d_inode")?,
    })
}

fn block(btf: &Btf) -> Option<BlockLayout> {
    Some(BlockLayout {
        issue_argument: argument(btf, "block_rq_issue", "request")?,
        complete_argument: argument(btf, "block_rq_complete", "request")?,
        sector: offset(btf, "request", "__sector")?,
        bytes: offset(btf, "request", "__data_len")?,
        flags: offset(btf, "request", "cmd_flags")?,
        queue: offset(btf, "request", "q")?,
        queue_disk: offset(btf, "request_queue", "disk")?,
        disk_major: offset(btf, "gendisk", "major")?,
        disk_minor: offset(btf, "gendisk", "first_minor")?,
    })
}

fn bio(btf: &Btf) -> Option<BioLayout> {
    Some(BioLayout {
        argument: argument(btf, "block_bio_queue", "bio")?,
        bytes: offset(btf, "bio", "bi_iter.bi_size")?,
        flags: offset(btf, "bio", "bi_opf")?,
    })
}

/// Returns None before Linux 5.19, because the completion tracepoint of older kernels does not
/// contain the request.
fn uring(btf: &Btf) -> Option<UringLayout> {
    let completion = btf.arguments("io_uring_complete")?;
    let (result_argument, result) = match completion.iter().position(|s| *s == "io_uring_cqe") {
        Some(at) => (at, Some(offset(btf, "io_uring_cqe", "res")?)),
        None if completion.len() >= 5 => (3, None),
        None => return None,
    };
    Some(UringLayout {
        submit_argument: argument(btf, "io_uring_submit_req", "io_kiocb")?,
        complete_argument: 1,
        result_argument,
        result,
        file: offset(btf, "io_kiocb", "file")?,
        opcode: offset(btf, "io_kiocb", "opcode")?,
        position: offset(btf, "io_rw", "kiocb.ki_pos")?,
        length: offset(btf, "io_rw", "len")?,
    })
}

fn fault(btf: &Btf) -> Option<FaultLayout> {
    let mapping_argument = argument(btf, "mm_filemap_fault", "address_space")?;
    Some(FaultLayout {
        mapping_argument,
        index_argument: mapping_argument + 1,
        mapping_host: offset(btf, "address_space", "host")?,
    })
}
