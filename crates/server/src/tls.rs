//! Which certificate do we show? It is read from two files, and read again when they change or the process is told to (SIGHUP); connections that
//! are there keep theirs.
//!
//! 1. Files that cannot be used replace nothing: what is in force stays, and the log says why.
//! 2. The hash that SCRAM-SHA-256-PLUS binds to a connection is that of the certificate of its own handshake.

use sha2::{Digest, Sha256, Sha384, Sha512};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{
    ClientConfig, ConfigBuilder, Error, ServerConfig, SupportedProtocolVersion, WantsVerifier, version,
};
use x509_cert::der::Decode;

/// What clients that begin with TLS at once must name (PostgreSQL 17).
pub const ALPN: &[u8] = b"postgresql";

/// What is spoken, by the server and to one.
static VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The certificate, then those that lead to an authority, in PEM.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Why a certificate cannot be used: one clear line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsError(String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A certificate in force.
pub struct Shown {
    pub config: Arc<ServerConfig>,
    /// `tls-server-end-point` (RFC 5929).
    pub end_point: Vec<u8>,
}

pub struct Tls {
    files: TlsFiles,
    shown: RwLock<(Arc<Shown>, Stamp)>,
}

/// What tells that the files are others.
type Stamp = [Option<(SystemTime, u64)>; 2];

impl Tls {
    pub fn load(files: TlsFiles) -> Result<Tls, TlsError> {
        let stamp = stamp(&files);
        let shown = Arc::new(read(&files)?);
        Ok(Tls { files, shown: RwLock::new((shown, stamp)) })
    }

    pub fn shown(&self) -> Arc<Shown> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Reads the files if they are others than when they were read last, or if told to; whether they were.
    pub fn reload(&self, even_if_same: bool) -> Result<bool, TlsError> {
        let now = stamp(&self.files);
        if !even_if_same && now == self.shown.read().unwrap_or_else(PoisonError::into_inner).1 {
            return Ok(false);
        }
        let read = read(&self.files);
        let mut shown = self.shown.write().unwrap_or_else(PoisonError::into_inner);
        // What cannot be read is told once.
        shown.1 = now;
        shown.0 = Arc::new(read?);
        Ok(true)
    }
}

fn stamp(files: &TlsFiles) -> Stamp {
    [&files.certificate, &files.key].map(|path| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.modified().ok()?, meta.len()))
    })
}

fn failed(path: &Path, why: impl fmt::Display) -> TlsError {
    TlsError(format!("TLS: {}: {why}", path.display()))
}

fn read(files: &TlsFiles) -> Result<Shown, TlsError> {
    let of_certificate = |why: &dyn fmt::Display| failed(&files.certificate, why);
    let chain = read_certificates(&files.certificate)?;
    let own = chain.first().expect("a file without certificates is refused");
    let end_point = end_point(own).map_err(|e| of_certificate(&e))?;
    check_private(&files.key)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| failed(&files.key, e))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&VERSIONS)
        .map_err(|e| of_certificate(&e))?
        .with_no_client_auth();
    let mut config = builder.with_single_cert(chain, key).map_err(|e| of_certificate(&e))?;
    // Optional: libpq names it since 17; others say nothing.
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Shown { config: Arc::new(config), end_point })
}

/// All certificates of a file in PEM; at least one.
pub fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let certificates = read.map_err(|why| failed(file, why))?;
    if certificates.is_empty() {
        return Err(failed(file, "no certificate in it"));
    }
    Ok(certificates)
}

/// What a client speaks; whom it trusts is its own.
pub fn client_config() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, Error> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider())).with_protocol_versions(&VERSIONS)
}

/// As PostgreSQL: a key that others can read is none.
fn check_private(key: &Path) -> Result<(), TlsError> {
    use std::os::unix::fs::PermissionsExt;
    let meta = std::fs::metadata(key).map_err(|e| failed(key, e))?;
    if meta.permissions().mode() & 0o037 != 0 {
        return Err(failed(
            key,
            "the private key has group or world access; set its mode to 0600 (or 0640 with a group of its own)",
        ));
    }
    Ok(())
}

/// The certificate's hash by the hash of its signature, but never a weaker one than SHA-256.
fn end_point(certificate: &CertificateDer<'_>) -> Result<Vec<u8>, x509_cert::der::Error> {
    let parsed = x509_cert::Certificate::from_der(certificate.as_ref())?;
    let oid = parsed.signature_algorithm.oid.to_string();
    Ok(match oid.as_str() {
        // RSA and ECDSA with SHA-384 and SHA-512.
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => Sha384::digest(certificate).to_vec(),
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => Sha512::digest(certificate).to_vec(),
        _ => Sha256::digest(certificate).to_vec(),
    })
}
