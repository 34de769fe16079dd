//! The planner in a web page: JSON comes in, and JSON goes out with the command's numbers and drawings.
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
use std::{cell::RefCell, error::Error};

thread_local! {
    /// What the page has loaded.
    static STATE: RefCell<State> = RefCell::default();
    /// What crosses the border: a question, then its answer.
    static TEXT: RefCell<Vec<u8>> = RefCell::default();
}

/// Answers one question; in the place of an answer that there is not, an object with an `error`.
pub fn ask(question: &str) -> String {
    let answered = STATE.with_borrow_mut(|state| answered(state, question));
    answered.unwrap_or_else(|error| json!({ "error": error.to_string() })).to_string()
}

fn answered(state: &mut State, question: &str) -> Result<Value, Box<dyn Error>> {
    match serde_json::from_str(question)? {
        Question::Table { gpu, text } => state.add_table(gpu, &text).map(|()| json!({})),
        Question::Net { name, net } => Ok(json!({ "mini_batch": state.add_net(name, net)? })),
        Question::Plan(question) => answer(state.prepare(&question)?, &question),
    }
}

/// Room for a question of `len` bytes, which the page writes there.
#[unsafe(no_mangle)]
pub extern "C" fn explorer_input(len: usize) -> *mut u8 {
    TEXT.set(vec![0; len]);
    TEXT.with_borrow_mut(Vec::as_mut_ptr)
}

/// Answers what was written there, and says how long the answer is.
#[unsafe(no_mangle)]
pub extern "C" fn explorer_ask() -> usize {
    TEXT.set(ask(&String::from_utf8_lossy(&TEXT.take())).into_bytes());
    TEXT.with_borrow(Vec::len)
}

/// Where the answer lies until the next question.
#[unsafe(no_mangle)]
pub extern "C" fn explorer_output() -> *const u8 {
    TEXT.with_borrow(Vec::as_ptr)
}
