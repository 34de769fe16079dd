//! Black-box tests of the command: the built binary on small nets, as a user runs it.

mod bad_input;
mod book;
mod class_folders;
mod cuda;
mod database;
mod examples;
mod figures;
mod fixtures;
mod interrupted;
mod limits;
mod memory;
mod metrics;
mod own_images;
mod plan;
mod ranks;
mod recorded;
mod resumed;
mod run_command;
mod shell;
mod test_command;
mod time;
mod train;
mod weights;
