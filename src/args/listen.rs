//! An address to listen on.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// Where to listen, as Go writes it: `host:port`, `[::1]:port` or `:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// An IPv6 address keeps its brackets.
    host: String,
    port: u16,
}

impl ListenAddress {
    /// The addresses to bind, in this order, until one succeeds. Without a host these are the IPv6
    /// wildcard, which also serves IPv4, and the IPv4 wildcard, for a kernel without IPv6.
    ///
    /// # Errors
    /// When the host name cannot be resolved.
    pub fn candidates(&self) -> io::Result<Vec<SocketAddr>> {
        if self.host.is_empty() {
            return Ok(vec![
                (Ipv6Addr::UNSPECIFIED, self.port).into(),
                (Ipv4Addr::UNSPECIFIED, self.port).into(),
            ]);
        }
        Ok(self.to_string().to_socket_addrs()?.collect())
    }

    /// The `host:port` to reach it at from the same machine, for a URL.
    #[must_use]
    pub fn reachable(&self) -> String {
        match self.host.as_str() {
            "" | "0.0.0.0" | "[::]" => format!("127.0.0.1:{}", self.port),
            _ => self.to_string(),
        }
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = text
            .rsplit_once(':')
            .ok_or("the port is missing; write host:port, or :port for all addresses")?;
        let port = port
            .parse()
            .map_err(|_| format!("\"{port}\" is not a port from 0 to 65535"))?;
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            return Err("write an IPv6 address in brackets".into());
        }
        let host = host.to_owned();
        Ok(Self { host, port })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
