//! Routes of other programs in the table of pods. A rule sends every packet of the host there, so a route that a program added
//! for its own packets (a VPN's default route) would apply to all. The rule skips routes to more than one address; routes that
//! it cannot skip block it.

use std::fmt;

use netlink::{Route, RouteFilter, RouteKind, Socket};
use vcn::{Family, IfName, PODS_TABLE, PROTOCOL, RulePriorities};

use crate::facts::condition::{Condition, Reason};

/// A route of another program in the table of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ForeignRoute {
    pub(super) route: Route,
    link: Option<IfName>,
}

impl ForeignRoute {
    /// Whether the rule to pods would refuse packets because of it that are for no pod: the kernel skips no route that refuses.
    pub(super) fn blocks(&self) -> bool {
        let refuses = matches!(self.route.kind, RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit);
        refuses && !self.is_single()
    }

    fn is_single(&self) -> bool {
        self.route.destination.prefix() == self.route.family().host_prefix()
    }
}

impl fmt::Display for ForeignRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Route { oif: 0, ..self.route.clone() })?;
        if let Some(link) = &self.link {
            write!(f, " dev {link}")?;
        }
        write!(f, " proto {}", self.route.protocol)
    }
}

/// Those of these families.
pub(super) fn look(families: &[Family]) -> Result<Vec<ForeignRoute>, netlink::Error> {
    let mut socket = Socket::open()?;
    let mut found = Vec::new();
    for &family in families {
        let routes = socket.routes(&RouteFilter { table: Some(PODS_TABLE), ..RouteFilter::all(family) })?;
        // After a throw route, the next rule applies.
        found.extend(routes.into_iter().filter(|it| it.protocol != PROTOCOL && it.kind != RouteKind::Throw));
    }
    let links = if found.is_empty() { Vec::new() } else { socket.links()? };
    let link = |route: &Route| links.iter().find(|link| link.index == route.oif).map(|link| link.name.clone());
    Ok(found.into_iter().map(|route| ForeignRoute { link: link(&route), route }).collect())
}

/// A condition for each family that has some.
pub(super) fn conditions(foreign: &[ForeignRoute]) -> Vec<Condition> {
    Family::ALL.into_iter().filter_map(|family| condition(family, foreign)).collect()
}

fn condition(family: Family, foreign: &[ForeignRoute]) -> Option<Condition> {
    let all = || foreign.iter().filter(|it| it.route.family() == family);
    let (rule, table) = (RulePriorities::TO_PODS, PODS_TABLE);
    let first = all().max_by_key(|it| (it.blocks(), it.is_single()))?;
    let count = all().count();
    let routes =
        format!("{count} route(s) of other programs are in table {table}, which leads to pods, such as \"{first}\"");
    let condition = if first.blocks() {
        let message = format!(
            "{routes}. It would refuse every packet of this host to {}, so rule {rule} is removed while it is there, and packets \
             for this node's pods do not reach them",
            first.route.destination
        );
        Condition::blocking(Reason::PodTableShared, message)
    } else if first.is_single() {
        let message = format!("{routes}. Rule {rule} applies it to every packet of this host");
        Condition::degraded(Reason::PodTableShared, message)
    } else {
        let message = format!("{routes}. Rule {rule} skips it, as every route there to more than one address");
        Condition::degraded(Reason::PodTableShared, message)
    };
    Some(condition.about(family))
}

#[cfg(test)]
mod tests {
    use vcn::TableId;

    use super::*;

    fn foreign_route(destination: &str, kind: RouteKind) -> ForeignRoute {
        let mut route = Route::new(destination.parse().unwrap(), 0, PODS_TABLE, 4);
        route.kind = kind;
        ForeignRoute { route, link: (kind == RouteKind::Unicast).then(|| "tun0".parse().unwrap()) }
    }

    #[test]
    fn only_refusal_of_more_than_one_address_blocks() {
        for (destination, kind, blocks) in [
            ("0.0.0.0/0", RouteKind::Unicast, false),
            ("0.0.0.0/0", RouteKind::Local, false),
            ("0.0.0.0/0", RouteKind::Blackhole, true),
            ("10.0.0.0/8", RouteKind::Prohibit, true),
            ("::/0", RouteKind::Unreachable, true),
            ("10.0.0.7/32", RouteKind::Blackhole, false),
        ] {
            assert_eq!(foreign_route(destination, kind).blocks(), blocks, "{destination} {kind:?}");
        }
    }

    #[test]
    fn condition_of_a_family_names_its_worst_route() {
        let foreign = [
            foreign_route("0.0.0.0/0", RouteKind::Unicast),
            foreign_route("10.0.0.7/32", RouteKind::Unicast),
            foreign_route("::/0", RouteKind::Unicast),
            foreign_route("2001:db8::/32", RouteKind::Unreachable),
        ];
        let found = conditions(&foreign).into_iter().map(|it| {
            let named = it.message.split('"').nth(1).unwrap().to_owned();
            (it.reason, it.blocks(), it.subject.unwrap(), named)
        });
        let table = TableId(999);
        assert_eq!(
            found.collect::<Vec<_>>(),
            [
                (
                    Reason::PodTableShared,
                    false,
                    "IPv4".to_owned(),
                    format!("10.0.0.7/32 table {table} dev tun0 proto 4")
                ),
                (
                    Reason::PodTableShared,
                    true,
                    "IPv6".to_owned(),
                    format!("unreachable 2001:db8::/32 table {table} proto 4")
                ),
            ]
        );
        assert_eq!(conditions(&[]), []);
    }
}
