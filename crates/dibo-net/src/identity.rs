//! Certificates as identities: the names in a certificate say which agents its owner may speak for.
//!
//! A DNS name whose first label is `agent-5` or `agents-0-4` names agent 5, or agents 0 to 4; what follows it
//! does not matter. So certificates of `dibo certificates --agents` and of any other authority serve alike.
use crate::keys::{Identity, Named};
use crate::wire::Tls;
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime,
};
use rustls::sign::SigningKey;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert, ring as algorithms};

/// This process's certificate, its key, and the authorities whose certificates it believes.
pub struct Certificate {
    chain: Vec<CertificateDer<'static>>,
    key: Arc<dyn SigningKey>,
    roots: Vec<TrustAnchor<'static>>,
    named: Named,
    /// Chains that were found good, by their bytes.
    known: Mutex<BTreeMap<Vec<u8>, Named>>,
}

/// A signature, how it was made, and the certificates that stand for it.
#[derive(Serialize, Deserialize)]
struct Proof {
    chain: Vec<Vec<u8>>,
    scheme: u16,
    signature: Vec<u8>,
}

/// Chains that are remembered.
const KNOWN: usize = 1000;

/// The agents that a DNS name names, if any.
fn agents_of(name: &str) -> Option<std::ops::RangeInclusive<usize>> {
    let label = name.split('.').next()?;
    let number = |text: &str| text.parse::<usize>().ok();
    if let Some(one) = label.strip_prefix("agent-") {
        return number(one).map(|i| i..=i);
    }
    let (from, to) = label.strip_prefix("agents-")?.split_once('-')?;
    Some(number(from)?..=number(to)?)
}

fn algorithm(scheme: SignatureScheme) -> Option<&'static dyn SignatureVerificationAlgorithm> {
    Some(match scheme {
        SignatureScheme::ECDSA_NISTP256_SHA256 => algorithms::ECDSA_P256_SHA256,
        SignatureScheme::ECDSA_NISTP384_SHA384 => algorithms::ECDSA_P384_SHA384,
        SignatureScheme::ED25519 => algorithms::ED25519,
        SignatureScheme::RSA_PSS_SHA256 => algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
        _ => return None,
    })
}

/// Kinds of signatures that are made and taken.
const SCHEMES: &[SignatureScheme] = &[
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA256,
];

fn read_all(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |e: rustls::pki_types::pem::Error| format!("{}: {e}", file.display());
    let all: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).map_err(wrong)?.collect();
    let all = all.map_err(wrong)?;
    if all.is_empty() { Err(format!("{} holds no certificate", file.display())) } else { Ok(all) }
}

impl Certificate {
    /// Reads a certificate, its key and the authority's certificate.
    pub fn read(tls: &Tls) -> Result<Self, String> {
        let chain = read_all(&tls.certificate)?;
        let wrong = |e: String| format!("{}: {e}", tls.key.display());
        let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|e| wrong(e.to_string()))?;
        let key = any_supported_type(&key).map_err(|e| wrong(e.to_string()))?;
        if key.choose_scheme(SCHEMES).is_none() {
            return Err(wrong("this kind of key cannot sign here; P-256, P-384, Ed25519 and RSA can".into()));
        }
        let anchors: Result<Vec<_>, String> = read_all(&tls.authority)?
            .iter()
            .map(|c| {
                let anchor = anchor_from_trusted_cert(c).map_err(|e| e.to_string());
                anchor.map(|a| a.to_owned()).map_err(|e| format!("{}: {e}", tls.authority.display()))
            })
            .collect();
        let mut certificate =
            Certificate { chain, key, roots: anchors?, named: Named::new(), known: Mutex::default() };
        let own: Vec<Vec<u8>> = certificate.chain.iter().map(|c| c.to_vec()).collect();
        certificate.named =
            certificate.check(&own).map_err(|e| format!("{}: {e}", tls.certificate.display()))?;
        Ok(certificate)
    }

    /// The agents that this process may speak for.
    pub fn named(&self) -> &Named {
        &self.named
    }

    /// Whether a chain of certificates is signed by an authority and valid now; gives the agents it names.
    fn check(&self, chain: &[Vec<u8>]) -> Result<Named, String> {
        let chain: Vec<CertificateDer<'_>> = chain.iter().map(|c| CertificateDer::from(&c[..])).collect();
        let (first, rest) = chain.split_first().ok_or("no certificate")?;
        let end = EndEntityCert::try_from(first).map_err(|e| e.to_string())?;
        let (now, usage) = (UnixTime::now(), KeyUsage::client_auth());
        end.verify_for_usage(ALL_VERIFICATION_ALGS, &self.roots, rest, now, usage, None, None)
            .map_err(|e| e.to_string())?;
        Ok(end.valid_dns_names().filter_map(agents_of).collect())
    }
}

impl Identity for Certificate {
    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let Some(signer) = self.key.choose_scheme(SCHEMES) else { return Vec::new() };
        let Ok(signature) = signer.sign(message) else { return Vec::new() };
        let chain = self.chain.iter().map(|c| c.to_vec()).collect();
        let proof = Proof { chain, scheme: signer.scheme().into(), signature };
        postcard::to_stdvec(&proof).unwrap_or_default()
    }

    fn verify(&self, proof: &[u8], message: &[u8]) -> Result<Named, String> {
        let Proof { chain, scheme, signature } = postcard::from_bytes(proof).map_err(|e| e.to_string())?;
        if chain.len() > 8 {
            return Err("a chain of too many certificates".into());
        }
        let end = CertificateDer::from(&chain.first().ok_or("no certificate")?[..]);
        let end = EndEntityCert::try_from(&end).map_err(|e| e.to_string())?;
        let algorithm = algorithm(scheme.into()).ok_or("an unknown kind of signature")?;
        end.verify_signature(algorithm, message, &signature).map_err(|e| e.to_string())?;
        let bytes = chain.concat();
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(named) = known().get(&bytes) {
            return Ok(named.clone());
        }
        let named = self.check(&chain)?;
        let mut known = known();
        if known.len() < KNOWN {
            known.insert(bytes, named.clone());
        }
        Ok(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_name_agents() {
        assert_eq!(agents_of("agent-5.alpha.example.org"), Some(5..=5));
        assert_eq!(agents_of("agents-0-4.dibo"), Some(0..=4));
        for none in ["alpha", "agents-4", "agent-x.y", "agents-1-2-3", "my-agent-5", "agent-"] {
            assert_eq!(agents_of(none), None, "{none}");
        }
    }
}
