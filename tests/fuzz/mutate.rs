//! Inputs that are nearly good: seeds, damaged in ways that keep most of their structure.

use crate::harness::Random;
use rand::{Rng, RngExt};
use std::ops::Range;

/// Numbers around the ends of types and ranges, and some that are none.
const EXTREMES: [&str; 44] = [
    "0",
    "1",
    "2",
    "3",
    "5",
    "7",
    "8",
    "16",
    "17",
    "31",
    "64",
    "100",
    "255",
    "256",
    "1000",
    "4096",
    "65535",
    "65536",
    "65537",
    "1048576",
    "16777217",
    "1073741824",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "3037000500",
    "17592186044416",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-1",
    "-2",
    "-2147483648",
    "0.5",
    "-0.0",
    "1e-45",
    "3e38",
    "-3e38",
    "1e39",
    "1e999",
    "nan",
    "inf",
];

/// Bytes that one input may have: inputs are many rather than long.
const LONGEST: usize = 1 << 16;

pub(crate) fn below(random: &mut Random, end: usize) -> usize {
    random.random_range(0..end.max(1))
}

pub(crate) fn one_in(random: &mut Random, count: usize) -> bool {
    below(random, count) == 0
}

pub(crate) fn pick<'a, T>(random: &mut Random, from: &'a [T]) -> &'a T {
    &from[below(random, from.len())]
}

pub(crate) fn extreme(random: &mut Random) -> &'static str {
    EXTREMES[below(random, EXTREMES.len())]
}

/// An extent: mostly a small number that makes sense, now and then any.
pub(crate) fn extent(random: &mut Random) -> String {
    match below(random, 12) {
        0 => extreme(random).to_owned(),
        1..=3 => below(random, 13).to_string(),
        _ => (1 + below(random, 4)).to_string(),
    }
}

/// Good inputs, to be damaged.
pub(crate) struct Corpus {
    seeds: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
}

impl Corpus {
    pub(crate) fn new<S: Into<Vec<u8>>>(seeds: impl IntoIterator<Item = S>) -> Self {
        let seeds: Vec<Vec<u8>> = seeds.into_iter().map(Into::into).collect();
        let mut words: Vec<Vec<u8>> = Vec::new();
        for seed in &seeds {
            words.extend(words_of(seed).into_iter().map(|word| seed[word].to_vec()));
        }
        words.sort();
        words.dedup();
        Self { seeds, words }
    }

    /// A good input.
    pub(crate) fn seed(&self, random: &mut Random) -> Vec<u8> {
        pick(random, &self.seeds).clone()
    }

    /// A seed that is damaged as text, in up to four places.
    pub(crate) fn text(&self, random: &mut Random) -> Vec<u8> {
        let seed = self.seed(random);
        self.damage_text(seed, random)
    }

    /// A seed that is damaged byte by byte.
    pub(crate) fn bytes(&self, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.seed(random);
        for _ in 0..below(random, 4) {
            self.damage_bytes_once(&mut bytes, random);
        }
        bytes
    }

    pub(crate) fn damage_text(&self, mut text: Vec<u8>, random: &mut Random) -> Vec<u8> {
        for _ in 0..below(random, 5) {
            self.damage_text_once(&mut text, random);
            text.truncate(LONGEST);
        }
        text
    }

    fn damage_text_once(&self, text: &mut Vec<u8>, random: &mut Random) {
        match below(random, 16) {
            0..=6 => {
                let is_number =
                    |word: &Range<usize>| text[word.clone()].iter().all(|byte| !byte.is_ascii_alphabetic());
                let numbers: Vec<Range<usize>> = words_of(text).into_iter().filter(is_number).collect();
                replace_one(text, &numbers, extreme(random).as_bytes(), random);
            }
            7 | 8 => {
                let words = words_of(text);
                let word: &Vec<u8> = pick(random, &self.words);
                replace_one(text, &words, word, random);
            }
            9 | 10 => {
                let other = pick(random, &self.seeds);
                let (blocks, others) = (blocks_of(text), blocks_of(other));
                if !others.is_empty() {
                    let block = pick(random, &others).clone();
                    replace_one(text, &blocks, &other[block], random);
                }
            }
            11 => {
                let lines = lines_of(text);
                replace_one(text, &lines, b"", random);
            }
            12 => {
                let lines = lines_of(text);
                let line = text[pick(random, &lines).clone()].to_vec();
                let at = pick(random, &lines).start;
                text.splice(at..at, line);
            }
            13 => repeat(text, random),
            _ => self.damage_bytes_once(text, random),
        }
    }

    fn damage_bytes_once(&self, bytes: &mut Vec<u8>, random: &mut Random) {
        let at = below(random, bytes.len() + 1);
        let end = (at + 1 + below(random, 16)).min(bytes.len());
        match below(random, 8) {
            0 | 1 if at < end => bytes[at] ^= 1 << below(random, 8),
            2 if at < end => bytes[at] = *pick(random, &[0, 1, 0x7f, 0x80, 0xff]),
            3 => {
                let number = extreme(random).parse::<u64>().unwrap_or_else(|_| random.next_u64());
                let number = [&number.to_be_bytes()[4..], &number.to_le_bytes(), &number.to_be_bytes()];
                let number = *pick(random, &number);
                let end = (at + number.len()).min(bytes.len());
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            4 => drop(bytes.drain(at..end)),
            5 => bytes.truncate(at),
            6 => {
                let mut some = vec![0; 1 + below(random, 8)];
                random.fill_bytes(&mut some);
                bytes.splice(at..at, some);
            }
            _ => {
                let other = pick(random, &self.seeds);
                bytes.splice(at.., other[below(random, other.len())..].iter().copied());
            }
        }
    }
}

/// Some piece of the text many times over.
fn repeat(text: &mut Vec<u8>, random: &mut Random) {
    let at = below(random, text.len() + 1);
    let end = (at + 1 + below(random, 40)).min(text.len());
    let most = LONGEST.saturating_sub(text.len()) / (end - at).max(1);
    let count = 1 << below(random, most.max(1).ilog2() as usize + 1);
    let piece = text[at..end].repeat(count);
    text.splice(at..at, piece);
}

fn replace_one(text: &mut Vec<u8>, places: &[Range<usize>], by: &[u8], random: &mut Random) {
    if !places.is_empty() {
        text.splice(pick(random, places).clone(), by.iter().copied());
    }
}

/// Runs of letters, digits and what numbers are written with.
fn words_of(text: &[u8]) -> Vec<Range<usize>> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte);
    let mut words = Vec::new();
    let mut at = 0;
    for run in text.chunk_by(|&a, &b| is_part(a) == is_part(b)) {
        if is_part(run[0]) {
            words.push(at..at + run.len());
        }
        at += run.len();
    }
    words
}

fn lines_of(text: &[u8]) -> Vec<Range<usize>> {
    let mut at = 0;
    let lines = text.split_inclusive(|&byte| byte == b'\n').map(|line| {
        at += line.len();
        at - line.len()..at
    });
    // An empty one at the end, so that there always is one.
    lines.chain(std::iter::once(text.len()..text.len())).collect()
}

/// What stands in braces, with them.
fn blocks_of(text: &[u8]) -> Vec<Range<usize>> {
    let (mut open, mut blocks) = (Vec::new(), Vec::new());
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'{' => open.push(at),
            b'}' => blocks.extend(open.pop().map(|start| start..at + 1)),
            _ => {}
        }
    }
    blocks
}
