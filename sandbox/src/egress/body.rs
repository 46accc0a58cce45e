//! The body of a plain request, passed on exactly: neither a byte less nor a byte more.
//!
//! Where a body ends is where the next request would begin, so a second opinion about it is how requests are
//! smuggled. A chunked body is therefore taken apart and put together anew: what leaves is in our own words.

/// How much of what a client sends belongs to its request.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// Everything, until the client has no more: a tunnel.
    Endless,
    /// So many bytes.
    Length(u64),
    Chunked(ChunkDecoder),
}

/// A body that does not keep to its own framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MalformedBody;

/// Where in a chunked body we are.
#[derive(Debug)]
pub(crate) struct ChunkDecoder {
    state: ChunkState,
    /// What there is of the current line.
    line: Vec<u8>,
    /// Bytes of trailers that were thrown away.
    trailers: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum ChunkState {
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

impl RequestBody {
    pub(crate) fn chunked() -> Self {
        Self::Chunked(ChunkDecoder { state: ChunkState::Size, line: Vec::new(), trailers: 0 })
    }

    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Endless => false,
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.state == ChunkState::Over,
        }
    }

    /// Passes on what of `input` belongs to the body; what comes after its end is left out.
    pub(crate) fn pass(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<(), MalformedBody> {
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

impl ChunkDecoder {
    fn pass(&mut self, mut input: &[u8], output: &mut Vec<u8>) -> Result<(), MalformedBody> {
        while !input.is_empty() && self.state != ChunkState::Over {
            if let ChunkState::Data(left) = &mut self.state {
                let taken = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                output.extend_from_slice(&input[..taken]);
                input = &input[taken..];
                *left -= taken as u64;
                if *left == 0 {
                    self.state = ChunkState::DataEnd;
                }
                continue;
            }
            let (byte, rest) = (input[0], &input[1..]);
            input = rest;
            self.line.push(byte);
            let most = if self.state == ChunkState::DataEnd { 2 } else { LONGEST_SIZE_LINE };
            if self.line.len() > most && self.state != ChunkState::Trailers {
                return Err(MalformedBody);
            }
            if self.state == ChunkState::Trailers {
                self.trailers += 1;
                if self.trailers > MOST_TRAILERS {
                    return Err(MalformedBody);
                }
            }
            if byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.end_line(line.strip_suffix(b"\r\n").ok_or(MalformedBody)?, output)?;
            }
        }
        Ok(())
    }

    fn end_line(&mut self, line: &[u8], output: &mut Vec<u8>) -> Result<(), MalformedBody> {
        if line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return Err(MalformedBody);
        }
        self.state = match self.state {
            ChunkState::Size => match size(line)? {
                0 => ChunkState::Trailers,
                size => {
                    output.extend_from_slice(format!("{size:x}\r\n").as_bytes());
                    ChunkState::Data(size)
                }
            },
            ChunkState::DataEnd if line.is_empty() => {
                output.extend_from_slice(b"\r\n");
                ChunkState::Size
            }
            ChunkState::Trailers if line.is_empty() => {
                output.extend_from_slice(b"0\r\n\r\n");
                ChunkState::Over
            }
            ChunkState::Trailers => ChunkState::Trailers,
            ChunkState::DataEnd | ChunkState::Data(_) | ChunkState::Over => return Err(MalformedBody),
        };
        Ok(())
    }
}

/// A chunk's size. The specification allows extensions, no program knows any, and they are not passed on.
fn size(line: &[u8]) -> Result<u64, MalformedBody> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let sound = (1..=MOST_DIGITS).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).map_err(|_| MalformedBody)?;
    if sound { u64::from_str_radix(text, 16).map_err(|_| MalformedBody) } else { Err(MalformedBody) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn passed(mut body: RequestBody, input: &[u8]) -> Result<(Vec<u8>, bool), MalformedBody> {
        let mut output = Vec::new();
        body.pass(input, &mut output)?;
        Ok((output, body.is_over()))
    }

    #[test]
    fn nothing_after_the_end_is_passed_on() {
        let (output, over) = passed(RequestBody::Length(4), b"bodyGET / HTTP/1.1\r\n\r\n").expect("sound");
        assert_eq!((output.as_slice(), over), (&b"body"[..], true));
        let input =
            b"4;name=\"x\"\r\nbody\r\n0A\r\n0123456789\r\n0\r\nX-Trailer: 1\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        let (output, over) = passed(RequestBody::chunked(), input).expect("sound");
        assert_eq!(output, b"4\r\nbody\r\na\r\n0123456789\r\n0\r\n\r\n");
        assert!(over);
        assert_eq!(passed(RequestBody::Length(0), b"x").expect("sound"), (Vec::new(), true));
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
            assert_eq!(passed(RequestBody::chunked(), input), Err(MalformedBody), "{}", input.escape_ascii());
        }
        let long = [&b"4;"[..], &[b'x'; 300], b"\r\nbody\r\n"].concat();
        assert_eq!(passed(RequestBody::chunked(), &long), Err(MalformedBody));
        let trailers = [&b"0\r\n"[..], &b"X-Trailer: 1\r\n".repeat(1000)].concat();
        assert_eq!(passed(RequestBody::chunked(), &trailers), Err(MalformedBody));
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
            let mut body = RequestBody::chunked();
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
            let mut body = RequestBody::chunked();
            let mut output = Vec::new();
            if body.pass(&input, &mut output).is_ok() && body.is_over() {
                prop_assert!(output.ends_with(b"0\r\n\r\n"));
            }
        }
    }
}
