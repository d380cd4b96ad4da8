//! Nothing but tests, in `tests/frontier`. They are a crate of their own because `shard` is optimised in the profile of the tests and they need
//! not be: to optimise them took as long as to optimise all of `shard`, for tests that run in six seconds.
