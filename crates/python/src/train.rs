//! `train`: a whole training, as `girih train` does it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use girih_trainer::{
    Control, Event, ModelKind, Outcome, SessionOptions, TaskKind, TestReport, TrainConfig, TrainError,
};
use pyo3::prelude::*;
use pyo3::types::PyBool;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::dataset::Dataset;
use crate::device::{Backend, Device, on_backend};
use crate::errors::value_error;
use crate::threads::stoppable;

/// Settings that a task and a model start from, as JSON: all of them, in sections.
#[pyfunction]
#[pyo3(signature = (task = "nodes", model = "gcn"))]
pub fn default_config(task: &str, model: &str) -> PyResult<String> {
    let task: TaskKind = named("task", task)?;
    let kind: ModelKind = named("model", model)?;
    serde_json::to_string(&TrainConfig::for_task(task, kind)).map_err(value_error)
}

/// Value of an enumeration by its name in configuration files.
fn named<V: DeserializeOwned>(what: &str, name: &str) -> PyResult<V> {
    serde_json::from_value(Value::String(name.to_lowercase())).map_err(|error| value_error(format!("{what}: {error}")))
}

/// Trains on a data set by a configuration in JSON. Calls `on_event` with each event as JSON; `False` stops training.
/// Returns the outcome as JSON.
#[pyfunction]
#[pyo3(signature = (dataset, config, device, out, *, checkpoint_every = None, resume = false, on_event = None))]
pub fn train(
    py: Python<'_>,
    dataset: &Bound<'_, Dataset>,
    config: &str,
    device: &str,
    out: PathBuf,
    checkpoint_every: Option<u64>,
    resume: bool,
    on_event: Option<Py<PyAny>>,
) -> PyResult<String> {
    let config: TrainConfig = serde_json::from_str(config).map_err(value_error)?;
    config.validate().map_err(value_error)?;
    let device: Device = device.parse().map_err(value_error)?;
    let data = girih_datasets::Dataset::clone(&dataset.get().data);
    let (stop, raised) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
    let (is_stopped, error) = (Arc::clone(&stop), Arc::clone(&raised));
    let work = move || -> Result<Outcome, String> {
        let backend = Backend::open(device, config.precision)?;
        let session = SessionOptions { checkpoints: Some(out), checkpoint_every, resume, ..SessionOptions::default() };
        let mut observe = |event: Event<'_>| {
            let answer = on_event.as_ref().map_or(Ok(Control::Continue), |callback| told(callback, &event));
            let control = answer.unwrap_or_else(|exception| {
                error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(exception);
                Control::Stop
            });
            if is_stopped.load(Ordering::Relaxed) { Control::Stop } else { control }
        };
        let trained: Result<Outcome, TrainError> =
            on_backend!(&backend, backend => girih_trainer::train(backend, data, &config, &session, &mut observe));
        trained.map_err(|error| error.to_string())
    };
    let outcome = stoppable(py, &stop, work)?;
    if let Some(exception) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(exception);
    }
    Ok(outcome_json(&outcome.map_err(value_error)?).to_string())
}

/// Calls back with an event.
fn told(callback: &Py<PyAny>, event: &Event<'_>) -> PyResult<Control> {
    let text = event_json(event).to_string();
    Python::attach(|py| {
        let answer = callback.bind(py).call1((text,))?;
        let stops = answer.cast::<PyBool>().is_ok_and(|answer| !answer.is_true());
        Ok(if stops { Control::Stop } else { Control::Continue })
    })
}

fn event_json(event: &Event<'_>) -> Value {
    match event {
        Event::Prepared => json!({ "kind": "prepared" }),
        Event::RunStarted { run, epochs_done, .. } => {
            json!({ "kind": "run_started", "run": run, "epochs_done": epochs_done })
        }
        Event::Batch { run, done } => {
            json!({ "kind": "batch", "run": run, "batches": done.batches, "num_batches": done.n_batches })
        }
        Event::Epoch { run, report } => json!({
            "kind": "epoch",
            "run": run,
            "epoch": report.epoch,
            "train_loss": report.train_loss,
            "lr": report.lr,
            "seconds": report.times.steps.as_secs_f64(),
            "evaluation_seconds": report.times.evaluate.as_secs_f64(),
            "scores": report.scores,
        }),
        Event::RunFinished(summary) => json!({ "kind": "run_finished", "run": summary.run, "summary": summary }),
    }
}

fn outcome_json(outcome: &Outcome) -> Value {
    json!({
        "runs": outcome.runs,
        "test": outcome.test.as_ref().map(report_json),
        "stopped": outcome.stopped,
        "tiers": outcome.tiers,
    })
}

/// Test report as JSON.
pub fn report_json(report: &TestReport) -> Value {
    let f1 = report.f1.as_ref().map(|f1| json!({ "micro": f1.micro, "macro": f1.macro_ }));
    json!({ "f1": f1, "roc_auc": report.roc_auc, "average_precision": report.average_precision })
}
