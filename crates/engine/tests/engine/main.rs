//! What the engine promises, tried from outside.
//!
//! | module | question |
//! |---|---|
//! | `world` | what do the tests share |
//! | `transactions` | what do one and two sessions see |
//! | `model` | do many sessions agree with a map of versions |
//! | `races` | do the orders hold that protocols get wrong |

mod world;

mod model;
mod races;
mod transactions;
