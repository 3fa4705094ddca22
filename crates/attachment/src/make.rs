//! Making an attachment's network on what earlier ADDs left of it.

use datapath::{Error, Object, Place, Places, apply, dismantle, plan};
use ipam::Reservation;

/// Makes a network. `observed` is empty for a fresh attachment, which is not looked at first. If the kernel reports that an object
/// exists, or the allocation existed, the remainder of an earlier ADD is adopted or removed. Objects of another attachment stay,
/// whatever the records say: a running pod may use them.
///
/// # Errors
/// When the network is not as desired. What is left is for `give_up`; that of a settled attachment stays.
pub fn make(
    desired: &[(Place, Object)],
    observed: &[(Place, Object)],
    reservation: &Reservation,
    observe: impl FnOnce(&mut Places) -> Result<Vec<(Place, Object)>, Error>,
    places: &mut Places,
) -> Result<(), Error> {
    // A host end whose other end is elsewhere belongs to an earlier namespace of this attachment.
    let is_severed = !observed.is_empty() && !observed.iter().any(|(place, _)| *place == Place::Pod);
    let first = if is_severed { None } else { Some(apply(&plan(desired, observed), places)) };
    match first {
        Some(Ok(())) => return Ok(()),
        // A running pod uses what there is.
        Some(Err(error)) if reservation.is_settled() && !observed.is_empty() => return Err(error),
        Some(Err(error)) if !(reservation.existing || error.is_already_exists()) => return Err(error),
        _ => {}
    }
    // Its error tells more than "already exists": of a link of another program by our name, for example.
    let own = observe(places)?;
    dismantle(&plan(&[], &own), places);
    match first {
        Some(failed) if own.is_empty() => failed,
        _ => apply(&plan(desired, &[]), places),
    }
}
