//! Placeholder until its own first commit.
