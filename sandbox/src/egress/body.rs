//! The body of a plain request, passed on exactly: neither a byte less nor a byte more.
//!
//! Where a body ends is where the next request would begin, so a second opinion about it is how requests are
//! smuggled. A chunked body is therefore taken apart and put together anew: what leaves is in our own words.

/// How much of what a client sends belongs to its request.
#[derive(Debug)]
pub(crate) enum Body {
    /// Everything, until the client has no more: a tunnel.
    Endless,
    /// So many bytes.
    Length(u64),
    Chunked(Chunks),
}

/// A body that does not keep to its own framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Where in a chunked body we are.
#[derive(Debug)]
pub(crate) struct Chunks {
    state: State,
    /// What there is of the current line.
    line: Vec<u8>,
    /// Bytes of trailers that were thrown away.
    trailers: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Size,
    Data(u64),
    /// The line break after the data.
    DataEnd,
    Trailers,
    Over,
}

const LONGEST_SIZE_LINE: usize = 256;
const MOST_TRAILERS: usize = 8 * 1024;
/// Hexadecimal digits of a chunk's size that can't overflow.
const MOST_DIGITS: usize = 15;

impl Body {
    pub(crate) fn chunked() -> Self {
        Self::Chunked(Chunks { state: State::Size, line: Vec::new(), trailers: 0 })
    }

    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Endless => false,
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.state == State::Over,
        }
    }

    /// Passes on what of `input` belongs to the body; what comes after its end is left out.
    pub(crate) fn pass(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<(), Malformed> {
        match self {
            Self::Endless => output.extend_from_slice(input),
            Self::Length(left) => {
                let taken = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                output.extend_from_slice(&input[..taken]);
                *left -= taken as u64;
            }
            Self::Chunked(chunks) => chunks.pass(input, output)?,
        }
        Ok(())
    }
}

impl Chunks {
    fn pass(&mut self, mut input: &[u8], output: &mut Vec<u8>) -> Result<(), Malformed> {
        while !input.is_empty() && self.state != State::Over {
            if let State::Data(left) = &mut self.state {
                let taken = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                output.extend_from_slice(&input[..taken]);
                input = &input[taken..];
                *left -= taken as u64;
                if *left == 0 {
                    self.state = State::DataEnd;
                }
                continue;
            }
            let (byte, rest) = (input[0], &input[1..]);
            input = rest;
            self.line.push(byte);
            let most = if self.state == State::DataEnd { 2 } else { LONGEST_SIZE_LINE };
            if self.line.len() > most && self.state != State::Trailers {
                return Err(Malformed);
            }
            if self.state == State::Trailers {
                self.trailers += 1;
                if self.trailers > MOST_TRAILERS {
                    return Err(Malformed);
                }
            }
            if byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.end_line(line.strip_suffix(b"\r\n").ok_or(Malformed)?, output)?;
            }
        }
        Ok(())
    }

    fn end_line(&mut self, line: &[u8], output: &mut Vec<u8>) -> Result<(), Malformed> {
        if line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return Err(Malformed);
        }
        self.state = match self.state {
            State::Size => match size(line)? {
                0 => State::Trailers,
                size => {
                    output.extend_from_slice(format!("{size:x}\r\n").as_bytes());
                    State::Data(size)
                }
            },
            State::DataEnd if line.is_empty() => {
                output.extend_from_slice(b"\r\n");
                State::Size
            }
            State::Trailers if line.is_empty() => {
                output.extend_from_slice(b"0\r\n\r\n");
                State::Over
            }
            State::Trailers => State::Trailers,
            State::DataEnd | State::Data(_) | State::Over => return Err(Malformed),
        };
        Ok(())
    }
}

/// A chunk's size. Extensions are allowed by the specification, known to nobody, and not passed on.
fn size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let sound = (1..=MOST_DIGITS).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).map_err(|_| Malformed)?;
    if sound { u64::from_str_radix(text, 16).map_err(|_| Malformed) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn passed(mut body: Body, input: &[u8]) -> Result<(Vec<u8>, bool), Malformed> {
        let mut output = Vec::new();
        body.pass(input, &mut output)?;
        Ok((output, body.is_over()))
    }

    #[test]
    fn nothing_after_the_end_is_passed_on() {
        let (output, over) = passed(Body::Length(4), b"bodyGET / HTTP/1.1\r\n\r\n").expect("sound");
        assert_eq!((output.as_slice(), over), (&b"body"[..], true));
        let input =
            b"4;name=\"x\"\r\nbody\r\n0A\r\n0123456789\r\n0\r\nX-Trailer: 1\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        let (output, over) = passed(Body::chunked(), input).expect("sound");
        assert_eq!(output, b"4\r\nbody\r\na\r\n0123456789\r\n0\r\n\r\n");
        assert!(over);
        assert_eq!(passed(Body::Length(0), b"x").expect("sound"), (Vec::new(), true));
    }

    #[test]
    fn framing_that_could_be_read_in_two_ways_is_malformed() {
        for input in [
            &b"4\nbody\r\n0\r\n\r\n"[..],
            b"4\r\nbody\n0\r\n\r\n",
            b"4\r\nbodyx\r\n0\r\n\r\n",
            b"4\r\r\nbody\r\n",
            b"0x4\r\nbody\r\n",
            b"+4\r\nbody\r\n",
            b"-1\r\n",
            b" 4\r\nbody\r\n",
            b"4 \r\nbody\r\n",
            b"\r\n",
            b";x\r\n",
            b"10000000000000000\r\n",
            b"4;\0\r\nbody\r\n",
            b"0\r\nX: 1\n\r\n",
        ] {
            assert_eq!(passed(Body::chunked(), input), Err(Malformed), "{}", input.escape_ascii());
        }
        let long = [&b"4;"[..], &[b'x'; 300], b"\r\nbody\r\n"].concat();
        assert_eq!(passed(Body::chunked(), &long), Err(Malformed));
        let trailers = [&b"0\r\n"[..], &b"X-Trailer: 1\r\n".repeat(1000)].concat();
        assert_eq!(passed(Body::chunked(), &trailers), Err(Malformed));
    }

    proptest! {
        #[test]
        fn a_chunked_body_is_the_same_however_it_arrives(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 0..5),
            cut in 1usize..20,
        ) {
            let mut whole = Vec::new();
            for chunk in &chunks {
                whole.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                whole.extend_from_slice(chunk);
                whole.extend_from_slice(b"\r\n");
            }
            whole.extend_from_slice(b"0\r\n\r\n");
            let mut body = Body::chunked();
            let mut output = Vec::new();
            for piece in whole.chunks(cut) {
                prop_assert!(!body.is_over());
                prop_assert_eq!(body.pass(piece, &mut output), Ok(()));
            }
            prop_assert!(body.is_over());
            prop_assert_eq!(output, whole);
        }

        #[test]
        fn whatever_arrives_is_either_malformed_or_framed_soundly(input in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut body = Body::chunked();
            let mut output = Vec::new();
            if body.pass(&input, &mut output).is_ok() && body.is_over() {
                prop_assert!(output.ends_with(b"0\r\n\r\n"));
            }
        }
    }
}
