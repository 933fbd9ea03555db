//! Which groups of the past are valid? (interim)
