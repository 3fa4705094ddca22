//! The trace that the runtime's call belongs to, in W3C form. libcni hands it on in the environment.

/// What TRACEPARENT, TRACESTATE and BAGGAGE said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// TRACEPARENT as given.
    pub traceparent: Option<String>,
    /// TRACESTATE as given.
    pub tracestate: Option<String>,
    /// BAGGAGE as given.
    pub baggage: Option<String>,
}

impl TraceContext {
    /// The trace's identifier, 32 lower-case hexadecimal digits; none when TRACEPARENT is missing or malformed.
    #[must_use]
    pub fn trace_id(&self) -> Option<&str> {
        self.part(1, 32)
    }

    /// The caller's span, 16 lower-case hexadecimal digits.
    #[must_use]
    pub fn parent_span_id(&self) -> Option<&str> {
        self.part(2, 16)
    }

    /// A part of `version-traceid-spanid-flags`; all zeros means invalid there.
    fn part(&self, index: usize, length: usize) -> Option<&str> {
        let part = self.traceparent.as_deref()?.split('-').nth(index)?;
        let hexadecimal = part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        (part.len() == length && hexadecimal && part.bytes().any(|b| b != b'0')).then_some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_id_is_taken_only_from_a_well_formed_parent() {
        let context = |text: &str| TraceContext { traceparent: Some(text.to_owned()), ..TraceContext::default() };
        let good = context("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        assert_eq!(good.trace_id(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!(good.parent_span_id(), Some("00f067aa0ba902b7"));
        for bad in ["", "00", "00-xyz-1-01", "00-00000000000000000000000000000000-0000000000000000-00"] {
            assert_eq!(context(bad).trace_id(), None, "{bad}");
        }
        assert_eq!(TraceContext::default().trace_id(), None);
    }
}
