//! The wire format: parts, each prefixed with its length as a little-endian `u32`.

use std::io::{self, Read, Write};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use zeroize::Zeroizing;

/// A part of a message. It contains secrets, so it is zeroed on drop.
pub(super) type Part = Zeroizing<Vec<u8>>;

/// The maximum size of a part, in bytes. The largest parts are profiles: API servers accept objects
/// of up to 3 MiB, and JSON escapes add to that. Documents above 1 MiB are refused before.
const BYTES_MAX: u32 = 16 << 20;

fn buffer(bytes: u32) -> io::Result<Part> {
    if bytes > BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
    Ok(Zeroizing::new(vec![0; bytes]))
}

fn length(part: &[u8]) -> io::Result<u32> {
    let bytes = u32::try_from(part.len()).ok();
    let bytes = bytes.filter(|bytes| *bytes <= BYTES_MAX);
    bytes.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Reads a part. Returns `None` at the end of the stream.
pub(super) fn read(from: &mut impl Read) -> io::Result<Option<Part>> {
    let mut bytes = [0; 4];
    if let Err(error) = from.read_exact(&mut bytes) {
        let is_end = error.kind() == io::ErrorKind::UnexpectedEof;
        return if is_end { Ok(None) } else { Err(error) };
    }
    let mut part = buffer(u32::from_le_bytes(bytes))?;
    from.read_exact(&mut part)?;
    Ok(Some(part))
}

/// Writes a part.
pub(super) fn write(to: &mut impl Write, part: &[u8]) -> io::Result<()> {
    to.write_all(&length(part)?.to_le_bytes())?;
    to.write_all(part)
}

/// Like [`read`], but asynchronous. The end of the stream is an error.
pub(super) async fn receive(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Part> {
    let mut part = buffer(from.read_u32_le().await?)?;
    from.read_exact(&mut part).await?;
    Ok(part)
}

/// Like [`write`], but asynchronous.
pub(super) async fn send(to: &mut (impl AsyncWrite + Unpin), part: &[u8]) -> io::Result<()> {
    to.write_u32_le(length(part)?).await?;
    to.write_all(part).await?;
    to.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_round_trip_until_the_end_of_the_stream() {
        let mut pipe = Vec::new();
        for part in ["first", "", "second"] {
            write(&mut pipe, part.as_bytes()).unwrap();
        }
        let mut from = pipe.as_slice();
        let mut next = || read(&mut from).unwrap().map(|part| part.to_vec());
        assert_eq!(next(), Some(b"first".to_vec()));
        assert_eq!(next(), Some(Vec::new()));
        assert_eq!(next(), Some(b"second".to_vec()));
        assert_eq!(next(), None);
    }

    #[test]
    fn a_length_prefix_that_is_too_large_allocates_nothing() {
        let mut from = u32::MAX.to_le_bytes().to_vec();
        from.extend([0; 16]);
        let error = read(&mut from.as_slice()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
