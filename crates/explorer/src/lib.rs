//! The planner in a web page: questions come in as JSON, answers go out as JSON with the command's numbers and drawings.
//!
//! The page has three calls and no glue: [`explorer_input`] gives room for a question, [`explorer_ask`] answers it, and
//! [`explorer_output`] says where the answer lies.
#![deny(missing_docs)]

mod answer;
mod question;
mod state;

use answer::answer;
use question::Question;
use serde_json::{Value, json};
use state::State;
use std::sync::{LazyLock, Mutex};

/// What the page has loaded, and the two texts that cross the border.
#[derive(Default)]
struct Page {
    state: State,
    input: Vec<u8>,
    output: Vec<u8>,
}

static PAGE: LazyLock<Mutex<Page>> = LazyLock::new(Mutex::default);

fn with_page<R>(work: impl FnOnce(&mut Page) -> R) -> R {
    // There is one thread; if an answer has panicked, the next question begins with what is there.
    work(&mut PAGE.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// Answers one question; in the place of an answer that there is not, an object with an `error`.
pub fn ask(question: &str) -> String {
    with_page(|page| {
        let asked = serde_json::from_str(question).map_err(|error| error.to_string());
        let answered = asked.and_then(|question| page.answer(question));
        answered.unwrap_or_else(|error| json!({ "error": error })).to_string()
    })
}

impl Page {
    fn answer(&mut self, question: Question) -> Result<Value, String> {
        let loaded = |mini_batch: u32| json!({ "mini_batch": mini_batch });
        match question {
            Question::Table { gpu, text } => self.state.add_table(gpu, &text).map(loaded),
            Question::Net { name, report } => self.state.add_net(name, report).map(loaded),
            Question::Plan(question) => {
                let planned = answer(&self.state.prepare(&question)?, &question)?;
                serde_json::to_value(planned).map_err(|error| error.to_string())
            }
        }
    }
}

/// Room for a question of `len` bytes, which the page writes there.
#[unsafe(no_mangle)]
pub extern "C" fn explorer_input(len: usize) -> *mut u8 {
    with_page(|page| {
        page.input.clear();
        page.input.resize(len, 0);
        page.input.as_mut_ptr()
    })
}

/// Answers what was written there, and says how long the answer is.
#[unsafe(no_mangle)]
pub extern "C" fn explorer_ask() -> usize {
    let question = with_page(|page| String::from_utf8_lossy(&page.input).into_owned());
    let answer = ask(&question).into_bytes();
    with_page(|page| {
        page.output = answer;
        page.output.len()
    })
}

/// Where the answer lies until the next question.
#[unsafe(no_mangle)]
pub extern "C" fn explorer_output() -> *const u8 {
    with_page(|page| page.output.as_ptr())
}
