//! Standing in front of a child so that whoever signals us reaches it.

use std::io;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// What is passed on to the child. The rest either cannot be caught or concerns this process alone.
const FORWARDED: [libc::c_int; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// The child that signals go to; 0 where there is none.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// The signals that came before there was a child, one bit each.
static EARLY: AtomicU64 = AtomicU64::new(0);

/// From now on, and for good, the signals that would end this process go to the child that [`wait_for_child`] waits for.
/// To be called before the child is started, whose own signal handling is not changed by it.
///
/// What the terminal sends goes to the child by itself and is not passed on a second time. A signal that was
/// ignored stays ignored, here and in the child (`nohup`).
pub fn forward_to_child() -> io::Result<()> {
    for signal in FORWARDED {
        // SAFETY: both structures are valid, zero is a valid sigaction, and the handler only does what is allowed
        // in a handler; a null pointer for the new or the old action means that it is not set or not wanted.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut before) != 0 {
                return Err(io::Error::last_os_error());
            }
            if before.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = forward
                as unsafe extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void)
                as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            if libc::sigaction(signal, &action, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

/// Waits for `child`, passing signals on to it meanwhile.
pub fn wait_for_child(child: &mut Child) -> io::Result<ExitStatus> {
    let pid = child.id() as libc::pid_t;
    CHILD.store(pid, Ordering::SeqCst);
    let early = EARLY.swap(0, Ordering::SeqCst);
    for signal in FORWARDED.iter().filter(|signal| early & (1 << **signal) != 0) {
        // SAFETY: kill takes any numbers; `pid` is our child and not yet waited for.
        unsafe { libc::kill(pid, *signal) };
    }
    // The child is first seen to have ended and only then reaped: in between, a signal finds nobody rather than
    // a stranger with its number.
    loop {
        // SAFETY: zero is a valid siginfo_t, which waitid fills in; WNOWAIT leaves the child to be reaped.
        let seen = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, libc::WEXITED | libc::WNOWAIT)
        };
        if seen == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break;
        }
    }
    CHILD.store(0, Ordering::SeqCst);
    child.wait()
}

/// # Safety
/// For the kernel to call, as the handler of a signal installed with `SA_SIGINFO`.
unsafe extern "C" fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo_t.
    let from_terminal = unsafe { (*info).si_code } == libc::SI_KERNEL;
    if from_terminal {
        return;
    }
    match CHILD.load(Ordering::SeqCst) {
        0 => {
            EARLY.fetch_or(1 << signal, Ordering::SeqCst);
        }
        // SAFETY: kill is safe in a handler and takes any numbers; errno, which it may set, is put back, as
        // whatever was interrupted may be about to read its own.
        child => unsafe {
            let errno = *libc::__errno_location();
            libc::kill(child, signal);
            *libc::__errno_location() = errno;
        },
    }
}
