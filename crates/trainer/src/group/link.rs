//! One connection between two ranks, and the thread that listens to it.
//!
//! A frame is a byte for its kind, eight for its length, and so many bytes. Both sides say every second that they live.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Kinds of frames: a message; a sign of life; why a rank has failed; the end.
pub(super) const MESSAGE: u8 = b'm';
const ALIVE: u8 = b'a';
pub(super) const FAILED: u8 = b'f';
pub(super) const END: u8 = b'e';

/// How long a rank may be silent, and between two signs of life.
const SILENCE: Duration = Duration::from_secs(30);
const BEAT: Duration = Duration::from_secs(1);

/// One end of a connection to another rank.
pub(super) struct Link {
    pub(super) rank: usize,
    stream: TcpStream,
    writing: Mutex<()>,
    messages: Mutex<Receiver<Vec<u8>>>,
}

impl Link {
    /// Of a connection that is made already; beside it where messages that have arrived are put. When that is dropped,
    /// whoever waits for one is told that none comes any more.
    pub(super) fn new(rank: usize, stream: TcpStream) -> io::Result<(Self, Sender<Vec<u8>>)> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(BEAT))?;
        stream.set_write_timeout(Some(SILENCE))?;
        let (arrived, messages) = channel();
        Ok((Self { rank, stream, writing: Mutex::new(()), messages: Mutex::new(messages) }, arrived))
    }

    pub(super) fn send(&self, kind: u8, bytes: &[u8]) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.write(kind, bytes)
    }

    /// In one packet, if it is small. Nobody else writes.
    fn write(&self, kind: u8, bytes: &[u8]) -> io::Result<()> {
        (&self.stream).write_all(&[&[kind], &(bytes.len() as u64).to_le_bytes()[..], bytes].concat())
    }

    /// The next message, unless the connection ends first: where another rank fails, the one over there closes it, or
    /// is not heard for too long.
    pub(super) fn receive(&self) -> Option<Vec<u8>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    /// What was sent arrives; then the other side finds nobody here.
    pub(super) fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Passes messages on until the other of so many ranks ends, or gives the reason why a rank has failed.
    pub(super) fn listen(&self, ranks: usize, arrived: &Sender<Vec<u8>>) -> Result<(), String> {
        let mut times = [Instant::now(); 2];
        let reason = loop {
            match self.frame(&mut times) {
                Ok((MESSAGE, bytes)) => drop(arrived.send(bytes)),
                Ok((ALIVE, _)) => {}
                Ok((FAILED, sentence)) => break String::from_utf8_lossy(&sentence).into_owned(),
                Ok(_) => return Ok(()),
                Err(reason) => break format!("rank {} of {ranks} is lost: {reason}", self.rank),
            }
        };
        // Who is writing may wait for a process that reads no more.
        self.close();
        Err(reason)
    }

    fn frame(&self, times: &mut [Instant; 2]) -> Result<(u8, Vec<u8>), String> {
        let mut head = [0; 9];
        self.read(&mut head, times)?;
        let mut bytes = vec![0; u64::from_le_bytes(head[1..].try_into().expect("eight bytes")) as usize];
        self.read(&mut bytes, times)?;
        Ok((head[0], bytes))
    }

    /// Fills `bytes`, however long that takes, if the other side lives; and says that this one does. Their times are
    /// those of the last signs.
    fn read(&self, bytes: &mut [u8], [heard, said]: &mut [Instant; 2]) -> Result<(), String> {
        let mut done = 0;
        while done < bytes.len() {
            let read = (&self.stream).read(&mut bytes[done..]);
            let now = Instant::now();
            match read {
                Ok(0) => return Err("it has closed its connection".to_owned()),
                Ok(count) => (done, *heard) = (done + count, now),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return Err(error.to_string()),
                },
            }
            if now - *heard > SILENCE {
                return Err(format!("nothing was heard from it for {} s", SILENCE.as_secs()));
            }
            // Whoever is writing gives a sign of life, too.
            if let (true, Ok(_writing)) = (now - *said >= BEAT, self.writing.try_lock()) {
                *said = now;
                let _ = self.write(ALIVE, &[]);
            }
        }
        Ok(())
    }
}
