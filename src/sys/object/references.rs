//! The words in an object's data that hold the address of a function by name.

use core::ffi::{CStr, c_void};

use super::Object;

/// One such word. The loader fills it in when the object is opened, or at the first call through it.
pub struct Reference<'visit> {
    object: &'visit Object<'visit>,
    word: *mut usize,
    weak: bool,
}

impl Object<'_> {
    /// Calls `visit` with every reference to a function that the object itself does not define.
    pub fn references(&self, mut visit: impl FnMut(&CStr, Reference)) {
        let Some(dynamic) = self.dynamic() else { return };
        for entry in dynamic.relocations() {
            let (index, kind) = ((entry.r_info >> 32) as u32, entry.r_info as u32);
            // Most relocations are relative and name no symbol.
            if index == 0 || !holds_an_address(kind) || entry.r_addend != 0 {
                continue;
            }
            let symbol = dynamic.symbol(index);
            if symbol.st_shndx != 0 {
                continue;
            }
            let word = self.base.wrapping_add(entry.r_offset as usize) as *mut usize;
            const STB_WEAK: u8 = 2;
            let weak = symbol.st_info >> 4 == STB_WEAK;
            visit(dynamic.text(symbol.st_name as usize), Reference { object: self, word, weak });
        }
    }
}

impl Reference<'_> {
    /// Whether the object can do without the function.
    pub fn is_weak(&self) -> bool {
        self.weak
    }

    /// The address it holds now.
    pub fn target(&self) -> *const c_void {
        // SAFETY: relocations name words of the object's data, which stays mapped during the visit. Another thread may
        // bind it at this moment, as the loader does by itself: either value is an address.
        unsafe { self.word.read_volatile() as *const c_void }
    }

    /// Whether it still leads to the loader, which binds it at the first call.
    pub fn is_unbound(&self) -> bool {
        self.object.contains(self.target())
    }

    /// Makes it hold `target`. The loader may have made the word read-only after relocation; it is writable for a
    /// moment then. Called during a visit, which holds the loader's lock: one thread at a time does this.
    pub fn redirect(&self, target: *const c_void) {
        // SAFETY: asks for a constant.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let start = (self.word as usize & !(page - 1)) as *mut c_void;
        // SAFETY: the page holds data of a mapped object; it is writable for a moment and then read-only again, as
        // relocated data is, unless that cannot be: then it stays writable, as it was without RELRO.
        unsafe {
            let read_only = self.is_relro();
            if read_only && libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                return;
            }
            self.word.write_volatile(target as usize);
            if read_only {
                libc::mprotect(start, page, libc::PROT_READ);
            }
        }
    }

    /// Whether the word lies in what the loader makes read-only after relocation.
    fn is_relro(&self) -> bool {
        self.object.headers.iter().any(|header| {
            let from = self.object.base.wrapping_add(header.p_vaddr as usize);
            header.p_type == libc::PT_GNU_RELRO
                && (self.word as usize).wrapping_sub(from) < header.p_memsz as usize
        })
    }
}

/// Whether a relocation of this kind stores the plain address of its symbol.
fn holds_an_address(kind: u32) -> bool {
    // R_X86_64_64, _GLOB_DAT, _JUMP_SLOT; R_AARCH64_ABS64, _GLOB_DAT, _JUMP_SLOT.
    #[cfg(target_arch = "x86_64")]
    return matches!(kind, 1 | 6 | 7);
    #[cfg(target_arch = "aarch64")]
    return matches!(kind, 257 | 1025 | 1026);
}
