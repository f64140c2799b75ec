//! Two runs of the same program, one of them under the preload library, asked in turn.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::Duration;

use crate::common::{Container, Machine, Run, programs};

/// A running `benches/c/meter.c`. Killed when dropped.
pub struct Meter {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// How the measuring program is run.
pub fn program() -> Run {
    Run::new(programs::c_build_in("benches/c", "meter", &[]))
}

impl Meter {
    pub fn start(run: &Run) -> Meter {
        let mut command = run.command();
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().expect("the measuring program");
        let questions = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        Meter { child, questions, answers }
    }

    /// One line there, one line back.
    pub fn ask(&mut self, question: &str) -> String {
        writeln!(self.questions, "{question}").expect("a program that listens");
        self.line()
    }

    /// As [`Meter::ask`], for questions that are answered by a number.
    pub fn number(&mut self, question: &str) -> f64 {
        let answer = self.ask(question);
        answer.parse().unwrap_or_else(|_| panic!("{question}: {answer:?} is no number"))
    }

    /// Where each of the names leads.
    pub fn pointers(&mut self, names: &[String]) -> Vec<String> {
        let question = format!("pointers\n{}\nend\n\n", names.join("\n"));
        let mut questions = &self.questions;
        let answers = &mut self.answers;
        std::thread::scope(|scope| {
            scope.spawn(move || questions.write_all(question.as_bytes()).expect("a program that listens"));
            answers.lines().map(|line| line.expect("an answer")).take_while(|line| line != "end").collect()
        })
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).expect("a program that answers");
        assert_ne!(read, 0, "the measuring program ended early");
        line.trim_end().to_string()
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // Ended already, or ended now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program on the bare driver, and the same one in a container.
pub struct Duel {
    pub bare: Meter,
    pub held: Meter,
}

impl Duel {
    pub fn new(machine: &Machine, container: &Container) -> Duel {
        let duel = Duel {
            bare: Meter::start(&program().on(machine)),
            held: Meter::start(&program().on(machine).within(container)),
        };
        // For a second after a context was made, its cost is put right at every request.
        std::thread::sleep(Duration::from_millis(1200));
        duel
    }

    /// Has both do the same.
    pub fn both(&mut self, question: &str) -> (String, String) {
        (self.bare.ask(question), self.held.ask(question))
    }

    /// Has both do `question N ...` in `rounds` short batches by turns; nanoseconds for one of the N.
    pub fn race(&mut self, rounds: usize, batch: usize, question: impl Fn(usize) -> String) -> Compared {
        let question = question(batch);
        let one = |meter: &mut Meter| meter.number(&question) / batch as f64;
        compare(rounds, |held| one(if held { &mut self.held } else { &mut self.bare }))
    }
}

/// What two runs took.
pub struct Compared {
    /// Median of the bare one.
    pub bare: f64,
    /// Median of the one under the library.
    pub held: f64,
    /// Median of the differences between neighbours in time.
    pub added: f64,
    /// The quarter of the differences below, and the quarter above the median, end here.
    pub middle_half: (f64, f64),
}

/// Measures both by turns, each going first every other time. `measure` is told which: under the library or not.
pub fn compare(rounds: usize, mut measure: impl FnMut(bool) -> f64) -> Compared {
    let (mut bare, mut held, mut added) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let held_first = round % 2 == 1;
        let first = measure(held_first);
        let second = measure(!held_first);
        let (b, h) = if held_first { (second, first) } else { (first, second) };
        bare.push(b);
        held.push(h);
        added.push(h - b);
    }
    let at = |values: &mut Vec<f64>, part: usize| {
        values.sort_by(f64::total_cmp);
        values[(values.len() - 1) * part / 4]
    };
    Compared {
        bare: at(&mut bare, 2),
        held: at(&mut held, 2),
        added: at(&mut added, 2),
        middle_half: (at(&mut added, 1), at(&mut added, 3)),
    }
}
