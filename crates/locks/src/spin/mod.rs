//! Locks whose waiters all spin on the same word or pair of words. No nodes; the waiters' cache misses grow with
//! their number.

pub mod ptkt;
pub mod tas;
pub mod ticket;
pub mod ttas;
pub mod twa;
