//! The calls that container runtimes' default profile (`RuntimeDefault`) refuses. The profile lists what is allowed, which is
//! long; this one lists the rest, but for calls for which the kernel itself wants a capability that the container lacks.

use std::io;

use nix::errno::Errno;

const REFUSED: &[libc::c_long] = &[
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_fanotify_init,
    libc::SYS_get_mempolicy,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_keyctl,
    libc::SYS_mbind,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_request_key,
    libc::SYS_set_mempolicy,
    libc::SYS_syslog,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// `CLONE_NEW*` of all namespaces.
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET)
    .unsigned_abs();

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xc000_00b7;

/// Where struct seccomp_data has the system call's number, the architecture, and the low half of the first argument.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

/// A program for the kernel.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    program: Vec<libc::sock_filter>,
}

impl Filter {
    pub(super) fn runtime_default() -> Self {
        let mut program =
            vec![load(ARCHITECTURE), if_equal(AUDIT_ARCH, 1, 0), answer(libc::SECCOMP_RET_KILL_PROCESS), load(NUMBER)];
        REFUSED.iter().for_each(|call| refuse(&mut program, *call, libc::EPERM));
        // Its flags lie in memory, where a filter cannot look; callers fall back to clone.
        refuse(&mut program, libc::SYS_clone3, libc::ENOSYS);
        refuse_argument(&mut program, libc::SYS_clone, |refuse| any_bit(NAMESPACES, refuse));
        // A hypervisor's sockets.
        let vsock = libc::AF_VSOCK.unsigned_abs();
        refuse_argument(&mut program, libc::SYS_socket, |refuse| if_equal(vsock, refuse, 0));
        program.push(answer(libc::SECCOMP_RET_ALLOW));
        Self { program }
    }

    /// Installs it for this process and its descendants; it cannot be removed. Only system calls. A kernel without filters runs
    /// containers without them.
    #[expect(unsafe_code, reason = "no crate in use wraps seccomp filters")]
    pub(super) fn install(&self) -> io::Result<()> {
        let length = u16::try_from(self.program.len()).map_err(|_| Errno::E2BIG)?;
        let program = libc::sock_fprog { len: length, filter: self.program.as_ptr().cast_mut() };
        // SAFETY: the kernel copies the program, which outlives the call.
        let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
        match Errno::result(set) {
            Ok(_) => Ok(()),
            Err(Errno::EINVAL) if !known() => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Whether the kernel has filters: it can name what they may answer.
#[expect(unsafe_code, reason = "no crate in use wraps seccomp filters")]
fn known() -> bool {
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel reads one number, which outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) };
    result == 0
}

fn refuse(program: &mut Vec<libc::sock_filter>, call: libc::c_long, errno: i32) {
    program.push(if_equal(number(call), 0, 1));
    program.push(answer(libc::SECCOMP_RET_ERRNO | errno.unsigned_abs()));
}

/// Refuses a call by its first argument. `test` jumps by what it is given in order to refuse, and not at all otherwise.
fn refuse_argument(program: &mut Vec<libc::sock_filter>, call: libc::c_long, test: impl Fn(u8) -> libc::sock_filter) {
    program.push(if_equal(number(call), 0, 4));
    program.push(load(FIRST_ARGUMENT));
    program.push(test(1));
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program.push(answer(libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs()));
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

fn load(offset: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

fn answer(value: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, value)
}

/// Jumps by `equal` or by `other`.
fn if_equal(value: u32, equal: u8, other: u8) -> libc::sock_filter {
    libc::sock_filter { jt: equal, jf: other, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value) }
}

/// Jumps by `set` when a bit of the mask is set.
fn any_bit(mask: u32, set: u8) -> libc::sock_filter {
    libc::sock_filter { jt: set, jf: 0, ..statement(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, mask) }
}

fn statement(code: u32, operand: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap_or(0), jt: 0, jf: 0, k: operand }
}
