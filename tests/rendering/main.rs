//! What is rendered, held to vectors that others made, to random inputs, to inputs that fuzzing
//! found, and to a number of allocations.

mod allocations;
mod fuzz_corpus;
mod golden;
mod properties;
mod subject;
