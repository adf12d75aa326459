//! The model server: one thread for the model, others for connections.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::app::App;
use crate::error::ServeError;
use crate::listening::{ConnectionLimits, LETTING_GO, answer_all, listen, runtime};
use crate::options::ServeOptions;
use crate::routes::router;
use crate::served::ServedModel;
use crate::worker::work;

/// A bound address, before the model is loaded.
pub struct Server {
    listener: TcpListener,
    options: ServeOptions,
}

impl Server {
    /// Binds the address. A public address needs a token.
    pub fn bind(options: ServeOptions) -> Result<Self, ServeError> {
        let (host, port) = (options.host, options.port);
        if !host.is_loopback() && options.token.is_none() {
            return Err(ServeError::NoToken { host });
        }
        Ok(Self { listener: listen(host, port)?, options })
    }

    /// Address for clients.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `is_ending` returns true, then finishes open requests.
    pub fn run(self, model: Arc<dyn ServedModel>, is_ending: &dyn Fn() -> bool) -> Result<(), ServeError> {
        let limits = ConnectionLimits { most: self.options.max_connections, timeout: self.options.timeout };
        let app = Arc::new(App::new(model, self.options));
        let worker = start_worker(&app)?;
        let runtime = runtime()?;
        let is_ending = || is_ending() || worker.is_finished();
        let served = runtime.block_on(answer_all(self.listener, router(app.clone()), limits, &is_ending));
        app.queue.close();
        let ended = worker.join().map_err(|_| ServeError::Model);
        // All requests are finished or abandoned.
        runtime.shutdown_timeout(LETTING_GO);
        served.and(ended)
    }
}

fn start_worker(app: &Arc<App>) -> Result<JoinHandle<()>, ServeError> {
    let (model, queue) = (app.model.clone(), app.queue.clone());
    let work = move || {
        // Abandons the queue however the thread ends, even by a panic.
        struct Abandon(Arc<crate::queue::Queue>);
        impl Drop for Abandon {
            fn drop(&mut self) {
                self.0.abandon();
            }
        }
        let _abandon = Abandon(queue.clone());
        work(&*model, &queue);
    };
    std::thread::Builder::new().name("model".into()).spawn(work).map_err(ServeError::Start)
}
