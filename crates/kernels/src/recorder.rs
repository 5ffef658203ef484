//! [`Recorder`]: observation and capture of the operations of a step, and the page of values that change from step to
//! step.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use girih_compute::{AdamStep, ComputeError, StepInputs};
use girih_random::Key;

use crate::abi::StepRates;

/// Name of the operation in errors.
pub(crate) const OPERATION: &str = "a repeated step";

/// Bytes of a word of the page.
const WORD_BYTES: u64 = size_of::<u32>() as u64;
/// Words of the page that hold rates; keys follow, two words each.
const RATES_WORDS: usize = size_of::<StepRates>() / size_of::<u32>();

/// State of watching or capturing the operations of a backend.
pub(crate) struct Recorder {
    /// Whether steps may be captured at all.
    pub(crate) enabled: bool,
    now: Mutex<Now>,
    /// Number of steps replayed as graphs.
    pub(crate) n_repeated: AtomicU64,
}

/// Treatment of the operations of the present step.
#[derive(Debug, Default)]
pub(crate) enum Now {
    #[default]
    Neither,
    Watched {
        inputs: StepInputs,
        seen: Seen,
    },
    /// Capture is under way; `page` is the address of the page.
    Captured {
        inputs: StepInputs,
        page: u64,
    },
}

/// Observations about a watched step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// First operation that cannot be captured, as a verb phrase.
    pub(crate) obstacle: Option<&'static str>,
    /// Bytes that the step allocated, summed over its allocations.
    pub(crate) n_bytes: usize,
}

impl Now {
    /// Notes an operation that cannot be captured while a step is watched; fails while a step is captured.
    fn obstacle(&mut self, what: &'static str) -> Result<(), ComputeError> {
        match self {
            Self::Neither => Ok(()),
            Self::Watched { seen, .. } => {
                seen.obstacle.get_or_insert(what);
                Ok(())
            }
            Self::Captured { .. } => Err(ComputeError::device(OPERATION, format!("it {what}"))),
        }
    }

    /// Address of a key of the step on the page; zero where the key is passed by value.
    fn key(&mut self, key: Key) -> Result<u64, ComputeError> {
        let (keys, page) = match self {
            Self::Neither => return Ok(0),
            Self::Watched { inputs, .. } => (&inputs.keys, 0),
            Self::Captured { inputs, page } => (&inputs.keys, *page),
        };
        match keys.iter().position(|known| *known == key) {
            Some(_) if page == 0 => Ok(0),
            Some(at) => Ok(page + WORD_BYTES * (RATES_WORDS + 2 * at) as u64),
            None => self.obstacle("draws below a key that is not the step's").map(|()| 0),
        }
    }

    /// Address of the rates of an optimiser step on the page; zero where they are passed by value.
    fn rates(&mut self, is_the_steps: impl Fn(&AdamStep) -> bool) -> Result<u64, ComputeError> {
        let (inputs, page) = match self {
            Self::Neither => return Ok(0),
            Self::Watched { inputs, .. } => (inputs, 0),
            Self::Captured { inputs, page } => (inputs, *page),
        };
        if is_the_steps(&inputs.optimizer) {
            return Ok(page);
        }
        self.obstacle("lets its optimiser take another step").map(|()| 0)
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new(true)
    }
}

impl Recorder {
    /// Recorder outside of steps, with capture enabled or not.
    pub(crate) fn new(enabled: bool) -> Self {
        Self { enabled, now: Mutex::default(), n_repeated: AtomicU64::new(0) }
    }

    /// Treatment of the operations of the present step, for the thread that runs it.
    pub(crate) fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether capture is enabled.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Notes that an operation does something that cannot be captured.
    ///
    /// # Errors
    /// When the operation is being captured.
    pub(crate) fn obstacle(&self, what: &'static str) -> Result<(), ComputeError> {
        self.now().obstacle(what)
    }

    /// Notes that an operation allocates `n_bytes`.
    pub(crate) fn allocates(&self, n_bytes: usize) {
        if let Now::Watched { seen, .. } = &mut *self.now() {
            seen.n_bytes += n_bytes;
        }
    }

    /// Address that kernels read a key of draws from; zero where they take the key by value.
    ///
    /// # Errors
    /// When a step is being captured that does not have this key.
    pub(crate) fn key(&self, key: Key) -> Result<u64, ComputeError> {
        self.now().key(key)
    }

    /// Address that kernels read the rates of an optimiser step from; zero where they take the rates by value.
    ///
    /// # Errors
    /// When a step is being captured whose optimiser takes another step.
    pub(crate) fn rates(&self, is_the_steps: impl Fn(&AdamStep) -> bool) -> Result<u64, ComputeError> {
        self.now().rates(is_the_steps)
    }
}

/// Number of words of the page.
pub(crate) fn n_words(inputs: &StepInputs) -> usize {
    RATES_WORDS + 2 * inputs.keys.len()
}

/// Words of the page: rates, then keys.
pub(crate) fn words(inputs: &StepInputs) -> Vec<u32> {
    let rates = StepRates::of(&inputs.optimizer).words();
    rates.into_iter().chain(inputs.keys.iter().flat_map(|key| key.words())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(n_keys: u64, lr: f32) -> StepInputs {
        let keys = (0..n_keys).map(|n| Key::new(1, 2).child(n)).collect();
        let optimizer = AdamStep { lr, beta1: 0.9, beta2: 0.999, eps: 1e-8, decoupled: true, step: 7 };
        StepInputs { keys, optimizer }
    }

    fn captured(n_keys: u64) -> Now {
        Now::Captured { inputs: inputs(n_keys, 0.1), page: 4096 }
    }

    #[test]
    fn kernels_read_each_input_where_the_page_has_it() {
        let inputs = inputs(3, 0.1);
        let (page, mut now) = (words(&inputs), captured(3));
        assert_eq!(page.len(), n_words(&inputs));
        let at = |address: u64| ((address - 4096) / WORD_BYTES) as usize;
        for key in &inputs.keys {
            let place = at(now.key(*key).unwrap());
            assert_eq!(page[place..place + 2], key.words());
        }
        let rates = at(now.rates(|step| step.lr == 0.1).unwrap());
        assert_eq!(page[rates..rates + RATES_WORDS], StepRates::of(&inputs.optimizer).words());
    }

    #[test]
    fn values_are_arguments_where_nothing_is_captured() {
        let key = Key::new(5, 5);
        for mut now in [Now::Neither, Now::Watched { inputs: inputs(2, 0.1), seen: Seen::default() }] {
            assert_eq!((now.key(key).unwrap(), now.rates(|_| false).unwrap()), (0, 0));
            now.obstacle("waits").unwrap();
        }
    }

    #[test]
    fn what_cannot_be_captured_is_noted_first_and_refused_then() {
        let watched = || Now::Watched { inputs: inputs(2, 0.1), seen: Seen::default() };
        type Cause = fn(&mut Now) -> Result<(), ComputeError>;
        let causes: [Cause; 3] = [
            |now| now.key(Key::new(5, 5)).map(drop),
            |now| now.rates(|step| step.lr == 0.2).map(drop),
            |now| now.obstacle("waits"),
        ];
        for cause in causes {
            let mut now = watched();
            cause(&mut now).unwrap();
            assert!(matches!(now, Now::Watched { seen: Seen { obstacle: Some(_), .. }, .. }), "{now:?}");
            assert!(cause(&mut captured(2)).is_err());
        }
        let mut now = watched();
        let (key, lr) = (inputs(2, 0.1).keys[1], 0.1);
        now.key(key).unwrap();
        now.rates(|step| step.lr == lr).unwrap();
        assert!(matches!(now, Now::Watched { seen: Seen { obstacle: None, .. }, .. }), "{now:?}");
    }

    #[test]
    fn what_a_watched_step_allocates_is_added_up() {
        let recorder = Recorder::default();
        recorder.allocates(5);
        *recorder.now() = Now::Watched { inputs: inputs(0, 0.1), seen: Seen::default() };
        for n_bytes in [16, 8] {
            recorder.allocates(n_bytes);
        }
        let now = recorder.now();
        assert!(matches!(*now, Now::Watched { seen: Seen { n_bytes: 24, .. }, .. }), "{now:?}");
    }
}
