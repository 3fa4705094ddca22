//! What the kernel lists of a namespace. Everything is listed once, whatever the number of pods; observers pick their objects.

use netlink::{Address, Link, Neighbour, NeighbourFilter, Route, RouteFilter, Rule, Socket};
use vcn::{Family, IfName, PODS_TABLE, PROTOCOL, TableId};

use crate::error::during;
use crate::{Error, Object, Places, RouteSpec};

/// The lists, in the kernel's order.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// All links of the namespace.
    pub links: Vec<Link>,
    pub(crate) addresses: Vec<Address>,
    /// Of the host our proxies, of a pod its neighbours.
    pub(crate) neighbours: Vec<Neighbour>,
    /// Those that were requested.
    pub(crate) routes: Vec<Route>,
    pub(crate) rules: Vec<Rule>,
}

impl Snapshot {
    /// What concerns pods on the host: of routes those in the table of pods.
    ///
    /// # Errors
    /// [`Error::Observe`] when the kernel does not answer.
    pub fn of_host(places: &mut Places) -> Result<Self, Error> {
        Self::with_routes(&RouteFilter { table: Some(PODS_TABLE), ..RouteFilter::all(Family::Ipv4) }, places)
    }

    /// The host with the routes of a filter, of both families.
    pub(crate) fn with_routes(filter: &RouteFilter, places: &mut Places) -> Result<Self, Error> {
        let mut found = Self::list(filter, true, &mut places.host).map_err(during("the host's network"))?;
        // A proxy that another program made may go with it.
        found.neighbours.retain(|it| it.protocol == Some(PROTOCOL));
        Ok(found)
    }

    /// The pod with our routes; nothing where there is none. A pod that is a router may have a million others.
    pub(crate) fn of_pod(places: &mut Places) -> Result<Self, Error> {
        Self::inside(&RouteFilter { protocol: Some(PROTOCOL), ..RouteFilter::all(Family::Ipv4) }, places)
    }

    /// The pod with all routes of its main table.
    pub(crate) fn of_pods_main_table(places: &mut Places) -> Result<Self, Error> {
        Self::inside(&RouteFilter { table: Some(TableId::MAIN), ..RouteFilter::all(Family::Ipv4) }, places)
    }

    fn inside(filter: &RouteFilter, places: &mut Places) -> Result<Self, Error> {
        let Some(pod) = &mut places.pod else { return Ok(Self::default()) };
        Self::list(filter, false, &mut pod.socket).map_err(during("the pod's network"))
    }

    fn list(filter: &RouteFilter, proxy: bool, socket: &mut Socket) -> netlink::Result<Self> {
        let mut found = Self { links: socket.links()?, addresses: socket.addresses(None)?, ..Self::default() };
        found.neighbours = socket.neighbours(&NeighbourFilter { proxy, ..NeighbourFilter::default() })?;
        for family in Family::ALL {
            found.routes.extend(socket.routes(&RouteFilter { family, ..*filter })?);
            found.rules.extend(socket.rules(family)?);
        }
        Ok(found)
    }

    pub(crate) fn link(&self, name: &IfName) -> Option<&Link> {
        self.links.iter().find(|link| link.name == *name)
    }

    /// The name of a link; `None` where it came or went between two lists.
    pub(crate) fn name(&self, index: u32) -> Option<&IfName> {
        self.links.iter().find(|link| link.index == index).map(|link| &link.name)
    }

    /// The addresses of a link.
    pub(crate) fn addresses_on(&self, link: &Link) -> impl Iterator<Item = &Address> {
        self.addresses.iter().filter(|it| it.index == link.index)
    }

    /// Our routes on a link, in one table.
    pub(crate) fn routes_on(&self, link: &Link, table: TableId) -> impl Iterator<Item = Object> {
        let ours = move |route: &&Route| (route.oif, route.table, route.protocol) == (link.index, table, PROTOCOL);
        self.routes.iter().filter(ours).map(|route| Object::Route(RouteSpec::seen(route, link.name.clone())))
    }
}
