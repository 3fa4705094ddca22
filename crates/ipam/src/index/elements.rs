//! The elements of the index's lists, read byte by byte: there are some hundred of them, and `str::split` with
//! `IpAddr::from_str` takes a microsecond for each when nothing of it is in the processor's caches.

use std::net::{IpAddr, Ipv4Addr};

use super::FORGOTTEN;
use crate::allocations::Held;
use crate::records::is_name;
use crate::{BootTime, Freed};

/// What a list of holdings says, or the element that is none.
pub(super) fn held(list: &str) -> Result<Vec<Held>, &str> {
    read(list, |element| {
        let name = element.until(b'=')?;
        let mut addresses = Vec::new();
        while !element.is_at_end() {
            addresses.push(element.address()?);
            if !element.is_at_end() {
                // Something has to follow it.
                element.expect(b',').filter(|()| !element.is_at_end())?;
            }
        }
        is_name(name).then(|| Held { name: name.to_owned(), addresses })
    })
}

/// What a list of freed addresses says, or the element that is none.
pub(super) fn freed(list: &str) -> Result<Vec<Freed>, &str> {
    read(list, |element| {
        let address = element.address()?;
        element.expect(b'@')?;
        let at = BootTime(element.number()?);
        Some(Freed { address, at, forgotten: element.expect(FORGOTTEN).is_some() })
    })
}

fn read<T>(list: &str, mut element: impl FnMut(&mut Element<'_>) -> Option<T>) -> Result<Vec<T>, &str> {
    let mut found = Vec::with_capacity(list.len() / 16);
    let mut rest = Element { text: list, at: 0 };
    loop {
        while rest.expect(b' ').is_some() {}
        if rest.at == list.len() {
            return Ok(found);
        }
        let begin = rest.at;
        match element(&mut rest).filter(|_| rest.is_at_end()) {
            Some(one) => found.push(one),
            None => return Err(list.get(begin..).and_then(|text| text.split(' ').next()).unwrap_or_default()),
        }
    }
}

/// A place in a list. An element ends at a space or with the list.
struct Element<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Element<'a> {
    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn is_at_end(&self) -> bool {
        self.next().is_none_or(|byte| byte == b' ')
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next() == Some(byte)).then(|| self.at += 1)
    }

    /// What stands before a byte of this element.
    fn until(&mut self, byte: u8) -> Option<&'a str> {
        let begin = self.at;
        while self.next().is_some_and(|next| next != byte && next != b' ') {
            self.at += 1;
        }
        let before = self.text.get(begin..self.at);
        self.expect(byte)?;
        before
    }

    fn number(&mut self) -> Option<u64> {
        let (mut number, begin) = (0_u64, self.at);
        while let Some(digit) = self.next().map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
            number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
            self.at += 1;
        }
        (self.at > begin).then_some(number)
    }

    fn address(&mut self) -> Option<IpAddr> {
        let begin = self.at;
        if let Some(address) = self.ipv4() {
            return Some(address.into());
        }
        self.at = begin;
        while self.next().is_some_and(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.')) {
            self.at += 1;
        }
        self.text.get(begin..self.at)?.parse().ok()
    }

    fn ipv4(&mut self) -> Option<Ipv4Addr> {
        let bytes = self.text.as_bytes().get(self.at..)?;
        let (mut packed, mut dots, mut digits, mut octet, mut length) = (0_u32, 0, 0, 0_u32, 0);
        for &byte in bytes {
            let digit = byte.wrapping_sub(b'0');
            if digit < 10 {
                // As it is written: no zero before a number.
                if digits > 0 && octet == 0 {
                    return None;
                }
                octet = octet * 10 + u32::from(digit);
                digits += 1;
            } else if byte == b'.' && digits > 0 && dots < 3 {
                packed = packed << 8 | octet;
                (octet, digits, dots) = (0, 0, dots + 1);
            } else {
                break;
            }
            if octet > 255 {
                return None;
            }
            length += 1;
        }
        self.at += length;
        (dots == 3 && digits > 0).then(|| Ipv4Addr::from_bits(packed << 8 | octet))
    }
}

#[cfg(test)]
mod tests;
