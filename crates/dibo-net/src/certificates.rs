//! A test authority and certificates signed by it. A real deployment brings its own.
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use time::OffsetDateTime;

/// Whom a certificate is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// A host's name or address, and the name of the files.
    pub host: String,
    /// Agents it may speak for: first and last of each range.
    pub agents: Vec<(usize, usize)>,
}

impl From<&str> for Subject {
    fn from(host: &str) -> Self {
        Subject { host: host.into(), agents: Vec::new() }
    }
}

/// Makes certificates for these hosts (names or addresses; each also serves localhost) in a folder, with the
/// authority that lies there or a new one. They are valid from `from` on for `days`. Gives the files that
/// were written.
pub fn make(folder: &Path, hosts: &[Subject], from: SystemTime, days: u64) -> Result<Vec<PathBuf>, String> {
    std::fs::create_dir_all(folder)
        .map_err(|e| format!("cannot make the folder {}: {e}", folder.display()))?;
    let until = from + Duration::from_secs(days * 86_400);
    let (from, until) = (OffsetDateTime::from(from), OffsetDateTime::from(until));
    let mut written = Vec::new();
    let (ca_file, ca_key) = (folder.join("ca.pem"), folder.join("ca.key"));
    let fails = |e: rcgen::Error| format!("cannot make a certificate: {e}");
    let issuer = if ca_file.is_file() && ca_key.is_file() {
        let read = |file: &Path| {
            std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))
        };
        let key = KeyPair::from_pem(&read(&ca_key)?).map_err(|e| format!("{}: {e}", ca_key.display()))?;
        Issuer::from_ca_cert_pem(&read(&ca_file)?, key).map_err(|e| format!("{}: {e}", ca_file.display()))?
    } else {
        let mut params = CertificateParams::new(Vec::<String>::new()).map_err(fails)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "dibo test authority");
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        (params.not_before, params.not_after) = (from, until);
        let key = KeyPair::generate().map_err(fails)?;
        let certificate = params.self_signed(&key).map_err(fails)?;
        write(&ca_file, &certificate.pem(), false, &mut written)?;
        write(&ca_key, &key.serialize_pem(), true, &mut written)?;
        Issuer::new(params, key)
    };
    for Subject { host, agents } in hosts {
        if host.is_empty()
            || host == "ca"
            || !host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_:".contains(c))
        {
            return Err(format!("'{host}' is not the name or address of a host"));
        }
        let mut names = vec![host.clone()];
        names.extend(["localhost", "127.0.0.1", "::1"].into_iter().filter(|n| n != host).map(String::from));
        names.extend(agents.iter().map(|(from, to)| match from == to {
            true => format!("agent-{from}.dibo"),
            false => format!("agents-{from}-{to}.dibo"),
        }));
        let mut params = CertificateParams::new(names).map_err(fails)?;
        params.distinguished_name.push(DnType::CommonName, host.as_str());
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        (params.not_before, params.not_after) = (from, until);
        let key = KeyPair::generate().map_err(fails)?;
        let certificate = params.signed_by(&key, &issuer).map_err(fails)?;
        write(&folder.join(format!("{host}.pem")), &certificate.pem(), false, &mut written)?;
        write(&folder.join(format!("{host}.key")), &key.serialize_pem(), true, &mut written)?;
    }
    Ok(written)
}

fn write(file: &Path, text: &str, secret: bool, written: &mut Vec<PathBuf>) -> Result<(), String> {
    use std::io::Write;
    let fails = |e: std::io::Error| format!("cannot write {}: {e}", file.display());
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(if secret { 0o600 } else { 0o644 });
    }
    #[cfg(not(unix))]
    let _ = secret;
    options.open(file).and_then(|mut f| f.write_all(text.as_bytes())).map_err(fails)?;
    written.push(file.to_path_buf());
    Ok(())
}
