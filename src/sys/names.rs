//! The names in a directory, read without the C library's streams: they allocate, lock, and can be cancelled.

use std::ffi::CString;
use std::io;

use super::file::File;

/// Where a name begins in a record of `getdents64`, behind inode, offset, length and type.
const NAME: usize = 19;
/// Where the record's length is.
const LENGTH: usize = 16;

/// At most `most` names in `directory`, which must be open for reading; without `.` and `..`.
pub fn names(directory: &File, most: usize) -> io::Result<Vec<CString>> {
    let mut found = Vec::new();
    let mut bytes = [0u8; 4096];
    while found.len() < most {
        // SAFETY: `bytes` is valid for writes of its length; the descriptor is open for as long as it is borrowed.
        let n =
            unsafe { libc::syscall(libc::SYS_getdents64, directory.fd(), bytes.as_mut_ptr(), bytes.len()) };
        match n {
            0 => break,
            n if n > 0 => parse(bytes.get(..n as usize).unwrap_or_default(), most, &mut found),
            _ => return Err(io::Error::last_os_error()),
        }
    }
    Ok(found)
}

fn parse(mut records: &[u8], most: usize, found: &mut Vec<CString>) {
    while let Some(&[low, high]) = records.get(LENGTH..LENGTH + 2) {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        let Some(record) = records.get(..length).filter(|record| record.len() > NAME) else { return };
        let name = record[NAME..].split(|byte| *byte == 0).next().unwrap_or_default();
        if !matches!(name, b"" | b"." | b"..")
            && found.len() < most
            && let Ok(name) = CString::new(name)
        {
            found.push(name);
        }
        records = &records[length..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    fn open(dir: &Path) -> File {
        let path = CString::new(dir.as_os_str().as_bytes()).unwrap();
        File::open(&path, libc::O_RDONLY | libc::O_DIRECTORY).unwrap()
    }

    #[test]
    fn all_names_are_found_also_where_they_fill_several_reads() {
        let dir = tempfile::tempdir().unwrap();
        let mut expected: Vec<String> = (0..300).map(|n| format!("{n}-{}", "x".repeat(n % 90))).collect();
        expected.iter().for_each(|name| std::fs::write(dir.path().join(name), "").unwrap());
        let mut found: Vec<String> = names(&open(dir.path()), 1000)
            .unwrap()
            .into_iter()
            .map(|name| name.into_string().unwrap())
            .collect();
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
        assert_eq!(names(&open(dir.path()), 7).unwrap().len(), 7);
    }

    #[test]
    fn an_empty_directory_has_none_and_a_torn_record_ends_the_list() {
        let dir = tempfile::tempdir().unwrap();
        assert!(names(&open(dir.path()), 10).unwrap().is_empty());
        let mut found = Vec::new();
        parse(&[0xFF; 40], 10, &mut found);
        parse(&[0; 40], 10, &mut found);
        assert!(found.is_empty());
    }
}
