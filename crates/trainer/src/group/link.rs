//! One connection between two ranks, and the thread that listens to it.
//!
//! A frame is a byte for its kind, eight for its length, and so many bytes. Both sides say every second that they live.

use super::{Members, RankError};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Kinds of frames: a message; a sign of life; why a rank has failed; the end.
const MESSAGE: u8 = b'm';
const ALIVE: u8 = b'a';
const FAILED: u8 = b'f';
const END: u8 = b'e';
/// Bytes that are read at once: who is no rank may send any length.
const AT_ONCE: usize = 1 << 24;

/// One end of a connection to another rank.
pub(super) struct Link {
    /// The rank at the other end.
    pub(super) rank: usize,
    stream: TcpStream,
    writer: Mutex<TcpStream>,
    messages: Mutex<Receiver<Vec<u8>>>,
}

/// What its thread has of it.
pub(super) struct Listener {
    /// How long the other side may be silent.
    silence: Duration,
    heard: Instant,
    beat: Instant,
    arrived: Sender<Vec<u8>>,
}

impl Link {
    /// Of a connection that is made already.
    pub(super) fn new(rank: usize, stream: TcpStream, silence: Duration) -> io::Result<(Self, Listener)> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(silence / 30))?;
        stream.set_write_timeout(Some(silence))?;
        let ((arrived, messages), now) = (channel(), Instant::now());
        let (writer, messages) = (Mutex::new(stream.try_clone()?), Mutex::new(messages));
        let listener = Listener { silence, heard: now, beat: now, arrived };
        Ok((Self { rank, stream, writer, messages }, listener))
    }

    fn writer(&self) -> MutexGuard<'_, TcpStream> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        write(&mut self.writer(), MESSAGE, bytes)
    }

    /// The next message, if one comes and no rank fails meanwhile.
    pub(super) fn receive(&self, has_failed: impl Fn() -> bool) -> Option<Vec<u8>> {
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match messages.recv_timeout(Duration::from_millis(100)) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Timeout) if !has_failed() => {}
                Err(_) => return None,
            }
        }
    }

    /// Tells why a rank has failed. Where this does not arrive, they know already.
    pub(super) fn pass_on(&self, sentence: &str) {
        let _ = write(&mut self.writer(), FAILED, sentence.as_bytes());
    }

    /// Tells that nothing follows.
    pub(super) fn end(&self) {
        let _ = write(&mut self.writer(), END, &[]);
    }

    /// What was sent arrives; then the other side finds nobody here.
    pub(super) fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn frame(&self, listener: &mut Listener) -> Result<(u8, Vec<u8>), String> {
        let (mut head, mut bytes) = ([0; 9], Vec::new());
        self.read(&mut head, listener)?;
        let mut missing = u64::from_le_bytes(head[1..].try_into().expect("eight bytes")) as usize;
        while missing > 0 {
            let start = bytes.len();
            bytes.resize(start + missing.min(AT_ONCE), 0);
            missing -= bytes.len() - start;
            self.read(&mut bytes[start..], listener)?;
        }
        Ok((head[0], bytes))
    }

    /// Fills `bytes`, however long that takes, if the other side lives; and says that this one does.
    fn read(&self, bytes: &mut [u8], listener: &mut Listener) -> Result<(), String> {
        let mut done = 0;
        while done < bytes.len() {
            let now = Instant::now();
            match (&self.stream).read(&mut bytes[done..]) {
                Ok(0) => return Err("it has closed its connection".to_owned()),
                Ok(count) => (done, listener.heard) = (done + count, now),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return Err(error.to_string()),
                },
            }
            if now - listener.heard > listener.silence {
                return Err(format!("nothing was heard from it for {:?}", listener.silence));
            }
            // Whoever holds the lock is writing, which is a sign of life, too.
            let writer = self.writer.try_lock().ok().filter(|_| now - listener.beat > listener.silence / 30);
            if let Some(mut writer) = writer {
                listener.beat = now;
                let _ = write(&mut writer, ALIVE, &[]);
            }
        }
        Ok(())
    }
}

impl Listener {
    /// Starts the thread that listens to link number `link` of `members`.
    pub(super) fn start(self, members: &Arc<Members>, link: usize) -> io::Result<()> {
        let members = members.clone();
        thread::Builder::new().name("rank".to_owned()).spawn(move || self.run(&members, link)).map(drop)
    }

    /// Until a rank fails or all end. Only then the channel of messages ends, so that who waits there finds the reason.
    fn run(mut self, members: &Members, link: usize) {
        let link = &members.links[link];
        let error = loop {
            match link.frame(&mut self) {
                Ok((MESSAGE, bytes)) => drop(self.arrived.send(bytes)),
                Ok((ALIVE, _)) => {}
                Ok((FAILED, sentence)) => break String::from_utf8_lossy(&sentence).into_owned(),
                Ok(_) => return members.state().has_ended |= members.share.rank > 0,
                Err(reason) => {
                    break format!("rank {} of {} is lost: {reason}", link.rank, members.share.ranks);
                }
            }
        };
        members.fail(RankError(error));
        // Its writer may be waiting for a process that reads no more.
        link.close();
        let release = members.state().release.take();
        release.into_iter().for_each(|release| release());
    }
}

fn write(stream: &mut TcpStream, kind: u8, bytes: &[u8]) -> io::Result<()> {
    let mut head = [kind; 9];
    head[1..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    match bytes.len() {
        // In one packet.
        0..=4096 => stream.write_all(&[&head[..], bytes].concat()),
        _ => stream.write_all(&head).and_then(|()| stream.write_all(bytes)),
    }
}
