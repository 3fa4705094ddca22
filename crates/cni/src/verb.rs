//! What the runtime may request, in CNI_COMMAND.

use vcn::words;

/// The operations of the CNI specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Attach a container to the network.
    Add,
    /// Detach a container and free its addresses.
    Del,
    /// Is the attachment still as ADD left it?
    Check,
    /// Could an ADD succeed now?
    Status,
    /// Free what belongs to no valid attachment.
    Gc,
    /// Which protocol versions do we speak?
    Version,
}

// `from_word` is exact: runtimes write capitals, and a typing error must not become an operation.
words!(Verb: Add = "ADD", Del = "DEL", Check = "CHECK", Status = "STATUS", Gc = "GC", Version = "VERSION");
