//! Reading what a neighbour has written of itself. It may write anything, at any time.
//!
//! Its files are read, never mapped, since it may cut them; they are not waited for, whatever they are; and every number
//! has its bounds. What is in them may cost accuracy within the bounds that the caller sets, and nothing else.

use std::ffi::CStr;
use std::io;
use std::mem::{offset_of, size_of};
use std::time::{Duration, Instant};

use super::account::join;
use super::beside;
use super::guard;
use super::layout::{
    GPU_TABLE, GPUS, Gpu, Header, OBJECT_TABLE, OBJECTS, Object, Preamble, SLOT_TABLE, SLOTS, Slot,
    gpu_offset, u32_at, u64_at,
};
use super::place::{check_preamble, check_status};
use super::protocol::{held, used};
use super::table;
use crate::sys::file::{File, Identity};
use crate::sys::names;

/// What a neighbour's living processes have written. Units, where nothing else is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Claim {
    /// What they use or have leased; not read any further than `most`.
    pub held: u64,
    /// What they use.
    pub used: u64,
    /// Bytes that the container says are kept for it; `None` where it has said nothing yet.
    pub reserve: Option<u64>,
    /// Whether one of them is between publishing and having looked.
    pub asking: bool,
    /// Whether one of those goes before us.
    pub ahead: bool,
    /// Changes with each of them that begins.
    pub begun: u64,
    /// Since when the first of those waits that wait, in milliseconds since boot.
    pub waiting_since: Option<u64>,
}

/// What is looked for.
#[derive(Clone, Copy)]
pub(super) struct Question {
    /// The card.
    pub uuid: [u8; 16],
    /// Units that are believed at most.
    pub most: u64,
    /// Our own place in the order of those who ask.
    pub ours: Option<Place>,
}

/// A place in the order that all containers agree on: the ledger's file, and the slot in it.
pub(super) type Place = (u64, u64, usize);

/// The place of a slot.
pub(super) fn place_of(file: Identity, slot: usize) -> Place {
    (file.device, file.inode, slot)
}

/// Names that are looked at in a neighbour's directory.
const MOST_NAMES: usize = 256;
/// How long one ledger's owners are asked after; those that are left count as alive.
const PATIENCE: Duration = Duration::from_millis(5);
/// Ledgers of one neighbour that are read: one for each root that it has had.
const MOST_LEDGERS: usize = 64;

impl Claim {
    /// Reads all ledgers in a neighbour's directory of state.
    pub fn read(state: &File, question: Question) -> io::Result<Claim> {
        let list = state.open_in(c".", libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
        let found = names::names(&list, MOST_NAMES)?;
        let mut sum = Claim::default();
        let (mut lively, mut old) = (None, None);
        for name in found.iter().filter(|name| is_ledger(name)).take(MOST_LEDGERS) {
            let Some((claim, alive)) = read_ledger(state, name, question)? else { continue };
            sum.held = sum.held.saturating_add(claim.held).min(question.most);
            sum.used = sum.used.saturating_add(claim.used).min(question.most);
            sum.asking |= claim.asking;
            sum.ahead |= claim.ahead;
            sum.begun = sum.begun.wrapping_add(claim.begun);
            sum.waiting_since = earliest(sum.waiting_since, claim.waiting_since);
            // What a container said under an earlier root counts only while nobody says anything else.
            let reserve = if alive { &mut lively } else { &mut old };
            *reserve = (*reserve).max(claim.reserve);
        }
        sum.reserve = lively.or(old);
        Ok(sum)
    }
}

/// The earlier of two times that may not be known.
pub(super) fn earliest(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn is_ledger(name: &CStr) -> bool {
    let name = name.to_bytes();
    name == b"ledger" || name.starts_with(b"ledger-")
}

/// One ledger, and whether anybody uses it; `None` where it is none.
fn read_ledger(state: &File, name: &CStr, question: Question) -> io::Result<Option<(Claim, bool)>> {
    let file = match state.open_in(name, libc::O_RDONLY, 0) {
        Ok(file) => file,
        Err(error) if is_ours(&error) => return Err(error),
        Err(_) => return Ok(None),
    };
    let Ok(status) = file.status() else { return Ok(None) };
    if check_status(&status, false).is_err() {
        return Ok(None);
    }
    let mut head = vec![0; SLOT_TABLE];
    if !file.read_at(&mut head, 0).is_ok_and(|n| n == SLOT_TABLE)
        || check_preamble(Preamble::parse(&head)).is_err()
    {
        return Ok(None);
    }
    let slots = u32_at(&head, offset_of!(Header, high_water)).map_or(0, |slots| (slots as usize).min(SLOTS));
    let mut table = vec![0; slots * size_of::<Slot>()];
    let read = file.read_at(&mut table, SLOT_TABLE as u64).unwrap_or(0);
    table.truncate(read);
    // After the words: what has left them is found here.
    let mut end = [0; 4];
    let _ = file.read_at(&mut end, offset_of!(Header, objects_end) as u64);
    let objects = (u32::from_ne_bytes(end) as usize).min(OBJECTS);
    let mut shared = vec![0; objects * size_of::<Object>()];
    let read = if objects > 0 { file.read_at(&mut shared, OBJECT_TABLE as u64).unwrap_or(0) } else { 0 };
    shared.truncate(read);
    let since = Instant::now();
    let is_alive = |slot, owner| {
        // It may have put locks without number on its file, each of which the kernel looks at.
        since.elapsed() > PATIENCE
            || guard::is_alive(&file, slot, owner, |name| state.open_in(name, libc::O_RDONLY, 0))
                .unwrap_or(true)
    };
    Ok(Some(parse(&head, &table, &shared, question, status.identity, is_alive)))
}

/// Whether it is us who cannot read just now.
fn is_ours(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EINTR))
}

fn parse(
    head: &[u8],
    table: &[u8],
    shared: &[u8],
    question: Question,
    file: Identity,
    is_alive: impl Fn(usize, u64) -> bool,
) -> (Claim, bool) {
    let number = |bytes: &[u8], at: usize| u64_at(bytes, at).unwrap_or(0);
    let column = (0..GPUS).find(|gpu| {
        let uuid = gpu_offset(*gpu) + offset_of!(Gpu, uuid);
        number(head, gpu_offset(*gpu) + offset_of!(Gpu, key)) != 0
            && join([number(head, uuid), number(head, uuid + 8)]) == question.uuid
    });
    let mut claim = Claim::default();
    let mut alive = false;
    let Some(column) = column else { return (claim, alive) };
    claim.reserve = u64_at(head, gpu_offset(column) + offset_of!(Gpu, reserve));
    for slot in 0..table.len() / size_of::<Slot>() {
        let at = slot * size_of::<Slot>();
        let word = number(table, at + offset_of!(Slot, words) + column * size_of::<u64>());
        let word_of_askers = u32_at(table, at + offset_of!(Slot, asking)).unwrap_or(0);
        let asking = beside::asking(word_of_askers) != 0;
        claim.begun = claim.begun.wrapping_add(beside::begun(word_of_askers));
        let since = number(table, at + offset_of!(Slot, waiting_since));
        let owner = number(table, at + offset_of!(Slot, owner));
        if held(word) == 0 && !asking && since == 0 && alive || !is_alive(slot, owner) {
            continue;
        }
        alive = true;
        claim.held = claim.held.saturating_add(u64::from(held(word)));
        claim.used = claim.used.saturating_add(u64::from(used(word)));
        claim.asking |= asking;
        claim.ahead |= asking && question.ours.is_some_and(|ours| place_of(file, slot) < ours);
        claim.waiting_since = earliest(claim.waiting_since, (since != 0).then_some(since));
        if claim.held >= question.most {
            break;
        }
    }
    if claim.held < question.most {
        let owner = |slot: usize| number(table, slot * size_of::<Slot>() + offset_of!(Slot, owner));
        let counted = table::counted(shared, |slot| is_alive(slot, owner(slot)));
        let sizes = counted.into_iter().filter(|size| size.column == column);
        let units: u64 = sizes.map(|size| u64::from(size.units)).sum();
        claim.held = claim.held.saturating_add(units);
        claim.used = claim.used.saturating_add(units);
    }
    claim.held = claim.held.min(question.most);
    claim.used = claim.used.min(question.most);
    (claim, alive)
}

const _: () = assert!(GPU_TABLE + GPUS * size_of::<Gpu>() == SLOT_TABLE);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::layout::FILE_SIZE;
    use crate::ledger::protocol::pack;

    const FILE: Identity = Identity { device: 1, inode: 7 };
    const ASKED: Question = Question { uuid: [9; 16], most: 1000, ours: Some((1, 7, 1)) };

    fn put(bytes: &mut [u8], at: usize, value: u64) {
        bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }

    /// A ledger whose third column is the card that is asked for.
    fn ledger(words: &[u64]) -> (Vec<u8>, Vec<u8>) {
        let (mut head, mut table) = (vec![0; SLOT_TABLE], vec![0; words.len() * size_of::<Slot>()]);
        put(&mut head, gpu_offset(2), 5);
        head[gpu_offset(2) + 8..gpu_offset(2) + 24].copy_from_slice(&[9; 16]);
        put(&mut head, gpu_offset(2) + offset_of!(Gpu, reserve), 4096);
        for (slot, word) in words.iter().enumerate() {
            table[slot * size_of::<Slot>()] = 1;
            put(&mut table, slot * size_of::<Slot>() + offset_of!(Slot, words) + 16, *word);
        }
        (head, table)
    }

    #[test]
    fn the_living_count_with_what_they_hold() {
        let (head, table) = ledger(&[pack(10, 4), pack(20, 20), pack(5, 5)]);
        let (claim, alive) = parse(&head, &table, &[], ASKED, FILE, |slot, _| slot != 1);
        assert!(alive);
        assert_eq!((claim.held, claim.used, claim.reserve), (15, 9, Some(4096)));
        let (claim, alive) = parse(&head, &table, &[], ASKED, FILE, |_, _| false);
        assert!(!alive);
        assert_eq!((claim.held, claim.reserve), (0, Some(4096)));
    }

    #[test]
    fn another_card_is_another_matter() {
        let (head, table) = ledger(&[pack(10, 4)]);
        let other = Question { uuid: [8; 16], ..ASKED };
        assert_eq!(parse(&head, &table, &[], other, FILE, |_, _| true), (Claim::default(), false));
    }

    #[test]
    fn of_those_who_ask_the_first_goes_ahead() {
        let (head, mut table) = ledger(&[0, 0, 0]);
        table[2 * size_of::<Slot>() + offset_of!(Slot, asking)] = 1;
        let (claim, _) = parse(&head, &table, &[], ASKED, FILE, |_, _| true);
        assert!(claim.asking && !claim.ahead);
        table[offset_of!(Slot, asking)] = 1;
        let (claim, _) = parse(&head, &table, &[], ASKED, FILE, |_, _| true);
        assert!(claim.asking && claim.ahead);
        let (claim, _) = parse(&head, &table, &[], ASKED, FILE, |slot, _| slot == 1);
        assert!(!claim.asking && !claim.ahead);
    }

    #[test]
    fn noise_and_torn_files_cost_no_more_than_what_is_believed() {
        let mut state = 1u64;
        for _ in 0..4 {
            let noise: Vec<u8> = std::iter::repeat_with(|| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) as u8
            })
            .take(FILE_SIZE)
            .collect();
            let uuid = gpu_offset(0) + offset_of!(Gpu, uuid);
            let question = Question { uuid: noise[uuid..uuid + 16].try_into().unwrap(), ..ASKED };
            for end in [FILE_SIZE, SLOT_TABLE + 7, 5000, 10, 0] {
                let (head, table) = noise[..end].split_at(end.min(SLOT_TABLE));
                let shared = noise.get(OBJECT_TABLE..end).unwrap_or_default();
                let (claim, _) = parse(head, table, shared, question, FILE, |_, _| true);
                assert!(claim.held <= 1000 && claim.used <= 1000);
            }
        }
    }
}
