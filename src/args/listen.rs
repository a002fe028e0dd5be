//! An address to listen on.

/// Parses an address as Go writes it: `host:port`, `[::1]:port`, or `:port` for all addresses. The latter becomes the
/// IPv6 wildcard, which also serves IPv4.
///
/// # Errors
/// What to write instead.
pub(super) fn listen_address(text: &str) -> Result<String, String> {
    let (host, port) = text
        .rsplit_once(':')
        .ok_or("the port is missing; write host:port, or :port for all addresses")?;
    if port.parse::<u16>().is_err() {
        return Err(format!("\"{port}\" is not a port from 0 to 65535"));
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err("write an IPv6 address in brackets".into());
    }
    let host = if host.is_empty() { "[::]" } else { host };
    Ok(format!("{host}:{port}"))
}
