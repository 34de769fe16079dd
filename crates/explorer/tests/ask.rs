//! Questions as the page asks them: answers have the planner's numbers, and what cannot be answered is a sentence.

use explorer::ask;
use figures::price;
use planner::{Bytes, CostTable, Fronts, Kernel, KernelId, Math, PlanOptions, WorkspacePolicy};
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
        "ask": "plan", "net": "net", "gpu": "h200", "math": "fp32", "mini_batch": 256, "in_memory": false,
        "options": PlanOptions::default(), "kernel": "conv3 Forward",
    });
    for (name, value) in changes.as_object().unwrap() {
        let is_option = question["options"].get(name).is_some();
        let part = if is_option { &mut question["options"] } else { &mut question };
        part[name] = value.clone();
    }
    asked(&question)
}

#[test]
fn a_page_is_told_what_the_planner_says() {
    let text = recorded();
    let table = CostTable::from_json_lines(&text).unwrap();
    let kernels = kernels(&table);
    assert_eq!(asked(&json!({ "ask": "table", "gpu": "h200", "text": text })), json!({}));
    let net = json!({ "ask": "net", "name": "net", "kernels": kernels });
    assert_eq!(asked(&net)["mini_batch"], 256);

    let expected = planner::plan(&kernels, &table, &PlanOptions::default()).unwrap();
    let answer = plan(&json!({}));
    assert_eq!(answer["plan"]["time_ms"].as_f64(), Some(expected.time_ms));
    assert!(answer["timeline"].is_null(), "without an outline there is no schedule");
    for picture in ["curve", "kernels", "cliff"] {
        assert!(answer[picture].as_str().unwrap().ends_with("</svg>\n"), "{picture}");
    }
    let cliff = |options: &Value| plan(options)["cliff"].as_str().unwrap().to_owned();
    assert!(cliff(&json!({})).contains("micro-batches"));
    assert!(!cliff(&json!({ "batch_size_policy": "undivided" })).contains("micro-batches"));
    let exact = cliff(&json!({ "max_error": 1e-6 }));
    assert!(
        !exact.contains("WINOGRAD_NONFUSED") && cliff(&json!({})).contains("WINOGRAD_NONFUSED"),
        "{exact}"
    );
    let tf32 = plan(&json!({ "math": "tf32" }));
    assert!(tf32["plan"]["time_ms"].as_f64() < answer["plan"]["time_ms"].as_f64());
    let estimated = plan(&json!({ "mini_batch": 100 }));
    let said = estimated["estimate"].as_str().unwrap();
    assert!(
        said.contains("ESTIMATE") && said.contains("x in time") && answer["estimate"].is_null(),
        "{said}"
    );

    let fronts = Fronts::new(&kernels, &table, &PlanOptions::default()).unwrap();
    let limit = Bytes::mib(64);
    for policy in [WorkspacePolicy::Wr, WorkspacePolicy::Wd] {
        let answer = plan(&json!({ "workspace_policy": policy, "limit": limit }));
        let of_total = policy == WorkspacePolicy::Wd;
        let saved = price(fronts.price_ms_per_mib(policy, limit), of_total);
        assert_eq!(answer["summary"][2], saved, "{policy}");
        // The curve of WD alone would say another.
        assert_eq!(
            price(fronts.curve(policy).price_ms_per_mib(limit), of_total) != saved,
            of_total,
            "{saved}"
        );
    }

    for (changes, part) in [
        (json!({ "net": "other" }), "there is no net other"),
        (json!({ "gpu": "k80" }), "nothing was recorded on k80"),
        (json!({ "in_memory": true }), "needs a net"),
        (json!({ "workspace_policy": "wd", "limit": 0, "max_error": 1e-9 }), "no algorithm"),
        (json!({ "mini_batch": 0 }), "empty mini-batch"),
        (json!({ "mini_batch": 1 << 20 }), "the 256 samples"),
        (json!({ "batch_size_policy": "many" }), "unknown variant"),
    ] {
        let error = plan(&changes)["error"].to_string();
        assert!(error.contains(part), "{changes}: {error}");
    }
    let mut wide = kernels[0].clone();
    wide.id.shape.r = 4000;
    let net = json!({ "ask": "net", "name": "x", "kernels": [wide] });
    assert!(asked(&net)["error"].to_string().contains("a window of 4000 does not fit"));
    assert!(
        asked(&json!({ "ask": "table", "gpu": "x", "text": "{}" }))["error"].to_string().contains("line 1")
    );
}
