//! Pages in a browser: at the width of a phone and of a laptop nothing overflows, and all text is there. Without
//! Chromium on the PATH the test says `skipped`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use crate::girih::{SMALL, Workspace, girih};

const WIDTHS: [u32; 2] = [400, 1280];

/// Program of a browser that is built on Chromium, if the PATH has one.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut programs = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    programs.find(|program| program.is_file())
}

/// Script of a page around the page: its text, and the elements that reach beyond its sides. Those inside of a part
/// that scrolls by itself are seen by scrolling.
const MEASURE: &str = r#"
addEventListener('load', () => {
  const page = document.querySelector('iframe').contentDocument, width = page.documentElement.clientWidth;
  for (const plot of page.querySelectorAll('.plot')) {
    const { left, top, width } = plot.getBoundingClientRect();
    plot.dispatchEvent(new PointerEvent('pointermove', { clientX: left + 0.4 * width, clientY: top + 9 }));
  }
  const over = [...page.querySelectorAll('body *')].filter(element => {
    const { left, right } = element.getBoundingClientRect();
    return right > left && (right > width + 1 || left < -1) && !element.closest('.wide, script');
  });
  const found = {
    width,
    scrolled: page.documentElement.scrollWidth,
    over: over.map(element => element.outerHTML.slice(0, 200)),
    small: [...page.querySelectorAll('body *')].filter(element =>
      !element.closest('svg, script') && element.textContent.trim() && parseFloat(getComputedStyle(element).fontSize) < 12
    ).length,
    pointed: [...page.querySelectorAll('.plot output')].map(output => output.innerText),
    text: page.body.innerText,
  };
  const bytes = new TextEncoder().encode(JSON.stringify(found));
  document.body.innerHTML = '<p>' + btoa([...bytes].map(byte => String.fromCharCode(byte)).join('')) + '</p>';
});
"#;

/// Findings of [`MEASURE`] on a page that is `width` pixels wide. A frame has any width; windows have a least one.
fn measured(browser: &Path, work: &Workspace, page: &Path, width: u32) -> Value {
    let text = fs::read_to_string(page).unwrap().replace('&', "&amp;").replace('"', "&quot;");
    let outer = work.path("outer.html");
    let frame = format!("<iframe style=\"border:0;width:{width}px;height:900px\" srcdoc=\"{text}\"></iframe>");
    fs::write(&outer, format!("<!doctype html><meta charset=\"utf-8\"><body>{frame}<script>{MEASURE}</script></body>"))
        .unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=10000"])
        .arg(format!("--user-data-dir={}", work.arg("browser")))
        .arg("--window-size=1400,1000")
        .arg(format!("file://{}", outer.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8(output.stdout).unwrap();
    let found = dom.split_once("<p>").and_then(|(_, rest)| rest.split_once("</p>"));
    let (found, _) = found.unwrap_or_else(|| panic!("no measures: {dom}{}", String::from_utf8_lossy(&output.stderr)));
    serde_json::from_slice(&BASE64_STANDARD.decode(found).unwrap()).unwrap()
}

/// Asserts that a page fits, is readable and has all `texts` at every width.
fn assert_fits(browser: &Path, work: &Workspace, page: &str, texts: &[&str]) {
    for width in WIDTHS {
        let found = measured(browser, work, &work.path(page), width);
        assert!(found["width"].as_u64().unwrap() + 20 >= u64::from(width), "{page}: {}", found["width"]);
        assert_eq!(found["over"], serde_json::json!([]), "{page} at {width} pixels");
        assert!(found["scrolled"].as_u64() <= found["width"].as_u64(), "{page} at {width} pixels scrolls sideways");
        assert_eq!(found["small"], 0, "{page} at {width} pixels has text below 12 pixels");
        let pointed = found["pointed"].as_array().unwrap();
        let is_told = |values: &Value| values.as_str().unwrap().starts_with("epoch ");
        assert!(pointed.iter().all(is_told), "{page}: the pointer shows the values of an epoch: {pointed:?}");
        let text = found["text"].as_str().unwrap();
        for expected in texts {
            assert!(text.contains(expected), "{page} at {width} pixels lacks {expected}: {text}");
        }
    }
}

#[test]
fn pages_fit_a_phone_and_a_laptop() {
    let Some(browser) = browser() else {
        eprintln!("skipped: no chromium, chromium-browser or google-chrome on the PATH");
        return;
    };
    let work = Workspace::new();
    let (full, sampled) = (work.arg("full"), work.arg("a-session-with-a-rather-long-name-of-its-folder"));
    girih(&["train", "--data", SMALL, "--epochs", "20", "--runs", "2", "--ranks", "2", "--out", &full]).ok();
    let batches = ["--model", "sage", "--batch", "neighbor", "--fanout", "4,4"];
    girih(&[&["train", "--data", SMALL, "--epochs", "3", "--out", &sampled], &batches[..]].concat()).ok();
    girih(&["compare", &full, &sampled, "--out", &work.arg("compared.html")]).ok();
    let orders = ["reorder", "--data", SMALL, "--order", "degree,rcm,community", "--report", &work.arg("orders.html")];
    girih(&orders).ok();

    let everywhere = [
        "Result",
        "Data",
        "Loss",
        "Accuracy",
        "Classes",
        "Confusion matrix",
        "Time of an epoch",
        "Settings",
        "Command",
    ];
    let of_ranks = ["Runs", "best epoch of each run", "Ranks", "Load imbalance (max/mean)", "rank 1"];
    assert_fits(&browser, &work, "full/report.html", &[&everywhere[..], &of_ranks].concat());
    let of_batches = ["Utilisation: steps computed", "waiting for batches", "model.aggregator"];
    let report = "a-session-with-a-rather-long-name-of-its-folder/report.html";
    assert_fits(&browser, &work, report, &[&everywhere[..], &of_batches].concat());
    let compared = ["Sessions", "Settings that differ", "model.kind", "Validation accuracy", "Training loss", &full];
    assert_fits(&browser, &work, "compared.html", &compared);
    let orders = ["Orders", "as it is", "degree", "rcm", "community", "Non-zeros in each order", "Load imbalance"];
    assert_fits(&browser, &work, "orders.html", &orders);
}
