//! Who is told? (interim: signatures)
use super::LogError;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Resolves when a cts is durable, or with the error that poisoned the log.
pub struct DurableWait {}

impl DurableWait {
    /// Blocks until resolved; some other thread drives the log.
    pub fn wait(self) -> Result<(), LogError> {
        unimplemented!()
    }
    /// Blocks until resolved, driving the log itself whenever no other thread does.
    pub fn wait_inline(self) -> Result<(), LogError> {
        unimplemented!()
    }
}

impl Future for DurableWait {
    type Output = Result<(), LogError>;
    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        unimplemented!()
    }
}

/// Resolves when it is worth reserving again.
#[derive(Debug)]
pub struct StageWait {}

impl StageWait {
    pub fn wait(self) {
        unimplemented!()
    }
    pub fn wait_inline(self) {
        unimplemented!()
    }
}

impl Future for StageWait {
    type Output = ();
    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<()> {
        unimplemented!()
    }
}
