//! A table of connections: dense indices, reused newest first, with a generation each (R3, R4).

use crate::backend::Token;

/// Connections by [`Token`].
#[derive(Debug)]
pub(crate) struct Slots<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slots<T> {
    pub(crate) fn new() -> Slots<T> {
        Slots {
            entries: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Puts a value into a free slot.
    pub(crate) fn insert(&mut self, value: T) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry {
                generation: 0,
                value: None,
            });
            u32::try_from(self.entries.len() - 1).expect("descriptors run out long before u32 does")
        });
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.value.is_none(), "a free slot is empty");
        entry.value = Some(value);
        Token {
            index,
            generation: entry.generation,
        }
    }

    /// The value of a token, unless it is of another generation (R3).
    #[inline]
    pub(crate) fn get(&self, token: Token) -> Option<&T> {
        let entry = self.entries.get(token.index as usize)?;
        if entry.generation == token.generation {
            entry.value.as_ref()
        } else {
            None
        }
    }

    /// The value of a token, unless it is of another generation (R3).
    #[inline]
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let entry = self.entries.get_mut(token.index as usize)?;
        if entry.generation == token.generation {
            entry.value.as_mut()
        } else {
            None
        }
    }

    /// Takes a value out; the slot's next token has another generation.
    pub(crate) fn remove(&mut self, token: Token) -> Option<T> {
        let entry = self.entries.get_mut(token.index as usize)?;
        if entry.generation != token.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(token.index);
        Some(value)
    }

    /// Values in the table.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Every token with a value.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.value.is_some())
            .map(|(index, entry)| Token {
                index: u32::try_from(index).unwrap_or(u32::MAX),
                generation: entry.generation,
            })
    }

    /// Drops every value.
    pub(crate) fn clear(&mut self) {
        let tokens: Vec<Token> = self.tokens().collect();
        for token in tokens {
            self.remove(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reuse_bumps_the_generation_and_old_tokens_find_nothing() {
        let mut slots = Slots::new();
        let first = slots.insert('a');
        let other = slots.insert('b');
        assert_eq!((first.index, other.index), (0, 1));
        assert_eq!(slots.remove(first), Some('a'));
        let again = slots.insert('c');
        assert_eq!(again.index, first.index);
        assert_ne!(again.generation, first.generation);
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get_mut(again), Some(&mut 'c'));
        assert_eq!(slots.len(), 2);
        assert_eq!(slots.tokens().count(), 2);
    }
}
