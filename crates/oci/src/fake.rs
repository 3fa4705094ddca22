//! fake
pub struct FakeCloud;
