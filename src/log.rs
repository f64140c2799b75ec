//! What the library says, and where: by default nothing on any descriptor, but for one line on stderr when the
//! quota is refused or enforcement is lost.
//!
//! `CUQUOTA_LOG=error|warn|info|debug` and `CUQUOTA_LOG_FILE=PATH` are read once, before the program's own code
//! runs, so that they govern the very first message. No descriptor stays open between messages.

use core::ffi::CStr;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::ffi::CString;
use std::sync::OnceLock;

use crate::sys::{output, runs_with_raised_privilege};

/// How much the user should hear of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Level {
    Error = 1,
    Warn,
    Info,
    Debug,
}

static LEVEL: AtomicU8 = AtomicU8::new(0);
static FILE: OnceLock<CString> = OnceLock::new();

/// Reads the variables and remembers whether there is a stderr at all: a program started without one may open a
/// file in its place, and that is no place for messages.
pub fn start(variable: impl Fn(&CStr) -> Option<&'static CStr>) {
    output::remember_stderr();
    let level = match variable(c"CUQUOTA_LOG").map(CStr::to_bytes) {
        Some(b"error") => Level::Error as u8,
        Some(b"warn") => Level::Warn as u8,
        Some(b"info") => Level::Info as u8,
        Some(b"debug") => Level::Debug as u8,
        _ => 0,
    };
    LEVEL.store(level, Ordering::Relaxed);
    // A file named by the caller of a privileged program must not be written with its privilege.
    if level != 0
        && !runs_with_raised_privilege()
        && let Some(path) = variable(c"CUQUOTA_LOG_FILE").filter(|path| !path.is_empty())
    {
        let _ = FILE.set(path.to_owned());
    }
}

/// Says `message` if the user asked to hear messages of `level`.
pub fn say(level: Level, message: fmt::Arguments) {
    if level as u8 <= LEVEL.load(Ordering::Relaxed) {
        write(format_args!("cuquota: {message}"), FILE.get());
    }
}

/// Says `line` whatever the level: the quota is refused, or enforcement is lost. The caller does so once.
pub fn always(line: fmt::Arguments) {
    write(line, None);
    if let Some(file) = FILE.get() {
        write(line, Some(file));
    }
}

/// Says once in a process that a way to memory is open that should not be.
pub fn enforcement_lost(function: &CStr, why: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        always(format_args!("cuquota: the limit is not enforced on {}: {why}", function.to_string_lossy()));
    }
}

/// Says once in a process that functions of a copy of the driver are refused, as there are too many copies to tell apart.
pub fn too_many_drivers(function: &CStr) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        always(format_args!(
            "cuquota: {} is refused in one more copy of the driver: too many are loaded to tell them apart; load fewer",
            function.to_string_lossy()
        ));
    }
}

/// One line, cut to a fixed length and written at once, so that lines of several processes do not mix.
fn write(line: fmt::Arguments, file: Option<&CString>) {
    let mut buffer = Line { bytes: [0; 2048], length: 0 };
    // Only a line that is too long fails, and is cut.
    let _ = buffer.write_fmt(line);
    buffer.bytes[buffer.length] = b'\n';
    output::write_line(&buffer.bytes[..=buffer.length], file.map(CString::as_c_str));
}

struct Line {
    bytes: [u8; 2048],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last byte is the line's end.
        let room = self.bytes.len() - 1 - self.length;
        let fits = text.len().min(room);
        for (to, from) in self.bytes[self.length..].iter_mut().zip(&text.as_bytes()[..fits]) {
            // It stays one line, whatever a quoted value holds.
            *to = if *from == b'\n' { b' ' } else { *from };
        }
        self.length += fits;
        if fits == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
