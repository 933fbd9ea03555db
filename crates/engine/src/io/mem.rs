//! (interim)
