//! What the variables take that a text of PTX declares, as `.global .align 4 .b8 name[4096];` does. This is no parser: what it
//! cannot make sense of counts for more rather than for less.

/// A text that is read byte by byte.
#[derive(Default)]
pub struct Scan {
    state: State,
    /// What stands together: a word, a number, or directives one behind the other.
    word: Vec<u8>,
    /// What is being declared, since the last statement ended.
    variable: Variable,
    /// Bytes that all variables take together.
    sum: u64,
    /// It says the version that every text has to begin with.
    versioned: bool,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Code,
    Slash,
    Line,
    Block,
    Star,
    Quoted,
}

#[derive(Default, Clone)]
struct Variable {
    global: bool,
    /// Bytes of an element, as far as they were told.
    element: Option<u64>,
    vector: u64,
    align: u64,
    aligning: bool,
    /// Elements, by the dimensions so far.
    elements: u64,
    dimension: bool,
    /// Something was read in this dimension.
    counted: bool,
    /// Its initial value is being read.
    value: bool,
    braces: u64,
}

/// Bytes of the largest element there is.
const LARGEST_ELEMENT: u64 = 16;
/// No word that matters is longer.
const LONGEST: usize = 64;

impl Scan {
    /// The next byte.
    pub fn push(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (State::Code, b'/') => State::Slash,
            (State::Code, b'"') => State::Quoted,
            (State::Slash, b'/') => State::Line,
            (State::Slash, b'*') => State::Block,
            (State::Line, b'\n') => State::Code,
            (State::Block | State::Star, b'*') => State::Star,
            (State::Star, b'/') => State::Code,
            (State::Star, _) => State::Block,
            (State::Quoted, b'"') => State::Code,
            (State::Code | State::Slash, _) => {
                if self.state == State::Slash {
                    self.code(b'/');
                }
                self.code(byte);
                State::Code
            }
            (state, _) => state,
        };
        if self.state != State::Code {
            self.end_word();
        }
    }

    /// Bytes that the variables take, `u64::MAX` where that is not to be told; `None` if this was no text of PTX.
    pub fn variables(mut self) -> Option<u64> {
        self.end_word();
        self.end_variable();
        self.versioned.then_some(self.sum)
    }

    fn code(&mut self, byte: u8) {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'$' | b'%') || byte & 0x80 != 0 {
            if self.word.len() <= LONGEST {
                self.word.push(byte);
            }
            return;
        }
        self.end_word();
        let variable = &mut self.variable;
        match byte {
            b'{' if variable.value => variable.braces += 1,
            b'}' if variable.value => variable.braces = variable.braces.saturating_sub(1),
            b';' | b'{' | b'}' => {
                self.end_variable();
                self.variable = Variable::default();
            }
            b',' if variable.braces == 0 => {
                self.end_variable();
                let variable = &mut self.variable;
                (variable.elements, variable.value) = (0, false);
            }
            b'[' if !variable.value => (variable.dimension, variable.counted) = (true, false),
            b']' => variable.dimension = false,
            b'=' => variable.value = true,
            // A size that has to be computed.
            _ if variable.dimension && !byte.is_ascii_whitespace() => variable.elements = u64::MAX,
            _ => {}
        }
    }

    fn end_word(&mut self) {
        let word = core::mem::take(&mut self.word);
        let variable = &mut self.variable;
        if !word.is_empty() && variable.dimension {
            let size = literal(&word).filter(|_| !variable.counted).unwrap_or(u64::MAX);
            variable.counted = true;
            variable.elements = variable.elements.max(1).saturating_mul(size);
        } else if variable.aligning && !word.is_empty() {
            variable.aligning = false;
            variable.align = variable.align.max(literal(&word).unwrap_or(0));
        } else if word.first() == Some(&b'.') && !variable.value {
            // What an instruction begins with, such as `ld.global`, does not begin so.
            for part in word.split(|byte| *byte == b'.') {
                self.versioned |= part == b"version";
                variable.directive(part);
            }
        }
        // Its room is used again.
        self.word = word;
        self.word.clear();
    }

    fn end_variable(&mut self) {
        let variable = &self.variable;
        if variable.global {
            let element = variable.element.unwrap_or(LARGEST_ELEMENT).saturating_mul(variable.vector.max(1));
            let bytes = element.saturating_mul(variable.elements.max(1)).saturating_add(variable.align);
            self.sum = self.sum.saturating_add(bytes);
        }
    }
}

impl Variable {
    fn directive(&mut self, name: &[u8]) {
        match name {
            b"global" => self.global = true,
            b"align" => self.aligning = true,
            b"v2" => self.vector = 2,
            b"v4" => self.vector = 4,
            b"v8" => self.vector = 8,
            [b'b' | b'u' | b's' | b'f', bits @ ..] => {
                let bits = literal(bits).filter(|bits| matches!(bits, 8 | 16 | 32 | 64));
                if let Some(bits) = bits {
                    self.element = Some(self.element.unwrap_or(0).max(bits / 8));
                }
            }
            _ => {}
        }
    }
}

/// The number that is written so. A leading zero makes an octal one, which is no larger than what is read here.
fn literal(word: &[u8]) -> Option<u64> {
    let word = word.get(..LONGEST.min(word.len())).filter(|part| part.len() == word.len())?;
    let word = core::str::from_utf8(word).ok()?.trim_end_matches('U');
    let (digits, radix) = match word.get(..2) {
        Some("0x" | "0X") => (word.get(2..)?, 16),
        Some("0b" | "0B") => (word.get(2..)?, 2),
        _ => (word, 10),
    };
    u64::from_str_radix(digits, radix).ok()
}
