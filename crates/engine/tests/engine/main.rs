//! What the engine promises, tried from outside.
//!
//! | module | question |
//! |---|---|
//! | `world` | what do the tests share |
//! | `transactions` | what do one and two sessions see |
//! | `races` | do the orders hold that protocols get wrong |

mod world;

mod races;
mod transactions;
