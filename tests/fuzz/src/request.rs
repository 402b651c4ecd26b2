//! The request parser: a connection's input of arbitrary bytes, in arbitrary pieces.
//!
//! It means the same in every split, keeps every limit, and is what [`super::reference`] reads in it: what the one
//! accepts, the other accepts, with the same fields, framing and body.

use arbitrary::{Arbitrary, Result, Unstructured};
use m0serve::handoff::Framing;
use m0serve::http1::{Finish, Limits};

use super::reference::{self, End};
use super::wire::{self, Escaped, Message};

/// An input of this target.
#[derive(Debug)]
pub struct Input {
    limits: Limits,
    cuts: [u8; 3],
    raw: Escaped,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Input> {
        let limits = match u8::arbitrary(u)? % 4 {
            0 => Limits {
                max_head: 70,
                max_target: 6,
                max_fields: 2,
                max_body: 6,
            },
            1 => Limits {
                max_head: 200,
                max_target: 120,
                max_fields: 4,
                max_body: 40,
            },
            _ => Limits::default(),
        };
        let cuts = Arbitrary::arbitrary(u)?;
        let raw = Escaped(u.bytes(u.len())?.to_vec());
        Ok(Input { limits, cuts, raw })
    }
}

impl Input {
    /// Panics when the parser breaks a rule.
    pub fn check(&self) {
        let outcome = wire::decode_in_every_way(&self.limits, &self.raw.0, &self.cuts);
        for message in &outcome.messages {
            self.check_message(message);
        }
        let (expected, end) = reference::messages(&self.raw.0, &self.limits);
        assert_eq!(outcome.messages, expected, "against the reference, in {:?}", self.raw);
        match end {
            End::Refused => assert!(outcome.end.is_err(), "the reference refuses {:?}", self.raw),
            End::Complete => assert_eq!(outcome.end, Ok(Finish::Clean)),
            // What has no end yet may be refused already.
            End::More => {}
        }
    }

    fn check_message(&self, message: &Message) {
        let Limits {
            max_head,
            max_target,
            max_fields,
            max_body,
        } = self.limits;
        let held: usize = message
            .fields
            .iter()
            .map(|(name, value)| name.len() + value.len() + 3)
            .sum();
        assert!(message.method.len() + message.path.len() + message.query.len() <= max_head);
        assert!(message.path.len() + message.query.len() <= max_target);
        // The authority of an absolute-form target may stand for a shorter Host.
        assert!(held <= max_head + max_target && message.fields.len() <= max_fields + 1);
        assert!(max_body == 0 || message.body.len() as u64 <= max_body);
        if let Framing::Length(length) = message.framing {
            assert!(max_body == 0 || length <= max_body);
            assert!(message.body.len() as u64 <= length);
            assert_eq!(message.complete, message.body.len() as u64 == length);
        }
        let smuggles = |bytes: &[u8]| bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
        for (name, value) in &message.fields {
            assert!(!smuggles(name) && !smuggles(value), "{message:?}");
        }
        for part in [&message.method, &message.path, &message.query] {
            assert!(part.iter().all(u8::is_ascii_graphic), "{message:?}");
        }
    }
}
