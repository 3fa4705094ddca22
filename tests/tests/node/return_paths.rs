//! What is requested at a node's own address and answered by a pod leaves through the VNIC it came in by. Packets prove that,
//! with the real agent and plugin, in a fabric that drops what a VNIC sends in another's name.

mod host_ports;
mod ipvs;
mod kube_proxy;
mod marks;
mod node_ports;
mod round_trips;
mod services;
mod sources;
mod surroundings;
mod world;
