//! A control plane in the caller's own runtime: no thread, no socket, and time that a test may stop.

use crate::{
    Faults, Options, Requests, Store,
    controllers::{self, Controllers},
    faults::{MustHit, Newest},
    http::{self, Gate, Service},
    status::Status,
};

/// A control plane whose clients are in this process; dropping it ends its controllers.
///
/// Its [`service`](InProcess::service) is what a [`kube::Client`] is made of. On tokio's paused clock the
/// fifteen seconds to the next resync pass at once:
///
/// ```
/// use control_plane::{InProcess, Options};
/// use k8s_openapi::api::core::v1::Namespace;
/// use kube::{Api, Client};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> anyhow::Result<()> {
/// let control_plane = InProcess::start(&Options::default())?;
/// let namespaces: Api<Namespace> = Api::all(Client::new(control_plane.service(), "default"));
/// assert_eq!(namespaces.list(&Default::default()).await?.items.len(), 2);
/// # Ok(())
/// # }
/// ```
///
/// [`kube::Client`]: https://docs.rs/kube/latest/kube/struct.Client.html#method.new
#[derive(Debug)]
pub struct InProcess {
    store: Store,
    gate: Gate,
    service: Service,
    _faults: MustHit,
    _controllers: Option<Controllers>,
}

impl InProcess {
    /// Starts the controllers on the current runtime, if [`Options::controllers`] says so. What the options
    /// say of addresses and files does not matter here.
    ///
    /// # Panics
    /// If it is called outside a tokio runtime.
    pub fn start(options: &Options) -> Result<Self, Status> {
        let control_plane = Self::without_controllers(options);
        let spawn = |options| controllers::spawn(control_plane.store.clone(), options);
        let controllers = options.controllers.then(|| options.of_controllers());
        Ok(Self { _controllers: controllers.map(spawn).transpose()?, ..control_plane })
    }

    pub(crate) fn without_controllers(options: &Options) -> Self {
        let store = Store::new(options.history);
        let newest = Newest::new({
            let store = store.clone();
            move || store.revision()
        });
        let gate = Gate {
            faults: Faults::new(newest),
            requests: Requests::default(),
            bystander: options.bystander.clone(),
        };
        let server = http::Server {
            store: store.clone(),
            bookmarks: options.bookmarks,
            pod_logs: options.processes.as_ref().map(|p| p.logs.clone()),
        };
        let service = http::service(server, gate.clone());
        Self { store, _faults: MustHit(gate.faults.clone()), gate, service, _controllers: None }
    }

    /// What answers requests; its errors are broken connections.
    pub fn service(&self) -> Service {
        self.service.clone()
    }

    /// What may go wrong on purpose; [`faults`](crate::faults) has examples.
    pub fn faults(&self) -> &Faults {
        &self.gate.faults
    }

    /// What has been asked; [`requests`](crate::requests) has examples.
    pub fn requests(&self) -> &Requests {
        &self.gate.requests
    }

    /// The objects, past the API: no fault hits, no request is recorded. For the setting of a scene, and
    /// for a look at its end; what is tested should go through the API.
    ///
    /// ```
    /// # use control_plane::{ControlPlane, Options};
    /// use control_plane::resource;
    ///
    /// let control_plane = ControlPlane::start(Options::default())?;
    /// let namespace = control_plane.store().get(&resource::NAMESPACES, "", "default")?;
    /// assert_eq!(namespace["status"]["phase"], "Active");
    /// # Ok::<(), anyhow::Error>(())
    /// ```
    pub fn store(&self) -> &Store {
        &self.store
    }
}
