//! The trace that the runtime's call belongs to, in W3C form. libcni hands it on in the environment.

/// The content of TRACEPARENT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// TRACEPARENT as given.
    pub traceparent: Option<String>,
}

/// The caller's span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentSpan<'a> {
    /// The trace: 32 lower-case hexadecimal digits, not all zero.
    pub trace_id: &'a str,
    /// The span in it: 16 such digits.
    pub span_id: &'a str,
}

impl TraceContext {
    /// The caller's span; none when TRACEPARENT is missing or malformed. A later version of the format may have more parts
    /// than the first (W3C trace context §3.2.4).
    pub fn parent(&self) -> Option<ParentSpan<'_>> {
        let mut parts = self.traceparent.as_deref()?.split('-');
        let (version, trace_id, span_id, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let sound = is_hexadecimal(version, 2)
            && version != "ff"
            && is_hexadecimal(trace_id, 32)
            && is_hexadecimal(span_id, 16)
            && is_hexadecimal(flags, 2)
            && (version != "00" || parts.next().is_none());
        // All zeros means "none".
        let named = [trace_id, span_id].iter().all(|id| id.bytes().any(|digit| digit != b'0'));
        (sound && named).then_some(ParentSpan { trace_id, span_id })
    }
}

fn is_hexadecimal(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(text: &str) -> TraceContext {
        TraceContext { traceparent: Some(text.to_owned()) }
    }

    #[test]
    fn a_well_formed_parent_is_understood() {
        let expected = ParentSpan { trace_id: "4bf92f3577b34da6a3ce929d0e0e4736", span_id: "00f067aa0ba902b7" };
        for good in [
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-of-a-later-version",
        ] {
            assert_eq!(context(good).parent(), Some(expected), "{good}");
        }
    }

    #[test]
    fn anything_else_is_no_parent() {
        for bad in [
            "",
            "00",
            "00-xyz-1-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(context(bad).parent(), None, "{bad}");
        }
        assert_eq!(TraceContext::default().parent(), None);
    }
}
