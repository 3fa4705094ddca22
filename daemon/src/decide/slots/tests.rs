//! Who keeps which table, and when one may be reused.

use super::*;

fn id(name: &str) -> Ocid {
    format!("ocid1.vnic.oc1.iad.{name}").parse().unwrap()
}

fn assigned(slots: &mut Slots, present: &[&str], referred: &TableReferences) -> Vec<(String, u32)> {
    let present: Vec<Ocid> = present.iter().map(|name| id(name)).collect();
    slots.assign(&present, referred);
    slots.slots.iter().map(|(id, slot)| (id.unique_id().to_owned(), *slot)).collect()
}

fn tables(numbers: &[u32]) -> TableReferences {
    TableReferences { tables: numbers.iter().copied().map(TableId).collect(), ..TableReferences::default() }
}

fn pairs(expected: &[(&str, u32)]) -> Vec<(String, u32)> {
    expected.iter().map(|(name, slot)| ((*name).to_owned(), *slot)).collect()
}

#[test]
fn vnic_keeps_its_slot_when_other_vnics_change() {
    let mut slots = Slots::default();
    assert_eq!(assigned(&mut slots, &["a", "b"], &tables(&[])), pairs(&[("a", 0), ("b", 1)]));
    assert_eq!(assigned(&mut slots, &["b"], &tables(&[])), pairs(&[("b", 1)]));
    assert_eq!(assigned(&mut slots, &["c", "b"], &tables(&[])), pairs(&[("b", 1), ("c", 0)]));
    assert_eq!(slots.table(&id("b")), Some(TableId(1001)));
}

#[test]
fn slot_is_not_reused_while_its_table_is_referred_to() {
    let mut slots = Slots::default();
    assigned(&mut slots, &["a"], &tables(&[]));
    assert_eq!(assigned(&mut slots, &["b"], &tables(&[1000])), pairs(&[("a", 0), ("b", 1)]));
    assert!(!slots.are_for(&[id("b")]));
    assert_eq!(assigned(&mut slots, &["b"], &tables(&[])), pairs(&[("b", 1)]));
    assert!(slots.are_for(&[id("b")]));
}

#[test]
fn table_of_another_program_is_not_assigned() {
    assert_eq!(assigned(&mut Slots::default(), &["a"], &tables(&[1000, 1001])), pairs(&[("a", 2)]));
}

#[test]
fn lost_file_is_restored_from_kernel_and_allocations() {
    let mut referred = tables(&[1000, 1003]);
    referred.owners.insert(id("b"), TableId(1003));
    assert_eq!(assigned(&mut Slots::default(), &["a", "b"], &referred), pairs(&[("a", 1), ("b", 3)]));
}

#[test]
fn two_vnics_do_not_share_a_table() {
    let mut referred = tables(&[1000]);
    referred.owners.insert(id("a"), TableId(1000));
    referred.owners.insert(id("b"), TableId(1000));
    referred.owners.insert(id("c"), TableId(254));
    let expected = pairs(&[("a", 0), ("b", 1), ("c", 2)]);
    assert_eq!(assigned(&mut Slots::default(), &["a", "b", "c"], &referred), expected);
}

#[test]
fn written_slots_are_read_and_unknown_fields_stay() {
    let directory = tempfile::tempdir().unwrap();
    let file = SlotFile::new(directory.path());
    assert_eq!(file.read().unwrap(), Slots::default());
    let path = directory.path().join("tables.json");
    std::fs::write(&path, r#"{"version":1,"slots":{"ocid1.vnic.oc1.iad.a":4},"later":[1]}"#).unwrap();
    let mut slots = file.read().unwrap();
    assigned(&mut slots, &["a", "b"], &tables(&[]));
    file.write(&slots).unwrap();
    assert_eq!(file.read().unwrap(), slots);
    assert!(std::fs::read_to_string(path).unwrap().contains("later"));
}
