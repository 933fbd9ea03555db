//! Is the server the one that is meant? What libpq's `sslmode` and `sslrootcert` say, for a link.
//!
//! | mode | encrypted | the server's certificate |
//! |---|---|---|
//! | `disable` | no | |
//! | `prefer` | if the server can | is not looked at |
//! | `require` | yes | is not looked at; with a root certificate as `verify-ca` |
//! | `verify-ca` | yes | is signed by a root certificate, or is one |
//! | `verify-full` | yes | and is for the host that was asked for |
//!
//! 1. Nothing that came before the handshake is read after it: of the server's answer one byte is taken.
//! 2. A handshake that fails is not tried again in clear.
//! 3. The file of root certificates is read for each link, so that a new one needs no restart.

use crate::tls::{ALPN, client_config, read_certificates};
use ::pgwire::messages::Message;
use ::pgwire::messages::startup::SslRequest;
use bytes::BytesMut;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use tokio_rustls::rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_util::either::Either;
use x509_cert::der::Decode;

/// libpq's modes but for `allow`.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SslMode {
    #[default]
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// How a link is kept from others' eyes, and the server from being somebody else.
#[derive(Clone, Default, Debug)]
pub struct Security {
    pub mode: SslMode,
    /// Root certificates in PEM.
    pub roots: Option<PathBuf>,
}

/// A link's connection, in clear or not.
pub type LinkSocket = Either<TcpStream, TlsStream<TcpStream>>;

impl Security {
    /// Whether links can be made so at all: the file of root certificates is there and holds some.
    pub fn check(&self) -> Result<(), String> {
        self.config().map(drop)
    }

    fn config(&self) -> Result<Option<ClientConfig>, String> {
        let verifies = matches!(self.mode, SslMode::VerifyCa | SslMode::VerifyFull);
        if self.mode == SslMode::Disable {
            return Ok(None);
        }
        if verifies && self.roots.is_none() {
            return Err(
                "a server's certificate is verified by root certificates: name their file (--sslrootcert)".into()
            );
        }
        let is_looked_at = verifies || self.mode == SslMode::Require;
        let roots = match self.roots.as_deref().filter(|_| is_looked_at) {
            Some(file) => Some(read_certificates(file).map_err(|error| error.to_string())?),
            None => None,
        };
        let verifier = Verifier::new(roots, self.mode == SslMode::VerifyFull).map_err(|error| error.to_string())?;
        let builder = client_config().map_err(|error| error.to_string())?;
        let mut config = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Some(config))
    }

    /// The connection to a server, HOST:PORT, encrypted as asked.
    pub async fn secure(&self, mut socket: TcpStream, server: &str) -> io::Result<LinkSocket> {
        let Some(config) = self.config().map_err(io::Error::other)? else { return Ok(Either::Left(socket)) };
        let mut request = BytesMut::new();
        SslRequest::new().encode(&mut request).map_err(io::Error::other)?;
        socket.write_all(&request).await?;
        // Not a byte more: what follows is the handshake's.
        match socket.read_u8().await? {
            b'S' => {}
            b'N' if self.mode == SslMode::Prefer => return Ok(Either::Left(socket)),
            b'N' => return Err(io::Error::other("it does not support TLS, but TLS was required")),
            _ => return Err(io::Error::other("its answer to a request for TLS is not understood")),
        }
        let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await?;
        Ok(Either::Right(stream))
    }
}

#[derive(Debug)]
struct Verifier {
    /// `None`: whoever it is.
    trusted: Option<Trusted>,
    checks_name: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
struct Trusted {
    roots: RootCertStore,
    /// The same: a server that shows one of them itself is trusted too, as OpenSSL has it.
    certificates: Vec<CertificateDer<'static>>,
}

impl Verifier {
    fn new(roots: Option<Vec<CertificateDer<'static>>>, checks_name: bool) -> Result<Verifier, Error> {
        let trusted = roots.map(|certificates| {
            let mut roots = RootCertStore::empty();
            for certificate in &certificates {
                roots.add(certificate.clone())?;
            }
            Ok::<_, Error>(Trusted { roots, certificates })
        });
        let algorithms = ring::default_provider().signature_verification_algorithms;
        Ok(Verifier { trusted: trusted.transpose()?, checks_name, algorithms })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(trusted) = &self.trusted {
            let parsed = ParsedCertificate::try_from(shown)?;
            if trusted.certificates.iter().any(|certificate| certificate == shown) {
                check_time(shown, now)?;
            } else {
                let algorithms = self.algorithms.all;
                verify_server_cert_signed_by_trust_anchor(&parsed, &trusted.roots, between, now, algorithms)?;
            }
            if self.checks_name {
                verify_server_name(&parsed, name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The chain's check looks at it where there is a chain.
fn check_time(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let unreadable = |_| Error::InvalidCertificate(CertificateError::BadEncoding);
    let validity = x509_cert::Certificate::from_der(certificate).map_err(unreadable)?.tbs_certificate.validity;
    if now.as_secs() < validity.not_before.to_unix_duration().as_secs() {
        return Err(Error::InvalidCertificate(CertificateError::NotValidYet));
    }
    if now.as_secs() > validity.not_after.to_unix_duration().as_secs() {
        return Err(Error::InvalidCertificate(CertificateError::Expired));
    }
    Ok(())
}
