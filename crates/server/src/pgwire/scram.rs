//! Does a client know the password? The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), with and without channel binding, as PostgreSQL speaks it.
//!
//! ```text
//! client ─ n,,n=,r=NONCE ──────────────────────────▶ first ─ r=NONCE+OURS,s=salt,i=iterations ─▶ client
//! client ─ c=gs2 header [and the binding],r=...,p=proof ▶ last ── v=our signature, or 28P01 ─────▶ client
//! ```
//!
//! 1. The password is never here: StoredKey and ServerKey check the proof and sign, and give nobody a way in.
//! 2. A user who is not there goes through the same exchange, with a salt that is the same every time, and fails at its end: so nobody learns who is.
//! 3. What is bound is the certificate as it was at the handshake of this connection.
//!
//! Pure: bytes in, bytes out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use freshet_db::SqlError;
use freshet_db::sql::role::password::Parts;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

pub const PLAIN: &str = "SCRAM-SHA-256";
pub const PLUS: &str = "SCRAM-SHA-256-PLUS";

/// The longest message of a client.
pub const MESSAGE_BYTES_MAX: usize = 1024;

/// Of our part of the nonce, before base 64.
const NONCE_BYTES: usize = 18;
const SALT_BYTES: usize = 16;
const MOCK_ITERATIONS: u32 = 4096;

type Key = [u8; 32];

/// What the proof is checked by.
struct Keys {
    iterations: u32,
    /// In base 64.
    salt: String,
    stored: Key,
    server: Key,
    /// There is no such password: the proof is wrong whatever it is.
    is_mock: bool,
}

/// What was said up to the server's first message.
struct Begun {
    gs2: String,
    first_bare: String,
    server_first: String,
    nonce: String,
    uses_binding: bool,
}

/// One client's exchange.
pub struct Exchange {
    user: String,
    keys: Keys,
    /// The hash of our certificate, where there is TLS: `tls-server-end-point`.
    binding: Option<Vec<u8>>,
    begun: Option<Begun>,
}

fn hmac(key: &[u8], text: &[u8]) -> Key {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.update(text);
    mac.finalize().into_bytes().into()
}

fn malformed(detail: impl Into<String>) -> SqlError {
    SqlError::new("08P01", "malformed SCRAM message").with_detail(detail)
}

impl Exchange {
    /// `verifier`: what is kept of the user's password, if there is one. `secret`: this server's, for salts of those who have none.
    pub fn new(user: &str, verifier: Option<&str>, secret: &[u8], binding: Option<Vec<u8>>) -> Exchange {
        let keys = verifier.and_then(keys_of).unwrap_or_else(|| mock(user, secret));
        Exchange { user: user.to_owned(), keys, binding, begun: None }
    }

    /// What the client may choose from.
    pub fn mechanisms(&self) -> Vec<String> {
        let plus = self.binding.as_ref().map(|_| PLUS.to_owned());
        plus.into_iter().chain([PLAIN.to_owned()]).collect()
    }

    /// Takes the client's first message, gives the server's.
    pub fn first(&mut self, mechanism: &str, message: &[u8]) -> Result<String, SqlError> {
        let mut ours = [0; NONCE_BYTES];
        getrandom::fill(&mut ours).map_err(|_| SqlError::new("XX000", "could not generate random nonce"))?;
        self.first_with(mechanism, message, &STANDARD.encode(ours))
    }

    fn first_with(&mut self, mechanism: &str, message: &[u8], ours: &str) -> Result<String, SqlError> {
        let uses_binding = match mechanism {
            PLAIN => false,
            PLUS if self.binding.is_some() => true,
            _ => return Err(SqlError::new("08P01", "client selected an invalid SASL authentication mechanism")),
        };
        let message = text(message)?;
        let rest = self.channel_binding_flag(message, uses_binding)?;
        // Another identity to act as is not taken.
        let Some(bare) = rest.strip_prefix(',') else {
            return Err(match rest.starts_with("a=") {
                true => SqlError::new("0A000", "client uses authorization identity, but it is not supported"),
                false => malformed("Unexpected attribute in client-first-message."),
            });
        };
        let gs2 = &message[..message.len() - bare.len()];
        if bare.starts_with("m=") {
            return Err(SqlError::new("0A000", "client requires an unsupported SCRAM extension"));
        }
        let mut attributes = bare.split(',');
        // The name is that of the startup packet, whatever stands here.
        attribute(attributes.next(), 'n')?;
        let theirs = attribute(attributes.next(), 'r')?;
        if theirs.is_empty() || !theirs.bytes().all(|b| (0x21..=0x7e).contains(&b)) {
            return Err(SqlError::new("08P01", "non-printable characters in SCRAM nonce"));
        }
        let nonce = format!("{theirs}{ours}");
        let server_first = format!("r={nonce},s={},i={}", self.keys.salt, self.keys.iterations);
        self.begun = Some(Begun {
            gs2: gs2.to_owned(),
            first_bare: bare.to_owned(),
            server_first: server_first.clone(),
            nonce,
            uses_binding,
        });
        Ok(server_first)
    }

    /// What follows the flag and its comma.
    fn channel_binding_flag<'m>(&self, message: &'m str, uses_binding: bool) -> Result<&'m str, SqlError> {
        let (flag, rest) = message.split_once(',').ok_or_else(|| malformed("Comma expected."))?;
        match flag {
            "n" | "y" if uses_binding => Err(malformed(
                "The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel binding data.",
            )),
            "n" => Ok(rest),
            // Somebody between us may have taken our offer away.
            "y" if self.binding.is_some() => Err(SqlError::new("28000", "SCRAM channel binding negotiation error")
                .with_detail(
                    "The client supports SCRAM channel binding but thinks the server does not.  \
                     However, this server does support channel binding.",
                )),
            "y" => Ok(rest),
            "p=tls-server-end-point" if uses_binding => Ok(rest),
            flag if flag.starts_with("p=") && uses_binding => Err(SqlError::new(
                "08P01",
                format!("unsupported SCRAM channel-binding type \"{}\"", printable(&flag[2..])),
            )),
            flag if flag.starts_with("p=") => Err(malformed(
                "The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes channel binding data.",
            )),
            _ => Err(malformed("Unexpected channel-binding flag.")),
        }
    }

    /// Takes the client's proof, gives the server's.
    pub fn last(&mut self, message: &[u8]) -> Result<String, SqlError> {
        let begun = self.begun.take().ok_or_else(|| malformed("A proof before its beginning."))?;
        let message = text(message)?;
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or_else(|| malformed("A proof expected."))?;
        let mut attributes = without_proof.split(',');
        let bound = attribute(attributes.next(), 'c')?;
        if bound != self.bound(&begun) {
            return Err(match begun.uses_binding {
                true => SqlError::new("28000", "SCRAM channel binding check failed"),
                false => SqlError::new("08P01", "unexpected SCRAM channel-binding attribute in client-final-message"),
            });
        }
        if attribute(attributes.next(), 'r')? != begun.nonce {
            return Err(SqlError::new("08P01", "invalid SCRAM response").with_detail("Nonce does not match."));
        }
        let proof = STANDARD.decode(proof).ok().and_then(|proof| Key::try_from(proof).ok());
        let proof = proof.ok_or_else(|| malformed("Malformed proof in client-final-message."))?;
        let said = format!("{},{},{without_proof}", begun.first_bare, begun.server_first);
        if !self.proves(&proof, said.as_bytes()) {
            return Err(failed(&self.user));
        }
        Ok(format!("v={}", STANDARD.encode(hmac(&self.keys.server, said.as_bytes()))))
    }

    /// The client's `c=`: its header, and the binding that it chose.
    fn bound(&self, begun: &Begun) -> String {
        let mut bound = begun.gs2.clone().into_bytes();
        if let (true, Some(binding)) = (begun.uses_binding, &self.binding) {
            bound.extend_from_slice(binding);
        }
        STANDARD.encode(bound)
    }

    fn proves(&self, proof: &Key, said: &[u8]) -> bool {
        let signature = hmac(&self.keys.stored, said);
        let mut client_key = *proof;
        client_key.iter_mut().zip(signature).for_each(|(byte, signed)| *byte ^= signed);
        let stored: Key = Sha256::digest(client_key).into();
        // Hashes of what the client sent: how far they agree tells nothing of the key.
        stored == self.keys.stored && !self.keys.is_mock
    }
}

/// 28P01.
pub fn failed(user: &str) -> SqlError {
    SqlError::new("28P01", format!("password authentication failed for user \"{user}\""))
}

fn keys_of(verifier: &str) -> Option<Keys> {
    let parts = Parts::of(verifier)?;
    let key = |text: &str| STANDARD.decode(text).ok().and_then(|key| Key::try_from(key).ok());
    Some(Keys {
        iterations: parts.iterations,
        salt: parts.salt.to_owned(),
        stored: key(parts.stored_key)?,
        server: key(parts.server_key)?,
        is_mock: false,
    })
}

/// By which the salts of those are made who have none: nobody knows it but who has the database's files, and it stays, so that they are the same after a restart.
pub fn mock_secret(database: u128) -> Key {
    hmac(&database.to_be_bytes(), b"salts of users who are not there")
}

fn mock(user: &str, secret: &[u8]) -> Keys {
    let salt = hmac(secret, user.as_bytes());
    let salt = STANDARD.encode(&salt[..SALT_BYTES]);
    Keys { iterations: MOCK_ITERATIONS, salt, stored: [0; 32], server: [0; 32], is_mock: true }
}

fn text(message: &[u8]) -> Result<&str, SqlError> {
    match std::str::from_utf8(message) {
        Ok("") => Err(malformed("The message is empty.")),
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(malformed("The message is no text.")),
    }
}

fn attribute(part: Option<&str>, name: char) -> Result<&str, SqlError> {
    let value = part.and_then(|part| part.strip_prefix(name)?.strip_prefix('='));
    value.ok_or_else(|| malformed(format!("Attribute \"{name}\" expected.")))
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() { c } else { '?' }).take(30).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
    use postgres_protocol::password::scram_sha_256;

    const SECRET: &[u8] = b"a server's own";

    /// The whole of an exchange with another implementation's client.
    fn run(
        verifier: Option<&str>,
        password: &[u8],
        ours: Option<&[u8]>,
        theirs: ChannelBinding,
        mechanism: &str,
    ) -> Result<(), SqlError> {
        let mut client = ScramSha256::new(password, theirs);
        let mut server = Exchange::new("u", verifier, SECRET, ours.map(<[u8]>::to_vec));
        let first = server.first(mechanism, client.message())?;
        client.update(first.as_bytes()).expect("a first message that the client understands");
        let last = server.last(client.message())?;
        client.finish(last.as_bytes()).expect("our own proof");
        Ok(())
    }

    #[test]
    fn the_password_lets_in_and_no_other_does() {
        let verifier = scram_sha_256(b"geheim");
        let plain = || ChannelBinding::unsupported();
        run(Some(&verifier), b"geheim", None, plain(), PLAIN).unwrap();
        for (verifier, password) in [(Some(verifier.as_str()), &b"Geheim"[..]), (None, b"geheim"), (Some("md5"), b"")] {
            let error = run(verifier, password, None, plain(), PLAIN).unwrap_err();
            assert_eq!(error.sqlstate, "28P01");
        }
    }

    #[test]
    fn the_certificate_is_bound() {
        let verifier = scram_sha_256(b"x");
        let bound = |bytes: &[u8]| ChannelBinding::tls_server_end_point(bytes.to_vec());
        run(Some(&verifier), b"x", Some(b"our certificate"), bound(b"our certificate"), PLUS).unwrap();
        let other = run(Some(&verifier), b"x", Some(b"our certificate"), bound(b"another's"), PLUS).unwrap_err();
        assert_eq!((other.sqlstate, other.message.as_str()), ("28000", "SCRAM channel binding check failed"));
        // Who could bind, but was told that we cannot.
        let cut = run(Some(&verifier), b"x", Some(b"ours"), ChannelBinding::unrequested(), PLAIN).unwrap_err();
        assert_eq!(cut.sqlstate, "28000");
        let wrong = run(Some(&verifier), b"x", None, ChannelBinding::unsupported(), PLUS).unwrap_err();
        assert_eq!(wrong.sqlstate, "08P01");
        run(Some(&verifier), b"x", Some(b"ours"), ChannelBinding::unsupported(), PLAIN).unwrap();
    }

    /// The example of RFC 7677.
    #[test]
    fn the_standards_example_is_answered_as_it_says() {
        let stored = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
        let mut server = Exchange::new("user", Some(stored), SECRET, None);
        let ours = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let first = server.first_with(PLAIN, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", ours).unwrap();
        assert_eq!(first, "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        let last = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(server.last(last).unwrap(), "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn who_is_not_there_looks_like_somebody() {
        let first = |user: &str| {
            let mut server = Exchange::new(user, None, SECRET, None);
            server.first_with(PLAIN, b"n,,n=,r=abc", "xyz").unwrap()
        };
        assert_eq!(first("a"), first("a"), "the same salt every time");
        assert_ne!(first("a"), first("b"));
        assert!(first("a").ends_with(",i=4096"));
    }

    #[test]
    fn messages_that_lie_are_refused() {
        let verifier = scram_sha_256(b"x");
        for first in [
            &b""[..],
            b"n",
            b"n,",
            b"n,,",
            b"n,,n=u",
            b"n,,r=abc",
            b"n,,n=u,r=",
            b"n,,n=u,r=a b",
            b"n,a=x,n=u,r=abc",
            b"n,,m=x,n=u,r=abc",
            b"p=tls-unique,,n=u,r=abc",
            b"q,,n=u,r=abc",
            b"n,,n=u,r=\xff",
            b"n,,n=u,r=a\0",
        ] {
            let mut server = Exchange::new("u", Some(&verifier), SECRET, None);
            assert!(server.first(PLAIN, first).is_err(), "{first:?}");
        }
        let proof = STANDARD.encode([7; 32]);
        for last in [
            "".to_owned(),
            "c=biws".to_owned(),
            "c=biws,r=abcxyz".to_owned(),
            format!("c=biws,r=abc,p={proof}"),
            format!("c=biws,r=abcxyzz,p={proof}"),
            format!("c=eSws,r=abcxyz,p={proof}"),
            format!("r=abcxyz,c=biws,p={proof}"),
            "c=biws,r=abcxyz,p=".to_owned(),
            "c=biws,r=abcxyz,p=AAAA".to_owned(),
            "c=biws,r=abcxyz,p=!!!!".to_owned(),
            format!("c=biws,r=abcxyz,p={proof}"),
        ] {
            let mut server = Exchange::new("u", Some(&verifier), SECRET, None);
            server.first_with(PLAIN, b"n,,n=u,r=abc", "xyz").unwrap();
            assert!(server.last(last.as_bytes()).is_err(), "{last}");
            assert!(server.last(last.as_bytes()).is_err(), "there is no second try");
        }
        let mut server = Exchange::new("u", Some(&verifier), SECRET, None);
        assert_eq!(server.first("SCRAM-SHA-1", b"n,,n=u,r=abc").unwrap_err().sqlstate, "08P01");
    }
}
