//! placeholder
pub async fn run(_trials: usize) {}
