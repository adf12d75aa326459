//! Runs long work of a call without the interpreter's lock, and checks for interrupts meanwhile.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use parking_lot::Mutex;
use probity_session::Interrupt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::events::{Told, WaitingEvents};

/// Interval for checking signals and progress.
const LOOK: Duration = Duration::from_millis(100);

/// Runs the work on its own thread, without the interpreter's lock. Messages and progress go to `observer`. Ctrl-C
/// raises the interrupt, and then the work is awaited.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    events: &WaitingEvents,
    interrupt: &Interrupt,
    observer: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    let mut failure = None;
    let done = std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        // There is one receiver; the lock is only needed because the value crosses `detach`.
        let receiver = Mutex::new(receiver);
        let worker = scope.spawn(move || {
            let done = work();
            // If this fails, the channel's end also signals completion.
            let _ = sender.send(());
            done
        });
        loop {
            let waited = py.detach(|| receiver.lock().recv_timeout(LOOK));
            let looked = py.check_signals().and_then(|()| notify_observer(observer, events.take()));
            if let Err(error) = looked {
                interrupt.raise();
                failure.get_or_insert(error);
            }
            if !matches!(waited, Err(RecvTimeoutError::Timeout)) {
                break;
            }
        }
        py.detach(|| worker.join())
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    done.map_err(|_| PyRuntimeError::new_err("bug in probity: the work panicked; see the printed message"))
}

fn notify_observer(observer: Option<&Bound<'_, PyAny>>, told: Told) -> PyResult<()> {
    let Some(observer) = observer else { return Ok(()) };
    for (kind, text) in told.messages {
        observer.call_method1("message", (kind, text))?;
    }
    if let Some(progress) = told.progress {
        let fields = PyDict::new(observer.py());
        fields.set_item("what", progress.what)?;
        fields.set_item("done", progress.done)?;
        fields.set_item("total", progress.total)?;
        fields.set_item("share", progress.share)?;
        observer.call_method("progress", (), Some(&fields))?;
    }
    Ok(())
}
