//! Each of our containers works under exactly the privileges that its manifest gives it, and needs every one of them.

mod agent;
mod node;
mod uninstaller;
