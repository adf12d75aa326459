//! Handling of Ctrl-C and termination signals: the first ends the run at the next finished result, the second
//! immediately.

use probity_session::Interrupt;
use serde_json::json;

use crate::global::ProgressArg;
use crate::progress::emit;
use crate::terminal::eprint_wrapped;

/// Returns a token that Ctrl-C, SIGTERM and SIGHUP set from now on. If they cannot be caught, Ctrl-C ends the process
/// as usual; finished rows are in the files.
///
/// Signals that the process was started to ignore stay ignored: SIGHUP under `nohup`, SIGINT in a background job of a
/// script.
pub(crate) fn catch(progress: ProgressArg) -> Interrupt {
    catch_saying(progress, "stopping after what is being computed (press Ctrl-C again to stop at once)")
}

/// The same with another message at the first signal, for commands that wait and do not compute.
pub(crate) fn catch_saying(progress: ProgressArg, text: &'static str) -> Interrupt {
    let interrupt = Interrupt::default();
    let token = interrupt.clone();
    // Must come first: catching a signal replaces its inherited action.
    #[cfg(unix)]
    let ignored = ignored();
    let _ = ctrlc::set_handler(move || {
        if token.raise() {
            std::process::exit(130);
        }
        match progress {
            ProgressArg::Json => emit(&json!({"event": "message", "text": text})),
            _ => eprint_wrapped(&format!("\n{text}")),
        }
    });
    #[cfg(unix)]
    for signal in ignored {
        // SAFETY: ignoring a signal runs none of our code, and the number is one of the three below.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    interrupt
}

/// Makes a file size limit an error with a hint instead of ending the process.
pub(crate) fn survive_file_limits() {
    #[cfg(unix)]
    // SAFETY: ignoring a signal runs none of our code; writes beyond the limit then return an error.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN)
    };
}

/// The signals that are ignored.
#[cfg(unix)]
fn ignored() -> Vec<libc::c_int> {
    let is_ignored = |signal: &libc::c_int| {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: without a new action the call only writes the old one to the given address, and returns whether it
        // did.
        unsafe {
            libc::sigaction(*signal, std::ptr::null(), action.as_mut_ptr()) == 0
                && action.assume_init().sa_sigaction == libc::SIG_IGN
        }
    };
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].into_iter().filter(is_ignored).collect()
}
