//! Long work of one call: away from the interpreter, which looks every now and then whether it should end.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use parking_lot::Mutex;
use probity_session::Interrupt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::events::{Told, Waiting};

/// How often signals and progress are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Does the work on a thread of its own, without the interpreter's lock. `observer`, where there is one, is told of
/// messages and progress; Ctrl-C raises the interrupt, and the work's own end is waited for.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    events: &Waiting,
    interrupt: &Interrupt,
    observer: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    let mut failure = None;
    let done = std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        // Only one looks; the lock is what may be held across leaving the interpreter.
        let receiver = Mutex::new(receiver);
        let worker = scope.spawn(move || {
            let done = work();
            // Whoever waits is told by the channel's end too.
            let _ = sender.send(());
            done
        });
        loop {
            let waited = py.detach(|| receiver.lock().recv_timeout(LOOK));
            let looked = py.check_signals().and_then(|()| tell(observer, events.take()));
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
    done.map_err(|_| PyRuntimeError::new_err("a defect of probity: the work ended in a panic, which was printed"))
}

fn tell(observer: Option<&Bound<'_, PyAny>>, told: Told) -> PyResult<()> {
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
