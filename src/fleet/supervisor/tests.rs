//! What a registration's task leaves behind, and what thousands of registrations cost.

mod moving_on;
mod scale;
