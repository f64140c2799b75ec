//! Older drivers: a copy of the simulated one without the names that it did not have yet.

use super::failure::Failure;

/// Every exported name, and the version that it appeared in: `symbol, base name, since, per thread`, split by tabs.
const NAMES: &str = include_str!("../../tests/sim/names.tsv");

/// The version that `driver=` in a spec asks for, as the driver writes it: 11040 for 11.4.
pub fn asked(spec: &str) -> Option<u32> {
    let value = spec.split(',').map(str::trim).filter_map(|part| part.strip_prefix("driver=")).next_back()?;
    let (major, minor) = value.split_once('.')?;
    let (major, minor) = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
    major.checked_mul(1000)?.checked_add(minor.checked_mul(10)?)
}

/// `library` as a driver of that version has it: a program that asks for a newer name finds none.
pub fn as_of(library: &[u8], version: u32) -> Result<Vec<u8>, Failure> {
    let newer = |name: &str| since(name).is_some_and(|since| since > version);
    let mut copy = library.to_vec();
    hide(&mut copy, newer).ok_or_else(|| {
        Failure::new("the simulated driver is damaged", "this should not happen: please report it")
    })?;
    Ok(copy)
}

fn since(name: &str) -> Option<u32> {
    let row = NAMES.lines().find(|line| line.split('\t').next() == Some(name))?;
    row.split('\t').nth(2)?.parse().ok()
}

/// A symbol in the file: its name's offset, its section and its value.
const SYMBOL: usize = 24;

/// Makes the dynamic symbols whose names are `unwanted` undefined. `None` where this is no library as linkers make them.
fn hide(library: &mut [u8], unwanted: impl Fn(&str) -> bool) -> Option<()> {
    const SHT_DYNSYM: u64 = 11;
    let number = |library: &[u8], at: usize, length: usize| {
        let bytes = library.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    };
    let sections = number(library, 40, 8)? as usize;
    let (size, count) = (number(library, 58, 2)? as usize, number(library, 60, 2)? as usize);
    let section = |index: usize| sections + index * size;
    let symbols = (0..count).map(section).find(|&at| number(library, at + 4, 4) == Some(SHT_DYNSYM))?;
    let (start, length) =
        (number(library, symbols + 24, 8)? as usize, number(library, symbols + 32, 8)? as usize);
    let strings = number(library, section(number(library, symbols + 40, 4)? as usize) + 24, 8)? as usize;
    for at in (start..start.checked_add(length)?).step_by(SYMBOL).skip(1) {
        let name = library.get(strings + number(library, at, 4)? as usize..)?;
        let name = name.split(|&byte| byte == 0).next()?;
        if std::str::from_utf8(name).is_ok_and(&unwanted) {
            // The section and the value.
            library.get_mut(at + 6..at + 16)?.fill(0);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_what_the_spec_says_last() {
        assert_eq!(asked("16GiB,driver=11.4"), Some(11040));
        assert_eq!(asked("driver=11.4,16GiB, driver=12.9"), Some(12090));
        for spec in ["16GiB", "driver=13", "driver=a.b", "driver=99999999.0"] {
            assert_eq!(asked(spec), None, "{spec}");
        }
    }

    #[test]
    fn names_are_as_old_as_the_table_says() {
        assert_eq!(since("cuMemAllocAsync"), Some(11020));
        assert_eq!(since("simgpu_card_used"), None);
    }

    #[test]
    fn what_is_no_library_is_refused() {
        assert!(hide(&mut b"\x7fELF".to_vec(), |_| true).is_none());
    }
}
