//! Modules, whose variables take as much memory as their code says.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};

use super::Reach;
use super::entries::{Answer, Held, answered};

/// PTX with variables of so many bytes, for any card of the last years.
fn image(bytes: u64) -> CString {
    let text = format!(
        ".version 7.0\n.target sm_75\n.address_size 64\n.visible .global .align 4 .b8 data[{bytes}];\n"
    );
    CString::new(text).unwrap_or_default()
}

fn unloading(module: *mut c_void) -> Held {
    Held::by(move |reach| {
        ask!(reach, find, c"cuModuleUnload", (*mut c_void), module);
    })
}

pub fn load_data(reach: &Reach, bytes: u64) -> Answer {
    let (mut module, image) = (std::ptr::null_mut(), image(bytes));
    let code = ask!(
        reach,
        find,
        c"cuModuleLoadData",
        (*mut *mut c_void, *const c_char),
        &mut module,
        image.as_ptr()
    );
    answered(code, || unloading(module))
}

pub fn load_data_ex(reach: &Reach, bytes: u64) -> Answer {
    let (mut module, image) = (std::ptr::null_mut(), image(bytes));
    let code = ask!(
        reach,
        find,
        c"cuModuleLoadDataEx",
        (*mut *mut c_void, *const c_char, c_uint, *mut c_int, *mut *mut c_void),
        &mut module,
        image.as_ptr(),
        0,
        std::ptr::null_mut(),
        std::ptr::null_mut()
    );
    answered(code, || unloading(module))
}

/// From a file that has no name of its own.
pub fn load_file(reach: &Reach, bytes: u64) -> Answer {
    // SAFETY: a C string and a flag; makes a descriptor. By its number, as old C libraries have no name for it.
    let made = unsafe {
        libc::syscall(libc::SYS_memfd_create, c"cuquota-doctor".as_ptr(), libc::MFD_CLOEXEC as libc::c_ulong)
    };
    let descriptor = c_int::try_from(made).ok().filter(|descriptor| *descriptor >= 0)?;
    // SAFETY: just made, and nobody else's.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all(image(bytes).as_bytes()).ok()?;
    let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let mut module = std::ptr::null_mut();
    let code =
        ask!(reach, find, c"cuModuleLoad", (*mut *mut c_void, *const c_char), &mut module, path.as_ptr());
    answered(code, || unloading(module))
}
