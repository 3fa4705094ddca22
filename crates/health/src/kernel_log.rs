//! The kernel's log as records: who wrote a line, when, and its text. One reader for all collectors of kernel messages.

/// A line of the kernel itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Seconds since boot by the log's own clock; absent where the kernel prints no times.
    pub at: Option<f64>,
    /// The text of the message.
    pub text: String,
}

/// The first line of a message that the NVIDIA driver prints in one call, over several lines.
const MULTILINE_START: &str = "NVRM: The NVIDIA GPU ";

/// The longest such message, in lines.
const MAX_LINES: usize = 4;

/// The records of an answer of syslog(2), in order: `<6>[   12.345678] text`, with the caller's thread or processor behind the
/// time or not. Lines of programs that write to /dev/kmsg have another facility than 0 and are left out.
pub fn records(log: &str) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let mut joined = 0;
    for record in log.lines().filter_map(Record::read) {
        let first = records.last_mut().filter(|first| {
            let is_next = joined < MAX_LINES && first.at == record.at && record.text.starts_with("NVRM: ");
            is_next && first.text.starts_with(MULTILINE_START) && !record.text.starts_with(MULTILINE_START)
        });
        if let Some(first) = first {
            first.text = format!("{} {}", first.text, record.text.trim_start_matches("NVRM: "));
            joined += 1;
        } else {
            joined = 1;
            records.push(record);
        }
    }
    records
}

impl Record {
    /// Reads a line; none if the kernel did not write it.
    pub fn read(line: &str) -> Option<Self> {
        let (priority, rest) = line.strip_prefix('<')?.split_once('>')?;
        // The facility is the number without its last three bits, which are the level.
        priority.parse::<u32>().ok().filter(|priority| *priority < 8)?;
        let (at, rest) = match bracketed(rest) {
            Some((time, rest)) => match time.trim().parse::<f64>() {
                Ok(at) => (Some(at), rest),
                Err(_) => (None, rest),
            },
            None => (None, rest),
        };
        let text = if at.is_some() { without_caller(rest) } else { rest };
        Some(Self { at, text: text.trim_start().to_owned() })
    }
}

/// Splits `[inside]rest` into its two parts; `None` without the brackets.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('[')?.split_once(']')
}

/// The text without `[ T291]` or `[   C3]` (CONFIG_PRINTK_CALLER), which follows the time with or without a blank.
fn without_caller(text: &str) -> &str {
    let is_caller = |inside: &str| {
        let number = inside.trim().strip_prefix(['T', 'C']);
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    match bracketed(text.trim_start()) {
        Some((inside, rest)) if is_caller(inside) => rest,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<(Option<f64>, String)> {
        Record::read(line).map(|record| (record.at, record.text))
    }

    #[test]
    fn records_have_time_and_text_with_each_form_of_the_caller() {
        let expected = Some((Some(36.9), "NVRM: text".to_owned()));
        for line in ["<4>[   36.9] NVRM: text", "<4>[ 36.9][ T291] NVRM: text", "<4>[ 36.9] [   C12] NVRM: text"] {
            assert_eq!(read(line), expected, "{line}");
        }
        assert_eq!(read("<6>NVRM: text"), Some((None, "NVRM: text".to_owned())));
        assert_eq!(read("<2>[1.5] [Hardware Error]: CPU"), Some((Some(1.5), "[Hardware Error]: CPU".to_owned())));
        assert_eq!(read("<3>[ 1126.627862] "), Some((Some(1126.627862), String::new())));
    }

    #[test]
    fn lines_of_programs_are_left_out() {
        for line in ["<11>[1.0] NVRM: Xid (PCI:0000:9b:00): 79", "[1.0] text", "<x>[1.0] text", "<4", ""] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn one_message_over_several_lines_is_one_record() {
        let log = "<3>[7.5] NVRM: The NVIDIA GPU 0000:b3:00.0\n<3>[7.5] NVRM: (PCI ID: 10de:26b5) installed in this system has\n\
                   <3>[7.5] NVRM: fallen off the bus.\n<6>[7.6] NVRM: other\n";
        let texts: Vec<String> = records(log).into_iter().map(|record| record.text).collect();
        let joined =
            "NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5) installed in this system has fallen off the bus.";
        assert_eq!(texts, [joined, "NVRM: other"]);
    }
}
