//! Connections whose client does not read. A response (an event stream, a download) must not hold a
//! connection permit for ever, so a write that makes no progress for too long fails, and the
//! connection with it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use piton_core::planted::{self, Bug};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a peer may take nothing of what is sent to it.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A stream that fails when its peer stalls.
#[derive(Debug)]
pub(crate) struct StallGuard<S> {
    inner: S,
    timeout: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> StallGuard<S> {
    pub(crate) fn new(inner: S, timeout: Duration) -> Self {
        Self { inner, timeout, waiting: None }
    }

    /// What a write came to, or that it has waited too long.
    fn check<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waiting = None;
            return polled;
        }
        let timeout = self.timeout;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        match waiting.as_mut().poll(cx) {
            Poll::Ready(()) if planted::is(Bug::StallUnnoticed) => Poll::Pending,
            Poll::Ready(()) => {
                let message = "the peer takes nothing of what is sent to it";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, buffer);
        self.check(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, buffers);
        self.check(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Says nothing about what the peer takes.
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up_and_a_slow_one_is_not() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut guard = StallGuard::new(ours, STALL_TIMEOUT);
        let slow = tokio::spawn(async move {
            let mut byte = [0];
            // Takes a byte just in time, again and again, and then no more.
            for _ in 0..8 {
                tokio::time::sleep(STALL_TIMEOUT.saturating_sub(Duration::from_secs(1))).await;
                theirs.read_exact(&mut byte).await.unwrap();
            }
            theirs
        });
        guard.write_all(&[0; 24]).await.unwrap();
        let theirs = slow.await.unwrap();
        let began = tokio::time::Instant::now();
        let written = tokio::time::timeout(10 * STALL_TIMEOUT, guard.write_all(&[0; 24])).await;
        let error = written.expect("it is given up").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= STALL_TIMEOUT && began.elapsed() < 2 * STALL_TIMEOUT);
        drop(theirs);
    }
}
