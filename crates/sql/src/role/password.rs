//! What is kept of a password? PostgreSQL's verifier of SCRAM-SHA-256, from which nobody can log in and which a log may not hold all the same.

use crate::error::SqlError;
use freshet_engine::catalog::Verifier;

const SCRAM: &str = "SCRAM-SHA-256$";

/// The parts of a verifier: `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`, all but the number in base 64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts<'a> {
    pub iterations: u32,
    pub salt: &'a str,
    pub stored_key: &'a str,
    pub server_key: &'a str,
}

impl<'a> Parts<'a> {
    pub fn of(text: &'a str) -> Option<Parts<'a>> {
        let (setup, keys) = text.strip_prefix(SCRAM)?.split_once('$')?;
        let (iterations, salt) = setup.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        // A SHA-256 is 32 bytes, in base 64 44 characters.
        let is_base64 = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='));
        let is_key = |text: &str| text.len() == 44 && text.ends_with('=') && is_base64(text);
        let iterations = iterations.parse().ok().filter(|&n| n > 0)?;
        let is_whole = !salt.is_empty() && is_base64(salt) && is_key(stored_key) && is_key(server_key);
        is_whole.then_some(Parts { iterations, salt, stored_key, server_key })
    }
}

fn is_md5(text: &str) -> bool {
    text.len() == 35 && text.starts_with("md5") && text[3..].bytes().all(|b| b.is_ascii_hexdigit())
}

/// The verifier of a password; of an empty one none, and a verifier stays what it is.
pub fn verifier(text: &str) -> Result<Option<Verifier>, SqlError> {
    if text.is_empty() {
        return Ok(None);
    }
    if Parts::of(text).is_some() {
        return Ok(Some(Verifier(text.to_owned())));
    }
    if is_md5(text) {
        return Err(SqlError::new("0A000", "passwords hashed with MD5 are not supported")
            .with_hint("Give the password itself, or a SCRAM-SHA-256 verifier."));
    }
    Ok(Some(Verifier(postgres_protocol::password::scram_sha_256(text.as_bytes()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_becomes_a_verifier_and_a_verifier_stays() {
        let Ok(Some(made)) = verifier("sécret") else { panic!("a verifier") };
        let parts = Parts::of(&made.0).expect("in PostgreSQL's form");
        assert_eq!(parts.iterations, 4096);
        assert_eq!(verifier(&made.0).unwrap().unwrap().0, made.0);
        assert!(!format!("{made:?}").contains(parts.stored_key), "it is not shown");
        assert!(verifier("").unwrap().is_none());
        assert_eq!(verifier("md5a3556571e93b0d20722ba62be61e8c2d").unwrap_err().sqlstate, "0A000");
        assert_ne!(verifier("md5").unwrap(), None, "that is a password");
    }

    #[test]
    fn what_is_nearly_a_verifier_is_a_password() {
        let key = "A".repeat(43) + "=";
        for text in [
            format!("SCRAM-SHA-256$0:c2FsdA==${key}:{key}"),
            format!("SCRAM-SHA-256$4096:${key}:{key}"),
            format!("SCRAM-SHA-256$4096:c2FsdA==${key}"),
            format!("SCRAM-SHA-256$4096:c2FsdA==${key}:{key}x"),
        ] {
            assert_eq!(Parts::of(&text), None, "{text}");
            assert_ne!(verifier(&text).unwrap().unwrap().0, text);
        }
        assert!(Parts::of(&format!("SCRAM-SHA-256$4096:c2FsdA==${key}:{key}")).is_some());
    }
}
