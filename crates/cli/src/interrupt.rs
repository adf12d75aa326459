//! Ctrl-C, and the signals by which systems end a program: the first ends the run at the next finished result, the
//! second at once.

use probity_session::Interrupt;
use serde_json::json;

use crate::global::ProgressArg;
use crate::progress::emit;
use crate::terminal::eprint_wrapped;

/// A token that Ctrl-C, SIGTERM and SIGHUP raise from here on. Where they cannot be caught, Ctrl-C ends the process as
/// it always does: finished rows are in the files anyway.
///
/// What the process was started to ignore it goes on ignoring: SIGHUP under `nohup`, SIGINT as a background job of a
/// script.
pub(crate) fn catch(progress: ProgressArg) -> Interrupt {
    catch_saying(progress, "stopping after what is being computed (press Ctrl-C again to stop at once)")
}

/// The same with another text at the first signal, for what waits and does not compute.
pub(crate) fn catch_saying(progress: ProgressArg, text: &'static str) -> Interrupt {
    let interrupt = Interrupt::default();
    let token = interrupt.clone();
    // Asked first: to catch a signal replaces what the process was started to do with it.
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
        // SAFETY: ignoring a signal runs no code of ours, and the number is one of the three below.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    interrupt
}

/// A file that may not grow further is an error with a hint, and not the end of the process.
pub(crate) fn survive_file_limits() {
    #[cfg(unix)]
    // SAFETY: ignoring a signal runs no code of ours; writes beyond the limit fail with an error then.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN)
    };
}

/// Those of the signals that are ignored.
#[cfg(unix)]
fn ignored() -> Vec<libc::c_int> {
    let is_ignored = |signal: &libc::c_int| {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: with no new action the call only writes the old one to the place that it is given, and says whether
        // it did.
        unsafe {
            libc::sigaction(*signal, std::ptr::null(), action.as_mut_ptr()) == 0
                && action.assume_init().sa_sigaction == libc::SIG_IGN
        }
    };
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].into_iter().filter(is_ignored).collect()
}
