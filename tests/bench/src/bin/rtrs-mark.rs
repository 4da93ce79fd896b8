// SPDX-License-Identifier: GPL-2.0

//! Opens and closes the windows in which the plugin counts, in the guest: `rtrs-mark open|close`.
//!
//! Of two guests, the server runs `rtrs-mark serve ADDRESS:PORT WINDOWS`, and ends when so many
//! windows are closed. `rtrs-mark open|close ADDRESS:PORT` in the client marks in both. The server's
//! window opens before the client's and closes after it. In between the server waits for the
//! connection, and runs nothing that it would count.

use std::arch::asm;
use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;

/// An end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Open,
    Close,
}

/// The answer of the server: it has marked.
const DONE: u8 = b'd';

impl Mark {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "open" => Some(Self::Open),
            "close" => Some(Self::Close),
            _ => None,
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::Open => b'o',
            Self::Close => b'c',
        }
    }

    fn set(self) {
        match self {
            // SAFETY: A `nopl 0x52545200(%rax)`, which does nothing.
            Self::Open => unsafe { asm!(".byte 0x0f, 0x1f, 0x80, 0x00, 0x52, 0x54, 0x52") },
            // SAFETY: A `nopl 0x52545201(%rax)`, which does nothing.
            Self::Close => unsafe { asm!(".byte 0x0f, 0x1f, 0x80, 0x01, 0x52, 0x54, 0x52") },
        }
    }
}

/// Lets the server mark, and waits until it has.
fn ask(server: &str, mark: Mark) -> io::Result<()> {
    let mut stream = TcpStream::connect(server)?;
    stream.write_all(&[mark.byte()])?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    match answer {
        [DONE] => Ok(()),
        _ => Err(Error::new(ErrorKind::InvalidData, "not marked")),
    }
}

/// Marks as clients ask for it, until `windows` windows are closed.
fn serve(listener: &TcpListener, windows: usize, mut set: impl FnMut(Mark)) -> io::Result<()> {
    let mut expected = Mark::Open;
    for _ in 0..2 * windows {
        let (mut stream, _) = listener.accept()?;
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        if byte != [expected.byte()] {
            let text = format!("{byte:?} is not to {expected:?}");
            return Err(Error::new(ErrorKind::InvalidData, text));
        }
        set(expected);
        expected = match expected {
            Mark::Open => Mark::Close,
            Mark::Close => Mark::Open,
        };
        stream.write_all(&[DONE])?;
    }
    Ok(())
}

fn mark(mark: Mark, server: Option<&str>) -> io::Result<()> {
    match (mark, server) {
        (_, None) => mark.set(),
        (Mark::Open, Some(server)) => {
            ask(server, mark)?;
            mark.set();
        }
        (Mark::Close, Some(server)) => {
            mark.set();
            ask(server, mark)?;
        }
    }
    Ok(())
}

fn run(args: &[&str]) -> io::Result<()> {
    match *args {
        ["serve", address, windows] => {
            let windows = windows.parse().map_err(Error::other)?;
            serve(&TcpListener::bind(address)?, windows, Mark::set)
        }
        [word, ref server @ ..] if server.len() < 2 => {
            let usage = || Error::new(ErrorKind::InvalidInput, "open or close?");
            mark(
                Mark::parse(word).ok_or_else(usage)?,
                server.first().copied(),
            )
        }
        _ => Err(Error::new(
            ErrorKind::InvalidInput,
            "usage: rtrs-mark open|close [SERVER:PORT], rtrs-mark serve ADDRESS:PORT WINDOWS",
        )),
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("rtrs-mark: {e}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// What a server marks, and its result, while `client` runs.
    fn served(
        windows: usize,
        client: impl FnOnce(&str) -> io::Result<()>,
    ) -> (Vec<Mark>, io::Result<()>, io::Result<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let mut marks = Vec::new();
            let result = serve(&listener, windows, |mark| marks.push(mark));
            (marks, result)
        });
        let asked = client(&address);
        let (marks, result) = server.join().unwrap();
        (marks, result, asked)
    }

    #[test]
    fn the_server_marks_each_window() {
        let (marks, result, asked) = served(2, |server| {
            for word in ["open", "close", "open", "close"] {
                mark(Mark::parse(word).unwrap(), Some(server))?;
            }
            Ok(())
        });
        assert_eq!(marks, [Mark::Open, Mark::Close, Mark::Open, Mark::Close]);
        assert!(result.is_ok() && asked.is_ok());
    }

    #[test]
    fn a_window_that_is_not_open_is_not_closed() {
        let (marks, result, asked) = served(1, |server| ask(server, Mark::Close));
        assert!(marks.is_empty());
        assert!(result.is_err() && asked.is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(run(&["shut"]).is_err());
        assert!(run(&["serve", "127.0.0.1:0", "some"]).is_err());
        assert!(run(&[]).is_err());
    }
}
