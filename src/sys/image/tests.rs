use std::ffi::CString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use super::*;

const MIB: u64 = 1 << 20;
const UNKNOWN: u64 = u64::MAX;

/// The weight of an image, which is the same in memory (where a page that must not be touched comes after it) and in a file.
#[track_caller]
fn weight(image: &[u8]) -> u64 {
    let weight = in_file(image);
    assert_eq!(in_memory(image), weight);
    weight
}

fn in_file(image: &[u8]) -> u64 {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(image).expect("room in it");
    let path = CString::new(file.path().as_os_str().as_bytes()).expect("a path");
    weight_of_file(&path)
}

fn in_memory(image: &[u8]) -> u64 {
    let pages = image.len().div_ceil(4096) + 1;
    // SAFETY: new memory at an address of the kernel's choice.
    let base = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(core::ptr::null_mut(), pages * 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(base, libc::MAP_FAILED);
    // SAFETY: `pages - 1` pages of ours, the image at their end, and one more that becomes a wall.
    unsafe {
        let end = base.cast::<u8>().add((pages - 1) * 4096);
        assert_eq!(libc::mprotect(end.cast(), 4096, libc::PROT_NONE), 0);
        let start = end.sub(image.len());
        core::ptr::copy_nonoverlapping(image.as_ptr(), start, image.len());
        let weight = weight_in_memory(start.cast());
        libc::munmap(base, pages * 4096);
        weight
    }
}

fn put<const N: usize>(image: &mut [u8], at: usize, value: u64) {
    image[at..at + N].copy_from_slice(&value.to_le_bytes()[..N]);
}

/// An ELF file with sections of these types and sizes; those that are in the file lie behind its headers.
fn elf(sections: &[(u64, u64)]) -> Vec<u8> {
    let mut image = vec![0; 64 + 64 * sections.len()];
    image[..4].copy_from_slice(b"\x7fELF");
    put::<1>(&mut image, 4, 2);
    put::<1>(&mut image, 5, 1);
    put::<8>(&mut image, 40, 64);
    put::<2>(&mut image, 58, 64);
    put::<2>(&mut image, 60, sections.len() as u64);
    for (index, (kind, bytes)) in sections.iter().enumerate() {
        let (at, end) = (64 + 64 * index, image.len() as u64);
        put::<4>(&mut image, at + 4, *kind);
        put::<8>(&mut image, at + 24, end);
        put::<8>(&mut image, at + 32, *bytes);
        if *kind == 1 {
            image.resize(image.len() + *bytes as usize, 0);
        }
    }
    image
}

fn fat(payloads: &[&[u8]]) -> Vec<u8> {
    let mut image = vec![0; 16];
    for payload in payloads {
        let at = image.len();
        image.resize(at + 64, 0);
        put::<4>(&mut image, at + 4, 64);
        put::<8>(&mut image, at + 8, payload.len() as u64);
        image.extend_from_slice(payload);
    }
    let bytes = image.len() as u64 - 16;
    put::<4>(&mut image, 0, u64::from(FAT));
    put::<2>(&mut image, 6, 16);
    put::<8>(&mut image, 8, bytes);
    image
}

#[test]
fn an_elf_file_counts_with_what_it_does_not_contain() {
    let image = elf(&[(0, 0), (1, 1000), (8, 500 * MIB), (8, 3)]);
    assert_eq!(weight(&image), 8 * image.len() as u64 + 500 * MIB + 3);
}

#[test]
fn more_sections_than_a_header_can_tell_are_told_by_the_first() {
    let mut image = elf(&[(0, 2), (8, 7 * MIB)]);
    put::<2>(&mut image, 60, 0);
    assert_eq!(weight(&image), 8 * image.len() as u64 + 7 * MIB);
}

#[test]
fn all_images_in_a_fat_binary_count_and_hidden_ones_the_most() {
    let (one, other) = (elf(&[(0, 0), (8, 5 * MIB)]), b".version 7.0\n.global .b8 a[100];\0\0\0\0");
    let text = other.len() as u64 - 4;
    let known = 8 * one.len() as u64 + 5 * MIB + 8 * text + 100;
    assert_eq!(weight(&fat(&[&one, other])), known);
    assert_eq!(weight(&fat(&[&one, other, &[0xf0; 1000]])), known + 64_000);
    // Something else that begins like a text.
    assert_eq!(weight(&fat(&[b"\n.global .b8 a;\0 but then it goes on"])), 64 * 36);
}

#[test]
fn a_wrapper_leads_to_its_fat_binary() {
    let image = fat(&[&elf(&[(8, MIB)])]);
    let mut wrapper = vec![0; 24];
    put::<4>(&mut wrapper, 0, u64::from(FAT_WRAPPER));
    put::<4>(&mut wrapper, 4, 1);
    put::<8>(&mut wrapper, 8, image.as_ptr().addr() as u64);
    assert_eq!(in_memory(&wrapper), weight(&image));
    // One that leads nowhere, one of another version, one that is cut off.
    put::<8>(&mut wrapper, 8, 1 << 46);
    assert_eq!(in_memory(&wrapper), UNKNOWN);
    put::<4>(&mut wrapper, 4, 2);
    assert_eq!(weight(&wrapper), UNKNOWN);
    assert_eq!(in_memory(&wrapper[..12]), UNKNOWN);
}

#[test]
fn whatever_is_cut_off_is_not_read_beyond_its_end() {
    let image = fat(&[&elf(&[(0, 0), (1, 100), (8, MIB)]), b".version 7.0\0"]);
    for end in 0..image.len() {
        // What is missing counts as hidden, but a file is known to be too short.
        assert!(in_memory(&image[..end]) > in_memory(&image) - MIB, "{end}");
        assert_eq!(in_file(&image[..end]), UNKNOWN, "{end}");
    }
    let image = elf(&[(0, 0), (8, MIB)]);
    for end in 4..image.len() {
        assert_eq!(weight(&image[..end]), UNKNOWN, "{end}");
    }
}

#[test]
fn numbers_that_lead_nowhere_do_no_harm() {
    let (elf, fat) = (elf(&[(0, 0), (1, 10), (8, MIB)]), fat(&[&elf(&[(8, MIB)])]));
    for image in [elf, fat] {
        for at in 0..image.len() - 8 {
            for value in [0, 1, u64::from(u32::MAX), u64::MAX, 1 << 63, LARGEST - 1] {
                let mut image = image.clone();
                put::<8>(&mut image, at, value);
                let _ = in_memory(&image);
            }
        }
    }
}

#[test]
fn what_is_not_understood_has_no_weight() {
    assert_eq!(weight(b"\x7fTileIR\0"), UNKNOWN);
    assert_eq!(weight(&[0xde, 0xc0, 0x17, 0x0b, 1, 2, 3]), UNKNOWN);
    assert_eq!(weight(b"no text of PTX"), UNKNOWN);
    assert_eq!(weight(b""), UNKNOWN);
    assert_eq!(weight_of_file(c"/proc/self/no-such-file"), UNKNOWN);
    assert_eq!(weight_of_file(c"/dev/zero"), UNKNOWN);
    // SAFETY: nothing lies there.
    assert_eq!(unsafe { weight_in_memory(core::ptr::null()) }, UNKNOWN);
}

#[test]
fn a_text_ends_with_a_nul_or_its_file() {
    let text = ".version 7.0\n// a comment\n".repeat(1000);
    let with_nul = format!("{text}\0.global .b8 a[1000000];");
    assert_eq!(weight(text.as_bytes()), 8 * text.len() as u64);
    assert_eq!(weight(with_nul.as_bytes()), 8 * text.len() as u64);
}

/// What the variables in a text take.
fn variables(text: &str) -> u64 {
    let text = format!(".version 7.0\n{text}");
    let weight = weight(text.as_bytes());
    if weight == UNKNOWN { UNKNOWN } else { weight - 8 * text.len() as u64 }
}

#[test]
fn the_variables_of_a_text_count_by_their_elements() {
    for (text, bytes) in [
        (".version 7.0\n.target sm_75\n.visible .global .b8 data[500];\n", 500),
        (".global .align 16 .b32 a[0x10][4];", 4 * 64 + 16),
        (".global .v4 .f32 a[10], b;", 160 + 16),
        (".global .u64 a;", 8),
        (".global .f16x2 a[4];", 64),
        (".global .b8 a[4] = {1, 2, 3, 4}, b[100];", 104),
        (".global .b8 a[] = {1, 2}; .global .b8 b[7U];", 8),
        (".global .b8 /* ; */ a[3]; // .global .b8 b[100];\n.global .b8 c[5];", 8),
        (".file 1 \"/usr/*\"\n.visible .global.b8 a[9];", 9),
        (".entry f(.param .u64 p) { .reg .b64 %r<5>; .loc 1 2 3\n ld.global.u32 %r1, [%r2+4]; ret; }", 0),
        (
            ".entry f(.param .u64 p) { .shared .b8 s[4096]; @%p st.global.b32 [%r1], %r2; }\n.global .b8 a[2];",
            2,
        ),
        (".const .b8 a[100]; .extern .shared .b8 s[];", 0),
    ] {
        assert_eq!(variables(text), bytes, "{text}");
    }
}

#[test]
fn sizes_that_would_have_to_be_computed_are_unknown() {
    for text in [".global .b8 a[4*1024];", ".global .b8 a[N];", ".global .b8 a[99999999999999999999999];"] {
        assert_eq!(variables(text), UNKNOWN, "{text}");
    }
    let zeros = format!(".global .b8 a[{}9];", "0".repeat(100));
    assert_eq!(variables(&zeros), UNKNOWN);
    assert_eq!(variables(".global .b64 a[1000000000][1000000000][1000000000];"), UNKNOWN);
}
