//! Suggests the word that was most likely meant.

/// Longer words are not compared: they are no typos, and the cost is the product of the lengths.
const LENGTH_MAX: usize = 64;

/// The known word nearest to an unknown one, if any is near enough.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.is_empty() || word.len() > LENGTH_MAX {
        return None;
    }
    let lower = word.to_ascii_lowercase();
    let near = |known: &'a str| {
        let other = known.to_ascii_lowercase();
        // A prefix or an extension is nearer than any other: `prio`, `delay`.
        let cut = lower.len().min(other.len()) > 2 && (other.starts_with(&lower) || lower.starts_with(&other));
        let steps = if cut { 0 } else { distance(&lower, &other) };
        (steps <= lower.len().max(other.len()).div_ceil(4)).then_some((steps, known))
    };
    known.into_iter().filter_map(near).min_by_key(|(steps, _)| *steps).map(|(_, known)| known)
}

/// The edit distance of two words.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (above, letter) in from.chars().enumerate() {
        let (mut diagonal, mut left) = (above, above + 1);
        for (cell, other) in row.iter_mut().skip(1).zip(to.chars()) {
            let steps = (diagonal + usize::from(letter != other)).min(left + 1).min(*cell + 1);
            diagonal = std::mem::replace(cell, steps);
            left = steps;
        }
        if let Some(first) = row.first_mut() {
            *first = above + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_the_word_that_was_meant_and_other_words_find_none() {
        let known = ["priority", "depth", "metadata", "delay_ms", "state"];
        for (word, want) in [
            ("prio", Some("priority")),
            ("delay", Some("delay_ms")),
            ("sate", Some("state")),
            ("STATE", Some("state")),
            ("detph", Some("depth")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), want, "{word}");
        }
        assert_eq!(nearest(&"priority".repeat(9), known), None);
    }

    #[test]
    fn steps_are_counted() {
        for (from, to, steps) in
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("abc", "abd", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(from, to), steps, "{from} {to}");
        }
    }
}
