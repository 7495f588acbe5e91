//! What is looked for in a worker cluster, and what is said of it.
