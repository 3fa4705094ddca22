// Lets a user-mode-linux kernel run on a processor with AMX. It restores 2,696 bytes of registers of its processes (all up to AVX-512),
// but the host's kernel accepts only the whole state: 11,008 bytes with AMX. This library, loaded before libc, fills the rest with what
// the process has. Guest programs never use AMX, because a process must request it (arch_prctl), and the guest's kernel cannot.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#ifndef NT_X86_XSTATE
#define NT_X86_XSTATE 0x202
#endif

static long (*next)(int, int, void *, void *);
static unsigned char state[1 << 16];

__attribute__((constructor)) static void find_next(void) { next = dlsym(RTLD_NEXT, "ptrace"); }

long ptrace(enum __ptrace_request request, ...) {
    va_list arguments;
    va_start(arguments, request);
    int process = va_arg(arguments, int);
    void *kind = va_arg(arguments, void *);
    struct iovec *given = va_arg(arguments, void *);
    va_end(arguments);

    long result = next(request, process, kind, given);
    if (result != -1 || errno != EFAULT || request != PTRACE_SETREGSET || kind != (void *)NT_X86_XSTATE) return result;
    struct iovec whole = {state, sizeof state};
    if (next(PTRACE_GETREGSET, process, kind, &whole) == -1) return -1;
    if (given->iov_len >= whole.iov_len) {
        errno = EFAULT;
        return -1;
    }
    memcpy(state, given->iov_base, given->iov_len);
    return next(PTRACE_SETREGSET, process, kind, &whole);
}
