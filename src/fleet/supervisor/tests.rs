//! Tests of what the task of a registration leaves behind, and of what thousands of registrations
//! cost.

mod credentials;
mod moving_on;
mod rules;
mod scale;
