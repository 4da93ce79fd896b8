// SPDX-License-Identifier: GPL-2.0

//! The report of a case.

use serde_json::{json, Map, Value};

/// The result of a case.
pub struct Report {
    role: &'static str,
    case: String,
    sent: Vec<String>,
    got: Vec<String>,
    facts: Map<String, Value>,
    wrong: Option<String>,
}

impl Report {
    /// An empty report.
    pub fn new(role: &'static str, case: &str) -> Self {
        Self {
            role,
            case: case.to_string(),
            sent: Vec::new(),
            got: Vec::new(),
            facts: Map::new(),
            wrong: None,
        }
    }

    /// Records what was sent.
    pub fn sent(&mut self, what: impl Into<String>) {
        self.sent.push(what.into());
    }

    /// Records what came back.
    pub fn got(&mut self, what: impl Into<String>) {
        self.got.push(what.into());
    }

    /// Records a number or text by name.
    pub fn fact(&mut self, name: &str, value: impl Into<Value>) {
        self.facts.insert(name.to_string(), value.into());
    }

    /// Records that the peer misbehaved; the first reason counts.
    pub fn wrong(&mut self, why: impl Into<String>) {
        self.wrong.get_or_insert(why.into());
    }

    /// Whether the peer behaved.
    pub fn is_ok(&self) -> bool {
        self.wrong.is_none()
    }

    /// The whole report, in one line.
    pub fn to_json(&self) -> String {
        let mut all = json!({
            "ok": self.is_ok(),
            "role": self.role,
            "case": self.case,
            "sent": self.sent,
            "got": self.got,
        });
        if let Value::Object(map) = &mut all {
            map.extend(self.facts.clone());
            if let Some(wrong) = &self.wrong {
                map.insert("wrong".into(), wrong.clone().into());
            }
        }
        all.to_string()
    }
}
