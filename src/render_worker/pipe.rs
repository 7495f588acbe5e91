//! What goes through a pipe: parts, each behind the number of its bytes as four bytes, the least
//! significant first.

use std::io::{self, Read, Write};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use zeroize::Zeroizing;

/// A part. It holds secrets.
pub(super) type Part = Zeroizing<Vec<u8>>;

/// Of how many bytes a part may be. The largest is a profile of 3 MiB, which is what API servers
/// take, with its escapes; documents of more than 1 MiB are refused before they are sent.
const BYTES_MAX: u32 = 16 << 20;

fn room(bytes: u32) -> io::Result<Part> {
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

/// Reads a part; nothing where the other side has closed the pipe.
pub(super) fn read(from: &mut impl Read) -> io::Result<Option<Part>> {
    let mut bytes = [0; 4];
    if let Err(error) = from.read_exact(&mut bytes) {
        let is_end = error.kind() == io::ErrorKind::UnexpectedEof;
        return if is_end { Ok(None) } else { Err(error) };
    }
    let mut part = room(u32::from_le_bytes(bytes))?;
    from.read_exact(&mut part)?;
    Ok(Some(part))
}

/// Writes a part.
pub(super) fn write(to: &mut impl Write, part: &[u8]) -> io::Result<()> {
    to.write_all(&length(part)?.to_le_bytes())?;
    to.write_all(part)
}

/// As [`read`], of a task that waits meanwhile. The other side may not close the pipe.
pub(super) async fn receive(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Part> {
    let mut part = room(from.read_u32_le().await?)?;
    from.read_exact(&mut part).await?;
    Ok(part)
}

/// As [`write`], of a task that waits meanwhile.
pub(super) async fn send(to: &mut (impl AsyncWrite + Unpin), part: &[u8]) -> io::Result<()> {
    to.write_u32_le(length(part)?).await?;
    to.write_all(part).await?;
    to.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_as_they_went_until_the_pipe_is_closed() {
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
    fn no_room_is_made_for_a_part_that_is_too_large() {
        let mut from = u32::MAX.to_le_bytes().to_vec();
        from.extend([0; 16]);
        let error = read(&mut from.as_slice()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
