//! Questions as the page asks them: answers have the planner's numbers, and what cannot be answered is a sentence.

use explorer::ask;
use planner::{CostTable, Kernel, KernelId, Math, PlanOptions};
use serde_json::{Value, json};
use std::fs;

fn asked(question: &Value) -> Value {
    serde_json::from_str(&ask(&question.to_string())).unwrap()
}

fn recorded() -> String {
    let file = "/../../data/profiles/nvidia-h200/alexnet-256-powerOfTwo.jsonl";
    fs::read_to_string(env!("CARGO_MANIFEST_DIR").to_owned() + file).unwrap()
}

/// The kernels of the table in FP32, as a net.
fn kernels(table: &CostTable) -> Vec<Kernel> {
    let mut ids: Vec<KernelId> =
        table.iter().map(|(id, ..)| *id).filter(|id| id.math == Math::Fp32).collect();
    ids.dedup();
    ids.into_iter()
        .enumerate()
        .map(|(i, id)| Kernel { name: format!("conv{i}"), id, mini_batch: 256 })
        .collect()
}

fn plan(changes: &Value) -> Value {
    let mut question = json!({
        "ask": "plan", "net": "net", "gpu": "h200", "math": "fp32", "mini_batch": 256, "policy": "powerOfTwo",
        "give": "wr", "limit": 64 << 20, "max_error": null, "kernel": "conv3 Forward",
    });
    for (name, value) in changes.as_object().unwrap() {
        question[name] = value.clone();
    }
    asked(&question)
}

#[test]
fn a_page_is_told_what_the_planner_says() {
    let text = recorded();
    let table = CostTable::from_json_lines(&text).unwrap();
    let kernels = kernels(&table);
    assert_eq!(asked(&json!({ "ask": "table", "gpu": "h200", "text": text }))["mini_batch"], 256);
    let entries: Vec<Value> = kernels.iter().map(|kernel| json!({ "kernel": kernel })).collect();
    let net = json!({ "ask": "net", "name": "net", "report": { "plan": { "kernels": entries } } });
    assert_eq!(asked(&net)["mini_batch"], 256);

    let expected = planner::plan(&kernels, &table, &PlanOptions::default()).unwrap();
    let answer = plan(&json!({}));
    assert_eq!(answer["plan"]["time_ms"].as_f64(), Some(expected.time_ms));
    assert!(answer["timeline"].is_null(), "without an outline there is no schedule");
    for picture in ["curve", "kernels", "cliff"] {
        assert!(answer[picture].as_str().unwrap().ends_with("</svg>\n"), "{picture}");
    }
    let tf32 = plan(&json!({ "math": "tf32" }));
    assert!(tf32["plan"]["time_ms"].as_f64() < answer["plan"]["time_ms"].as_f64());
    let estimated = plan(&json!({ "mini_batch": 100 }));
    assert!(
        estimated["estimated"].as_u64() > Some(0)
            && estimated["estimate_error"]["time_median"].as_f64() > Some(1.0)
    );

    for (changes, part) in [
        (json!({ "net": "other" }), "there is no net other"),
        (json!({ "gpu": "k80" }), "nothing was recorded on k80"),
        (json!({ "give": "memory" }), "needs a net"),
        (json!({ "give": "wd", "limit": 0, "max_error": 1e-9 }), "no algorithm"),
        (json!({ "mini_batch": 0 }), "empty mini-batch"),
        (json!({ "mini_batch": 1 << 20 }), "up to 256 samples"),
        (json!({ "policy": "many" }), "unknown variant"),
    ] {
        let error = plan(&changes)["error"].to_string();
        assert!(error.contains(part), "{changes}: {error}");
    }
    let mut wide = kernels[0].clone();
    wide.id.shape.r = 4000;
    let net = json!({ "ask": "net", "name": "x", "report": { "plan": { "kernels": [{ "kernel": wide }] } } });
    assert!(asked(&net)["error"].to_string().contains("a window of 4000 does not fit"));
    assert!(
        asked(&json!({ "ask": "table", "gpu": "x", "text": "{}" }))["error"].to_string().contains("line 1")
    );
}
