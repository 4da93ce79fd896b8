// SPDX-License-Identifier: GPL-2.0

//! Settings of an administrator for the server on some port: the text of the module parameter
//! `listen`.
//!
//! ```text
//! 1234:always_invalidate=N:sess_queue_depth=64,1300:max_chunk_size=65536
//! ```
//!
//! Ports are separated by commas, each followed by keys with their values. There may be one newline
//! at the end.

/// The settings of one port; `None`: as everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Chunks of a path, not yet checked.
    pub queue_depth: Option<i32>,
    /// Bytes of a chunk, not yet checked.
    pub chunk_size: Option<i32>,
    /// Keys change with every request.
    pub always_invalidate: Option<bool>,
}

/// A mistake in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenError {
    /// Not a port.
    Port,
    /// A port that occurs twice.
    Twice,
    /// Not `key=value`, or not a key.
    Key,
    /// Not a value.
    Value,
}

impl ListenError {
    /// A short description without a trailing newline.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Port => "not a port",
            Self::Twice => "a port is there twice",
            Self::Key => "keys are always_invalidate=, sess_queue_depth= and max_chunk_size=",
            Self::Value => "not a value",
        }
    }
}

/// Returns the ports of `text`. A caller has to stop at the first error.
pub fn ports(text: &str) -> impl Iterator<Item = Result<(u16, Overrides), ListenError>> + '_ {
    let text = text.strip_suffix('\n').unwrap_or(text);

    text.split(',')
        .filter(move |_| !text.is_empty())
        .enumerate()
        .map(move |(index, entry)| {
            let (port, overrides) = parse_entry(entry)?;
            let before = text.split(',').take(index);
            for other in before {
                if port_of(other) == Ok(port) {
                    return Err(ListenError::Twice);
                }
            }
            Ok((port, overrides))
        })
}

/// Returns the settings in `text` for `port`; none, if the port is not in it.
///
/// # Errors
///
/// [`ListenError`] for the first mistake up to the port.
pub fn overrides(text: &str, port: u16) -> Result<Overrides, ListenError> {
    for entry in ports(text) {
        let (other, overrides) = entry?;
        if other == port {
            return Ok(overrides);
        }
    }
    Ok(Overrides::default())
}

fn port_of(entry: &str) -> Result<u16, ListenError> {
    let port = entry.split(':').next().unwrap_or_default();

    match port.parse() {
        Ok(port) if port != 0 => Ok(port),
        _ => Err(ListenError::Port),
    }
}

fn parse_entry(entry: &str) -> Result<(u16, Overrides), ListenError> {
    let port = port_of(entry)?;
    let mut overrides = Overrides::default();

    for word in entry.split(':').skip(1) {
        let (key, value) = word.split_once('=').ok_or(ListenError::Key)?;
        match key {
            "sess_queue_depth" => overrides.queue_depth = Some(number(value)?),
            "max_chunk_size" => overrides.chunk_size = Some(number(value)?),
            "always_invalidate" => overrides.always_invalidate = Some(flag(value)?),
            _ => return Err(ListenError::Key),
        }
    }
    Ok((port, overrides))
}

fn number(value: &str) -> Result<i32, ListenError> {
    value.parse().map_err(|_| ListenError::Value)
}

fn flag(value: &str) -> Result<bool, ListenError> {
    match value {
        "Y" | "y" | "1" => Ok(true),
        "N" | "n" | "0" => Ok(false),
        _ => Err(ListenError::Value),
    }
}
