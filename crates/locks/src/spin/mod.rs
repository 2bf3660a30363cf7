//! Spin locks without queue nodes. In the simple ones all waiters spin on the same word, so cache misses grow with their
//! number; ptkt spreads the waiters over an array.

pub mod ptkt;
pub mod tas;
pub mod ticket;
pub mod ttas;
