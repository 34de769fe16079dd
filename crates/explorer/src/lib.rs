//! The planner in a web page: questions come in as JSON, answers go out as JSON with the command's numbers and
//! drawings.
//!
//! The page has three calls and no glue: [`explorer_input`] gives room for a question, [`explorer_ask`] answers it, and
//! [`explorer_output`] says where the answer lies.
#![deny(missing_docs)]

mod answer;
mod question;
mod state;

use answer::answer;
use question::Question;
use serde_json::{Value, json, to_value};
use state::State;
use std::{cell::RefCell, error::Error};

/// What the page has loaded, and the text that crosses the border: a question, then its answer.
#[derive(Default)]
struct Page {
    state: State,
    text: Vec<u8>,
}

thread_local!(static PAGE: RefCell<Page> = RefCell::default());

/// Answers one question; in the place of an answer that there is not, an object with an `error`.
pub fn ask(question: &str) -> String {
    PAGE.with_borrow_mut(|page| answer_or_error(&mut page.state, question))
}

fn answer_or_error(state: &mut State, question: &str) -> String {
    let answered = answered(state, question);
    answered.unwrap_or_else(|error| json!({ "error": error.to_string() })).to_string()
}

fn answered(state: &mut State, question: &str) -> Result<Value, Box<dyn Error>> {
    match serde_json::from_str(question)? {
        Question::Table { gpu, text } => state.add_table(gpu, &text).map(|()| json!({})),
        Question::Net { name, net } => Ok(json!({ "mini_batch": state.add_net(name, net)? })),
        Question::Plan(question) => Ok(to_value(answer(state.prepare(&question)?, &question)?)?),
    }
}

/// Room for a question of `len` bytes, which the page writes there.
#[unsafe(no_mangle)]
pub extern "C" fn explorer_input(len: usize) -> *mut u8 {
    PAGE.with_borrow_mut(|page| {
        page.text = vec![0; len];
        page.text.as_mut_ptr()
    })
}

/// Answers what was written there, and says how long the answer is.
#[unsafe(no_mangle)]
pub extern "C" fn explorer_ask() -> usize {
    PAGE.with_borrow_mut(|page| {
        page.text = answer_or_error(&mut page.state, &String::from_utf8_lossy(&page.text)).into_bytes();
        page.text.len()
    })
}

/// Where the answer lies until the next question.
#[unsafe(no_mangle)]
pub extern "C" fn explorer_output() -> *const u8 {
    PAGE.with_borrow(|page| page.text.as_ptr())
}
