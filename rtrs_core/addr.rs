// SPDX-License-Identifier: GPL-2.0

//! Addresses of paths as an operator writes them and sysfs shows them.
//!
//! The grammar is `[src{,|@}]dst` with `ip:<ipv4|ipv6>` or `gid:<gid>` for each; a link-local IPv6
//! address may name its interface (`ip:fe80::1%eth0`), by name or by index.

use core::{
    fmt,
    net::{
        Ipv4Addr,
        Ipv6Addr, //
    },
    str::FromStr, //
};

/// The reason why a text is not an address, or not a pair of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddrError {
    /// No `ip:` or `gid:` in front.
    Family,
    /// The rest is not an address of that family.
    Address,
    /// The interface is not valid, or was given for an address that is not link-local.
    Scope,
    /// Source and destination are of different families.
    Mixed,
}

impl AddrError {
    /// A short description without a trailing newline.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Family => "address starts with neither ip: nor gid:",
            Self::Address => "malformed address",
            Self::Scope => "bad interface of a link-local address",
            Self::Mixed => "source and destination are of different families",
        }
    }
}

impl fmt::Display for AddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The name of a network interface.
///
/// # Invariants
///
/// The first `len` bytes of `buf` are printable ASCII, all others are zero, and there is at least
/// one of those.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct IfName {
    buf: [u8; Self::SIZE],
    len: u8,
}

impl IfName {
    /// Size in bytes with the terminating NUL (`IFNAMSIZ`).
    pub const SIZE: usize = 16;

    fn parse(text: &str) -> Result<Self, AddrError> {
        let bad = |c: u8| !c.is_ascii_graphic() || matches!(c, b'/' | b':' | b'@' | b',' | b'%');
        if text.is_empty()
            || text.len() >= Self::SIZE
            || matches!(text, "." | "..")
            || text.bytes().any(bad)
        {
            return Err(AddrError::Scope);
        }

        let mut buf = [0; Self::SIZE];
        let dst = buf.get_mut(..text.len()).ok_or(AddrError::Scope)?;
        // PANIC: `dst` was cut to the length of `text`.
        dst.copy_from_slice(text.as_bytes());

        // INVARIANT: Checked above.
        Ok(Self {
            buf,
            len: u8::try_from(text.len()).map_err(|_| AddrError::Scope)?,
        })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        let name = self.buf.get(..usize::from(self.len)).unwrap_or_default();

        // ASCII is UTF-8, by the type invariant.
        core::str::from_utf8(name).unwrap_or_default()
    }

    /// The name as a C string.
    pub fn as_cstr(&self) -> &core::ffi::CStr {
        // There is a NUL, by the type invariant.
        core::ffi::CStr::from_bytes_until_nul(&self.buf).unwrap_or_default()
    }
}

impl fmt::Debug for IfName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// The interface of a link-local IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Not given.
    None,
    /// Interface index, not zero.
    Index(u32),
    /// Interface name.
    Name(IfName),
}

impl Scope {
    fn parse(text: &str) -> Result<Self, AddrError> {
        if !text.bytes().all(|c| c.is_ascii_digit()) || text.is_empty() {
            return Ok(Self::Name(IfName::parse(text)?));
        }
        match u32::from_str(text) {
            Ok(index) if index != 0 => Ok(Self::Index(index)),
            _ => Err(AddrError::Scope),
        }
    }
}

/// One address.
///
/// Displays as sysfs shows it: `ip:` and dotted decimal; `ip:` and the compressed form; `gid:` and
/// 8 full groups. Neither port nor interface is part of that text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addr {
    /// IPv4, in network order.
    V4([u8; 4]),
    /// IPv6.
    V6 {
        /// Address in network order.
        ip: [u8; 16],
        /// Interface, for a link-local address.
        scope: Scope,
    },
    /// InfiniBand GID, in network order.
    Gid([u8; 16]),
}

impl Addr {
    /// Parses `text`, which must be one address.
    ///
    /// # Errors
    ///
    /// [`AddrError`]; `-EINVAL` for the operator.
    pub fn parse(text: &str) -> Result<Self, AddrError> {
        if let Some(text) = text.strip_prefix("gid:") {
            let gid = Ipv6Addr::from_str(text).map_err(|_| AddrError::Address)?;
            return Ok(Self::Gid(gid.octets()));
        }
        let text = text.strip_prefix("ip:").ok_or(AddrError::Family)?;
        if let Ok(ip) = Ipv4Addr::from_str(text) {
            return Ok(Self::V4(ip.octets()));
        }

        let (text, scope) = match text.split_once('%') {
            Some((text, scope)) => (text, Scope::parse(scope)?),
            None => (text, Scope::None),
        };
        let ip = Ipv6Addr::from_str(text)
            .map_err(|_| AddrError::Address)?
            .octets();
        if scope != Scope::None && !is_link_local(&ip) {
            return Err(AddrError::Scope);
        }
        Ok(Self::V6 { ip, scope })
    }

    /// Whether both are of the same family.
    pub const fn same_family(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Self::V4(_), Self::V4(_))
                | (Self::V6 { .. }, Self::V6 { .. })
                | (Self::Gid(_), Self::Gid(_))
        )
    }
}

/// Whether `ip` is in fe80::/10.
fn is_link_local(ip: &[u8; 16]) -> bool {
    matches!(ip, [0xfe, b, ..] if b & 0xc0 == 0x80)
}

/// Whether the kernel shows the last four bytes of `ip` in dotted decimal: an IPv4-mapped or an
/// ISATAP address.
fn has_v4_tail(ip: &[u8; 16]) -> bool {
    matches!(
        ip,
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..]
            | [_, _, _, _, _, _, _, _, 0 | 2, 0, 0x5e, 0xfe, ..]
    )
}

/// The 16-bit groups of an address.
fn groups(ip: &[u8; 16]) -> impl Iterator<Item = u16> + Clone + '_ {
    ip.chunks_exact(2)
        .map(|group| group.iter().fold(0, |acc, &b| acc << 8 | u16::from(b)))
}

/// Start and length of the first longest run of two or more zero groups among the first `count`.
fn longest_zeros(ip: &[u8; 16], count: usize) -> Option<(usize, usize)> {
    let mut best: Option<(usize, usize)> = None;
    let mut run = 0usize;

    for (i, group) in groups(ip).take(count).enumerate() {
        run = if group == 0 { run.saturating_add(1) } else { 0 };
        if run >= 2 && best.is_none_or(|(_, len)| run > len) {
            best = Some((i.saturating_add(1).saturating_sub(run), run));
        }
    }
    best
}

/// Writes `a.b.c.d`.
fn fmt_v4(ip: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (i, byte) in ip.iter().enumerate() {
        if i != 0 {
            f.write_str(".")?;
        }
        write!(f, "{byte}")?;
    }
    Ok(())
}

/// Writes the compressed form, as `%pI6c` does.
fn fmt_v6(ip: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let v4_tail = has_v4_tail(ip);
    let count = if v4_tail { 6 } else { 8 };
    let zeros = longest_zeros(ip, count);
    let mut need_colon = false;

    for (i, group) in groups(ip).take(count).enumerate() {
        match zeros {
            Some((start, _)) if i == start => {
                f.write_str("::")?;
                need_colon = false;
                continue;
            }
            Some((start, len)) if i > start && i < start.saturating_add(len) => continue,
            _ => (),
        }
        if need_colon {
            f.write_str(":")?;
        }
        write!(f, "{group:x}")?;
        need_colon = true;
    }
    if v4_tail {
        if need_colon {
            f.write_str(":")?;
        }
        fmt_v4(ip.get(12..).unwrap_or_default(), f)?;
    }
    Ok(())
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(ip) => {
                f.write_str("ip:")?;
                fmt_v4(ip, f)
            }
            Self::V6 { ip, .. } => {
                f.write_str("ip:")?;
                fmt_v6(ip, f)
            }
            Self::Gid(gid) => {
                f.write_str("gid")?;
                for group in groups(gid) {
                    write!(f, ":{group:04x}")?;
                }
                Ok(())
            }
        }
    }
}

/// The two ends of a path.
///
/// Displays like the name of the path's directory, `src@dst`, or as `dst` if the source is not
/// known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddrPair {
    /// Source; the route decides if not given.
    pub src: Option<Addr>,
    /// Destination.
    pub dst: Addr,
}

impl AddrPair {
    /// The maximum length of the text of a pair in bytes: `gid:` twice, and `@` between them.
    pub const MAX_TEXT: usize = 2 * (4 + 39) + 1;

    /// Parses `text`, which must be `[src{,|@}]dst`, with at most one trailing newline. A comma
    /// takes precedence over an `@`.
    ///
    /// # Errors
    ///
    /// [`AddrError`]; `-EINVAL` for the operator.
    pub fn parse(text: &[u8]) -> Result<Self, AddrError> {
        let text = core::str::from_utf8(text).map_err(|_| AddrError::Address)?;
        let text = text.strip_suffix('\n').unwrap_or(text);

        let (src, dst) = match text.split_once(',').or_else(|| text.split_once('@')) {
            Some((src, dst)) => (Some(Addr::parse(src)?), Addr::parse(dst)?),
            None => (None, Addr::parse(text)?),
        };
        match src {
            Some(src) if !src.same_family(&dst) => Err(AddrError::Mixed),
            _ => Ok(Self { src, dst }),
        }
    }
}

impl fmt::Display for AddrPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(src) = &self.src {
            fmt::Display::fmt(src, f)?;
            f.write_str("@")?;
        }
        fmt::Display::fmt(&self.dst, f)
    }
}
