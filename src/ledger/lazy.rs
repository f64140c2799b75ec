//! What of the charge gives way to others: memory that is backed on touch; and the request to let it go at once.

use core::mem::offset_of;
use core::sync::atomic::Ordering;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::account::GpuIndex;
use super::layout::{Header, Preamble};
use super::lost::{Fault, SharingLost};
use super::membership::Ledger;
use super::place::{check_preamble, check_status};
use crate::sys::file::File;

impl Ledger {
    /// So many bytes `more`, or less, of our charge are backed on touch.
    pub fn change_lazy(&self, gpu: GpuIndex, bytes: u64, more: bool) {
        let own = &self.accounts.of(gpu).lazy;
        let to = |now: u64| Some(if more { now.saturating_add(bytes) } else { now.saturating_sub(bytes) });
        let _ = own.fetch_update(Ordering::AcqRel, Ordering::Acquire, to);
        self.tell_lazy(gpu);
    }

    /// Writes the process's own number where the others read it.
    pub(super) fn tell_lazy(&self, gpu: GpuIndex) {
        if let Some((region, column)) = self.region().and_then(|region| Some((region, region.column(gpu)?)))
            && let Some(word) = region.slot_at(region.own_slot()).lazy.get(column)
        {
            word.store(self.accounts.of(gpu).lazy.load(Ordering::Acquire), Ordering::Release);
        }
    }

    /// Whether somebody has asked, since this was last asked or we joined, that lazy memory go to the host.
    pub fn is_trim_due(&self) -> bool {
        let Some(region) = self.region() else { return false };
        let asked = region.header().trims.load(Ordering::Relaxed);
        self.trims_seen.swap(asked, Ordering::Relaxed) != asked
    }

    /// What was asked of others before is not for us.
    pub(super) fn pass_over_trims(&self) {
        let _ = self.is_trim_due();
    }
}

/// Asks the processes that share the ledger at `path` to move their lazy memory to the host, at their next call in which
/// memory is asked for or shown.
pub fn request_trim(path: &Path) -> Result<(), SharingLost> {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    write_request(&name).map_err(|fault| fault.at(&name))
}

fn write_request(path: &CString) -> Result<(), Fault> {
    let file = File::open(path, libc::O_RDWR).map_err(Fault::system("open it for writing"))?;
    let status = file.status().map_err(Fault::system("look at it"))?;
    check_status(&status, false)?;
    let mut head = [0; Preamble::SIZE];
    file.read_at(&mut head, 0).map_err(Fault::system("read it"))?;
    check_preamble(Preamble::parse(&head))?;
    let at = offset_of!(Header, trims) as u64;
    let mut number = [0; 8];
    file.read_at(&mut number, at).map_err(Fault::system("read it"))?;
    // Two at a time may become one request, which is what both asked for.
    let next = u64::from_ne_bytes(number).wrapping_add(1);
    file.write_at(&next.to_ne_bytes(), at).map_err(Fault::system("write to it"))
}
